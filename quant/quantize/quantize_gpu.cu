#include <cstddef>

#include "lamina/core/launch.cuh"
#include "lamina/core/launch_matching.cuh"
#include "lamina/quant/quantize/quantize_kernel.cuh"

namespace lamina::quant_internal {
namespace {

template <std::size_t kIndex>
inline constexpr QuantizeVariant kVariantAt =
    gpu::VariantAt<kQuantizeVariants>(kIndex);

template <class T, std::size_t kIndex>
__global__ void __launch_bounds__(MaxThreads(kVariantAt<kIndex>))
    QuantizeKernelOf(QuantizeKernelArgs args) {
  RunQuantize<T, kVariantAt<kIndex>>(args);
}

// Memory of one reduction of a block.
constexpr int64_t BlockSharedBytes(int threads) {
  return threads / 32 * int64_t{sizeof(float)};
}

gpu::LaunchShape ShapeOf(QuantizeKernelArgs& args, const QuantizePlan& plan,
                         int64_t rows) {
  switch (plan.variant.kernel) {
    case QuantizeKernel::kRow:
    case QuantizeKernel::kLongRow:
      return gpu::RowShape(plan.split, rows, /*reductions=*/1);
    case QuantizeKernel::kTile:
      return {.blocks = CeilDiv(rows, 128) * CeilDiv(args.x.cols, 128),
              .threads = kTileThreads,
              .shared_bytes = BlockSharedBytes(kTileThreads)};
    case QuantizeKernel::kAmax: {
      args.span_blocks = gpu::SpanShape(plan.span, args.span, rows).blocks;
      return {.blocks = args.num_partials,
              .threads = plan.span.threads,
              .shared_bytes = BlockSharedBytes(plan.span.threads)};
    }
    case QuantizeKernel::kSpans:
      break;
  }
  gpu::LaunchShape shape = gpu::SpanShape(plan.span, args.span, rows);
  shape.shared_bytes = BlockSharedBytes(shape.threads);
  return shape;
}

// Rows of one launch. What rows share is one launch.
int64_t MostRows(const QuantizeKernelArgs& args, const QuantizePlan& plan) {
  switch (plan.variant.kernel) {
    case QuantizeKernel::kRow:
    case QuantizeKernel::kLongRow:
      return gpu::MaxRows(plan.split, gpu::kGridBlocks);
    case QuantizeKernel::kSpans:
      return gpu::MaxRows(args.span, gpu::kGridBlocks);
    case QuantizeKernel::kTile:
    case QuantizeKernel::kAmax:
      break;
  }
  return args.x.total_rows();
}

template <class T>
gpu::Error LaunchType(QuantizeKernelArgs args, const QuantizePlan& plan,
                      const gpu::LaunchTarget& target) {
  args.span = gpu::ToSpanArgs(plan.span, args.x.cols);
  args.lanes = plan.split.lanes;
  QuantizeVariant variant = plan.variant;
  variant.wave_size = target.wave_size;
  return gpu::LaunchMatching<kQuantizeVariants>(
      variant, [&]<std::size_t kIndex>() {
        return gpu::LaunchInParts(
            args.x.total_rows(), MostRows(args, plan),
            [&](int64_t first, int64_t rows) {
              args.first_row = args.span.first_row = first;
              const gpu::LaunchShape shape = ShapeOf(args, plan, rows);
              return gpu::Launch(&QuantizeKernelOf<T, kIndex>, shape, target,
                                 args);
            });
      });
}

}  // namespace

gpu::Error LaunchQuantize(const QuantizeKernelArgs& args,
                          const QuantizePlan& plan,
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

}  // namespace lamina::quant_internal
