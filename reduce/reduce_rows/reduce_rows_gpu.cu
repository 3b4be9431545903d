#include "lamina/core/launch.cuh"
#include "lamina/core/launch_matching.cuh"
#include "lamina/reduce/reduce_rows/reduce_rows_kernel.cuh"

namespace lamina::reduce_internal {
namespace {

template <class T, std::size_t kIndex>
__global__ void __launch_bounds__(512)
    ReduceRowsKernel(ReduceRowsKernelArgs args) {
  constexpr auto kVariant = gpu::VariantAt<kReduceRowsVariants>(kIndex);
  if constexpr (gpu::kWaveRunsHere<kVariant.wave_size>) {
    ReduceRow<T, kVariant>(args).Run();
  }
}

template <class T, std::size_t kIndex>
gpu::Error LaunchVariant(ReduceRowsKernelArgs args, const ReduceRowsPlan& plan,
                         const gpu::LaunchTarget& target) {
  args.lanes = plan.split.lanes;
  return gpu::LaunchInParts(
      args.x.total_rows(), gpu::MaxRows(plan.split, gpu::kGridBlocks),
      [&](int64_t first, int64_t rows) {
        args.first_row = first;
        return gpu::Launch(&ReduceRowsKernel<T, kIndex>,
                           gpu::RowShape(plan.split, rows, /*reductions=*/2),
                           target, args);
      });
}

template <class T>
gpu::Error LaunchType(const ReduceRowsKernelArgs& args,
                      const ReduceRowsPlan& plan,
                      const gpu::LaunchTarget& target) {
  const ReduceRowsVariant wanted{.scope = plan.split.scope,
                                 .octets = plan.split.octets,
                                 .whole = plan.whole,
                                 .wave_size = target.wave_size};
  return gpu::LaunchMatching<kReduceRowsVariants>(
      wanted, [&]<std::size_t kIndex>() {
        return LaunchVariant<T, kIndex>(args, plan, target);
      });
}

}  // namespace

gpu::Error LaunchReduceRows(const ReduceRowsKernelArgs& args,
                            const ReduceRowsPlan& plan,
                            const gpu::LaunchTarget& target) {
  switch (args.x.dtype) {
    case DType::kF32:
      return LaunchType<float>(args, plan, target);
    case DType::kF16:
      return LaunchType<F16>(args, plan, target);
    case DType::kBF16:
      return LaunchType<BF16>(args, plan, target);
    default:
      return gpu::kNoKernel;
  }
}

}  // namespace lamina::reduce_internal
