#include "lamina/core/launch.cuh"
#include "lamina/core/launch_matching.cuh"
#include "lamina/tokens/embed_rows/embed_rows_kernel.cuh"

namespace lamina::tokens_internal {
namespace {

template <class From, class To>
__global__ void __launch_bounds__(kEmbedRowsLanes)
    EmbedRowsKernel(EmbedRowsKernelArgs args) {
  EmbedOctet<From, To>(args);
}

template <class From, class To>
gpu::Error LaunchTypes(EmbedRowsKernelArgs args,
                       const gpu::LaunchTarget& target) {
  const int64_t most =
      gpu::MaxBlocks(kEmbedRowsLanes, gpu::kGridBlocks) / args.row_blocks;
  return gpu::LaunchInParts(
      args.y.rows, most, [&](int64_t first, int64_t rows) {
        args.first_row = first;
        return gpu::Launch(
            &EmbedRowsKernel<From, To>,
            {.blocks = rows * args.row_blocks, .threads = kEmbedRowsLanes},
            target, args);
      });
}

template <class From>
gpu::Error LaunchFrom(const EmbedRowsKernelArgs& args,
                      const gpu::LaunchTarget& target) {
  switch (args.y.dtype) {
    case DType::kF32:
      return LaunchTypes<From, float>(args, target);
    case DType::kF16:
      return LaunchTypes<From, F16>(args, target);
    case DType::kBF16:
      return LaunchTypes<From, BF16>(args, target);
    default:
      return gpu::kNoKernel;
  }
}

}  // namespace

gpu::Error LaunchEmbedRows(const EmbedRowsKernelArgs& args,
                           const gpu::LaunchTarget& target) {
  switch (args.table.dtype) {
    case DType::kF32:
      return LaunchFrom<float>(args, target);
    case DType::kF16:
      return LaunchFrom<F16>(args, target);
    case DType::kBF16:
      return LaunchFrom<BF16>(args, target);
    default:
      return gpu::kNoKernel;
  }
}

}  // namespace lamina::tokens_internal
