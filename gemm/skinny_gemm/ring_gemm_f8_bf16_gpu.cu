#include "lamina/gemm/skinny_gemm/ring_gemm_launch.cuh"

namespace lamina::gemm_internal {

gpu::Error LaunchRingGemmF8BF16(const RingGemmArgs& args,
                                const gpu::LaunchTarget& target) {
  return LaunchRingGemmOf<RingTypes::kF8BF16>(args, target);
}

}  // namespace lamina::gemm_internal
