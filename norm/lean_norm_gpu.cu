#include <type_traits>

#include "lamina/core/launch.cuh"
#include "lamina/core/launch_matching.cuh"
#include "lamina/norm/lean_norm_row.cuh"

namespace lamina::norm_internal {
namespace {

template <std::size_t kIndex>
inline constexpr LeanNormVariant kVariantAt =
    gpu::VariantAt<kLeanNormVariants>(kIndex);
template <std::size_t kIndex, bool kResidual>
inline constexpr LeanNormBounds kBounds = BoundsOf(kVariantAt<kIndex>,
                                                   kResidual);

template <class T, bool kResidual, std::size_t kIndex>
__global__ void __launch_bounds__((kBounds<kIndex, kResidual>.lanes),
                                  (kBounds<kIndex, kResidual>.blocks))
    LeanNormKernel(LeanNormArgs args) {
  if constexpr (gpu::kWaveRunsHere<kVariantAt<kIndex>.wave_size>) {
    LeanNormRow<T, kVariantAt<kIndex>, kResidual>(args).Run();
  }
}

template <class T, bool kResidual>
gpu::Error Launch(LeanNormArgs args, const LeanNormPlan& plan,
                  LeanOutput output, const gpu::LaunchTarget& target) {
  const LeanNormVariant wanted{.scope = plan.split.scope,
                               .octets = plan.split.octets,
                               .output = output,
                               .many_rows = plan.many_rows,
                               .wave_size = target.wave_size};
  args.lanes = plan.split.lanes;
  args.late_dependents = plan.late_dependents;
  args.type = DTypeOf<T>::value;
  args.output = output;
  // A sum and a maximum, twice with many_rows.
  gpu::LaunchShape shape =
      gpu::RowShape(plan.split, args.rows, plan.many_rows ? 4 : 2);
  if (plan.many_rows && plan.blocks < shape.blocks) shape.blocks = plan.blocks;
  return gpu::LaunchMatching<kLeanNormVariants>(
      wanted, [&]<std::size_t kIndex>() {
        constexpr bool kF32 = std::is_same_v<T, float>;
        if constexpr (kVariantAt<kIndex>.CompiledForType(kF32)) {
          return gpu::Launch(&LeanNormKernel<T, kResidual, kIndex>, shape,
                             target, args);
        }
        return gpu::kNoKernel;
      });
}

}  // namespace

gpu::Error LaunchLeanNorm(const LeanNormArgs& args, DType type,
                          const LeanNormPlan& plan, LeanOutput output,
                          const gpu::LaunchTarget& target) {
  const bool residual = args.residual != nullptr;
  if (type == DType::kBF16) {
    return residual ? Launch<BF16, true>(args, plan, output, target)
                    : Launch<BF16, false>(args, plan, output, target);
  }
  if (type == DType::kF16) {
    return residual ? Launch<F16, true>(args, plan, output, target)
                    : Launch<F16, false>(args, plan, output, target);
  }
  if (type == DType::kF32) {
    return residual ? Launch<float, true>(args, plan, output, target)
                    : Launch<float, false>(args, plan, output, target);
  }
  return gpu::kNoKernel;
}

}  // namespace lamina::norm_internal
