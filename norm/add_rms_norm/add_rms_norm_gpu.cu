#include "lamina/norm/norm_launch.cuh"

namespace lamina::norm_internal {
namespace {

template <class T, NormVariant kVariant>
__global__ void __launch_bounds__(MaxBlockLanes(kVariant))
    AddRmsNormKernel(NormArgs args) {
  RunNorm<T, kVariant, ResidualSource, RmsStatistics>(args);
}

struct AddRmsNormKernels {
  static constexpr int kReductions = RmsStatistics::kReductions;
  template <class T, NormVariant kVariant>
  static constexpr auto kKernel = &AddRmsNormKernel<T, kVariant>;
};

}  // namespace

gpu::Error LaunchAddRmsNorm(const NormArgs& args, const NormPlan& plan,
                            const gpu::LaunchTarget& target) {
  return LaunchNorm<AddRmsNormKernels>(args, plan, target);
}

}  // namespace lamina::norm_internal
