#include "lamina/gemm/skinny_gemm/wave_gemm_launch.cuh"

namespace lamina::gemm_internal {

gpu::Error LaunchWaveGemmF16(const GemmArgs& args, const WaveGemmPlan& plan,
                             const gpu::LaunchTarget& target) {
  return LaunchWaveGemmOf<F16>(args, plan, target);
}

}  // namespace lamina::gemm_internal
