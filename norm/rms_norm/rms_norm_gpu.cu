#include "lamina/norm/norm_launch.cuh"

namespace lamina::norm_internal {
namespace {

template <class T, NormVariant kVariant>
__global__ void __launch_bounds__(MaxBlockLanes(kVariant))
    RmsNormKernel(NormArgs args) {
  RunNorm<T, kVariant, PlainSource, RmsStatistics>(args);
}

struct RmsNormKernels {
  static constexpr int kReductions = RmsStatistics::kReductions;
  template <class T, NormVariant kVariant>
  static constexpr auto kKernel = &RmsNormKernel<T, kVariant>;
};

}  // namespace

gpu::Error LaunchRmsNorm(const NormArgs& args, const NormPlan& plan,
                         const gpu::LaunchTarget& target) {
  return LaunchNorm<RmsNormKernels>(args, plan, target);
}

}  // namespace lamina::norm_internal
