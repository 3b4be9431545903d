#include "lamina/norm/norm_launch.cuh"

namespace lamina::norm_internal {
namespace {

template <class T, std::size_t kIndex>
__global__ void __launch_bounds__(MaxBlockLanes(kVariantAt<kIndex>),
                                  MinBlocks<T, RmsStatistics>())
    AddRmsNormKernel(NormArgs args) {
  RunNorm<T, kVariantAt<kIndex>, ResidualSource, RmsStatistics>(args);
}

struct AddRmsNormKernels {
  static constexpr int kReductions = RmsStatistics::kReductions;
  template <class T, std::size_t kIndex>
  static constexpr auto kKernel = &AddRmsNormKernel<T, kIndex>;
};

}  // namespace

gpu::Error LaunchAddRmsNorm(const NormArgs& args, const NormPlan& plan,
                            const gpu::LaunchTarget& target) {
  return LaunchNorm<AddRmsNormKernels>(args, plan, target);
}

}  // namespace lamina::norm_internal
