#include "lamina/gemm/skinny_gemm/wave_gemm_launch.cuh"

namespace lamina::gemm_internal {

gpu::Error LaunchWaveGemmBF16(const GemmArgs& args, const WaveGemmPlan& plan,
                              const gpu::LaunchTarget& target) {
  return LaunchWaveGemmOf<BF16>(args, plan, target);
}

}  // namespace lamina::gemm_internal
