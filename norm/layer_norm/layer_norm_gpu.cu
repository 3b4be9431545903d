#include "lamina/norm/norm_launch.cuh"

namespace lamina::norm_internal {
namespace {

template <class T, std::size_t kIndex>
__global__ void __launch_bounds__(MaxBlockLanes(kVariantAt<kIndex>),
                                  MinBlocks<T, LayerStatistics>())
    LayerNormKernel(NormArgs args) {
  RunNorm<T, kVariantAt<kIndex>, PlainSource, LayerStatistics>(args);
}

struct LayerNormKernels {
  static constexpr int kReductions = LayerStatistics::kReductions;
  template <class T, std::size_t kIndex>
  static constexpr auto kKernel = &LayerNormKernel<T, kIndex>;
};

}  // namespace

gpu::Error LaunchLayerNorm(const NormArgs& args, const NormPlan& plan,
                           const gpu::LaunchTarget& target) {
  return LaunchNorm<LayerNormKernels>(args, plan, target);
}

}  // namespace lamina::norm_internal
