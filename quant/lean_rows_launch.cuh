#pragma once

// Launches of the lean kernels (quant/lean_rows.cuh).

#include <cstddef>
#include <cstdint>

#include "lamina/core/launch.cuh"
#include "lamina/core/launch_matching.cuh"
#include "lamina/quant/lean_rows.cuh"

namespace lamina::quant_internal {

template <std::size_t kIndex>
inline constexpr LeanRowsVariant kLeanRowsVariantAt =
    gpu::VariantAt<kLeanRowsVariants>(kIndex);

struct LeanRowsBounds {
  int lanes = 0;
  int blocks = 0;
};
template <class T, std::size_t kIndex>
inline constexpr LeanRowsBounds kLeanRowsBounds = {
    .lanes = MaxLanes(kLeanRowsVariantAt<kIndex>),
    .blocks = gpu::BlocksAUnit(
        BlocksAUnit(kLeanRowsVariantAt<kIndex>, DTypeOf<T>::value),
        MaxLanes(kLeanRowsVariantAt<kIndex>))};

// Kernels::Get<index>() is the kernel of a variant, of a source with
// Kernels::kInputs inputs of Kernels::Type. plan.blocks() <= MaxBlocks.
template <class Kernels>
gpu::Error LaunchLeanRows(LeanRowsArgs args, const LeanRowsPlan& plan,
                          const gpu::LaunchTarget& target) {
  args.blocks_log2 = static_cast<uint32_t>(plan.blocks_log2);
  args.blocks_mask = (1u << plan.blocks_log2) - 1;
  args.late_dependents = plan.late_dependents;
  args.type = DTypeOf<typename Kernels::Type>::value;
  args.output = plan.variant.output;
  LeanRowsVariant wanted = plan.variant;
  wanted.wave_size = target.wave_size;
  gpu::LaunchShape shape{.blocks = plan.blocks(), .threads = plan.lanes};
  if (wanted.output == LeanOutput::kPerRow) {
    const int64_t slots = wanted.many_rows ? 2 : 1;
    const int64_t waves =
        plan.lanes / target.wave_size * plan.row_blocks();  // of a row
    shape.cluster_blocks = static_cast<int>(plan.row_blocks());
    shape.shared_bytes = slots * waves * int64_t{sizeof(float)};
  }
  return gpu::LaunchMatching<kLeanRowsVariants>(
      wanted, [&]<std::size_t kIndex>() {
        if constexpr (kLeanRowsVariantAt<kIndex>.CompiledForInputs(
                          Kernels::kInputs)) {
          return gpu::Launch(Kernels::template Get<kIndex>(), shape, target,
                             args);
        }
        return gpu::kNoKernel;
      });
}

}  // namespace lamina::quant_internal
