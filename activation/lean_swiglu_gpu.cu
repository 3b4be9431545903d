#include "lamina/activation/lean_swiglu.cuh"
#include "lamina/core/launch.cuh"
#include "lamina/core/launch_matching.cuh"

namespace lamina::activation_internal {
namespace {

template <std::size_t kIndex>
inline constexpr LeanSwiGluVariant kLeanVariantAt =
    gpu::VariantAt<kLeanSwiGluVariants>(kIndex);

template <class T, std::size_t kIndex>
__global__ void __launch_bounds__(MaxLanes(kLeanVariantAt<kIndex>))
    LeanSwiGluKernel(LeanSwiGluArgs args) {
  LeanSwiGlu<T, kLeanVariantAt<kIndex>>(args).Run();
}

template <class T>
gpu::Error Launch(const LeanSwiGluArgs& args, const LeanSwiGluPlan& plan,
                  const gpu::LaunchTarget& target) {
  LeanSwiGluVariant wanted = plan.variant;
  wanted.wave_size = target.wave_size;
  gpu::LaunchShape shape{.blocks = plan.blocks(), .threads = plan.lanes};
  if (wanted.output == LeanOutput::kPerRow) {
    const int64_t slots = wanted.many_rows ? 2 : 1;
    const int64_t waves =
        plan.lanes / target.wave_size * plan.row_blocks();  // of a row
    shape.cluster_blocks = static_cast<int>(plan.row_blocks());
    shape.shared_bytes = slots * waves * int64_t{sizeof(float)};
  }
  return gpu::LaunchMatching<kLeanSwiGluVariants>(
      wanted, [&]<std::size_t kIndex>() {
        return gpu::Launch(&LeanSwiGluKernel<T, kIndex>, shape, target, args);
      });
}

}  // namespace

gpu::Error LaunchLeanSwiGlu(LeanSwiGluArgs args, DType type,
                            const LeanSwiGluPlan& plan,
                            const gpu::LaunchTarget& target) {
  args.blocks_log2 = static_cast<uint32_t>(plan.blocks_log2);
  args.blocks_mask = (1u << plan.blocks_log2) - 1;
  if (type == DType::kBF16) return Launch<BF16>(args, plan, target);
  if (type == DType::kF16) return Launch<F16>(args, plan, target);
  return gpu::kNoKernel;
}

}  // namespace lamina::activation_internal
