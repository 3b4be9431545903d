#include "lamina/norm/norm_launch.cuh"

namespace lamina::norm_internal {
namespace {

template <class T, NormVariant kVariant>
__global__ void __launch_bounds__(MaxBlockLanes(kVariant))
    LayerNormKernel(NormArgs args) {
  RunNorm<T, kVariant, PlainSource, LayerStatistics>(args);
}

struct LayerNormKernels {
  static constexpr int kReductions = LayerStatistics::kReductions;
  template <class T, NormVariant kVariant>
  static constexpr auto kKernel = &LayerNormKernel<T, kVariant>;
};

}  // namespace

gpu::Error LaunchLayerNorm(const NormArgs& args, const NormPlan& plan,
                           const gpu::LaunchTarget& target) {
  return LaunchNorm<LayerNormKernels>(args, plan, target);
}

}  // namespace lamina::norm_internal
