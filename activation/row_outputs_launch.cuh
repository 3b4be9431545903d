#pragma once

// From a plan to the kernel that was compiled for it, for one type of x. Each
// type has a file of its own: they are compiled side by side.

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

template <class T>
gpu::Error LaunchRowKernelOf(RowKernelArgs args, const RowKernelPlan& plan,
                             const gpu::LaunchTarget& target) {
  const bool spans = plan.variant.kernel == RowKernel::kSpans;
  args.span = gpu::ToSpanArgs(plan.span, args.cols);
  args.lanes = plan.split.lanes;
  const int64_t rows = args.x.total_rows();
  const int64_t most = spans ? gpu::MaxRows(args.span, gpu::kGridBlocks)
                             : gpu::MaxRows(plan.split, gpu::kGridBlocks);
  RowKernelVariant variant = plan.variant;
  variant.wave_size = target.wave_size;
  return gpu::LaunchMatching<kRowKernelVariants>(
      variant, [&]<std::size_t kIndex>() {
        return gpu::LaunchInParts(
            rows, most, [&](int64_t first, int64_t count) {
              args.first_row = args.span.first_row = first;
              return gpu::Launch(
                  &ActivationKernel<T, kIndex>,
                  spans ? gpu::SpanShape(plan.span, args.span, count)
                        : gpu::RowShape(plan.split, count, /*reductions=*/1),
                  target, args);
            });
      });
}

}  // namespace lamina::activation_internal
