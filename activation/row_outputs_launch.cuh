#pragma once

// From a plan to the kernel that was compiled for it, for one type of x. Each
// type has a file of its own: they are compiled side by side.

#include <bit>
#include <cstddef>

#include "lamina/activation/row_outputs.cuh"
#include "lamina/core/launch.cuh"
#include "lamina/core/launch_matching.cuh"

namespace lamina::activation_internal {

template <std::size_t kIndex>
inline constexpr RowKernelVariant kVariantAt =
    gpu::VariantAt<kRowKernelVariants>(kIndex);

template <class T, std::size_t kIndex>
__global__ void __launch_bounds__(MaxThreads(kVariantAt<kIndex>))
    ActivationKernel(RowKernelArgs args) {
  RunVariant<T, kVariantAt<kIndex>>(args);
}

// The grid of as many rows, from args.first_row on, as one launch takes.
struct RowKernelGrid {
  gpu::LaunchShape shape;
  int64_t rows = 0;
};

inline RowKernelGrid GridOf(const RowKernelArgs& args,
                            const RowKernelPlan& plan) {
  const int64_t left = args.x.total_rows() - args.first_row;
  if (plan.variant.kernel != RowKernel::kSpans) {
    const int64_t most = gpu::MaxRows(plan.split);
    const int64_t rows = left < most ? left : most;
    return {gpu::RowShape(plan.split, rows, /*reductions=*/1), rows};
  }
  const int64_t most = gpu::kMaxBlocks / args.spans.divisor * args.block_rows;
  const int64_t rows = left < most ? left : most;
  return {{.blocks = CeilDiv(rows, args.block_rows) * args.spans.divisor,
           .threads = plan.threads},
          rows};
}

template <class T>
gpu::Error LaunchRowKernelOf(RowKernelArgs args, const RowKernelPlan& plan,
                             const gpu::LaunchTarget& target) {
  if (plan.variant.kernel == RowKernel::kSpans) {
    args.lanes = plan.lanes;
    args.lanes_log2 = std::countr_zero(static_cast<unsigned>(plan.lanes));
    args.octets = plan.octets;
    args.block_rows = plan.threads / plan.lanes;
    args.spans = MakeFastDivisor(
        CeilDiv(args.cols, int64_t{8} * plan.lanes * plan.octets));
  } else {
    args.lanes = plan.split.lanes;
  }
  RowKernelVariant variant = plan.variant;
  variant.wave_size = target.wave_size;
  return gpu::LaunchMatching<kRowKernelVariants>(
      variant, [&]<std::size_t kIndex>() {
        while (args.first_row < args.x.total_rows()) {
          const RowKernelGrid grid = GridOf(args, plan);
          const gpu::Error error = gpu::Launch(&ActivationKernel<T, kIndex>,
                                               grid.shape, target, args);
          if (!error.ok()) return error;
          args.first_row += grid.rows;
        }
        return gpu::Error{};
      });
}

}  // namespace lamina::activation_internal
