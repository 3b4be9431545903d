#include "lamina/norm/norm_launch.cuh"

namespace lamina::norm_internal {
namespace {

template <class T, std::size_t kIndex>
__global__ void __launch_bounds__(MaxBlockLanes(kVariantAt<kIndex>),
                                  MinBlocks<T, RmsStatistics>())
    RmsNormKernel(NormArgs args) {
  RunNorm<T, kVariantAt<kIndex>, PlainSource, RmsStatistics>(args);
}

struct RmsNormKernels {
  static constexpr int kReductions = RmsStatistics::kReductions;
  template <class T, std::size_t kIndex>
  static constexpr auto kKernel = &RmsNormKernel<T, kIndex>;
};

}  // namespace

gpu::Error LaunchRmsNorm(const NormArgs& args, const NormPlan& plan,
                         const gpu::LaunchTarget& target) {
  return LaunchNorm<RmsNormKernels>(args, plan, target);
}

}  // namespace lamina::norm_internal
