// y = round_T(code * scale). A lane owns octets of a span of a row; blocks of
// columns are multiples of 8, so that an octet has one scale. Bytes per
// element: 1 read, 4 or 2 written.

#include "lamina/core/launch.cuh"
#include "lamina/core/launch_matching.cuh"
#include "lamina/core/octet.cuh"
#include "lamina/core/span_lanes.cuh"
#include "lamina/quant/dequantize/dequantize_args.h"
#include "lamina/quant/fp8.cuh"
#include "lamina/quant/store_quantized.cuh"

namespace lamina::quant_internal {
namespace {

using gpu::kOctet;
using gpu::Octet;

template <class T, bool kWhole>
__device__ inline void DequantizeOctet(const DequantizeKernelArgs& args,
                                       int64_t row, int64_t col, int count) {
  const uint8_t* const from = args.codes.Row<uint8_t>(row) + col;
  T* const to = args.y.Row<T>(row) + col;
  const float scale = gpu::LoadScale(args.scales, args.scales.Index(row, col));
  const Octet codes = gpu::DecodeOctet(
      args.codes.dtype,
      kWhole ? gpu::Load64(from) : gpu::LoadCodesUpTo(from, count));
  const Octet y = gpu::Map(codes, [&](float v) { return v * scale; });
  if constexpr (kWhole) {
    gpu::StoreOctet(y, to);
  } else {
    gpu::StoreOctetUpTo(y, to, count);
  }
}

template <class T, bool kWhole>
__global__ void __launch_bounds__(128)
    DequantizeKernel(DequantizeKernelArgs args) {
  gpu::AllowDependents();
  const gpu::SpanLane lane(args.span, args.y.total_rows(), args.y.cols);
  gpu::WaitForPredecessor();
  int64_t col = lane.col();
  int left = lane.left();
  for (int k = 0; k < args.span.octets && left > 0; ++k) {
    DequantizeOctet<T, kWhole>(args, lane.row(), col,
                               left < kOctet ? left : kOctet);
    col += lane.step();
    left -= lane.step();
  }
}

template <class T>
gpu::Error LaunchType(DequantizeKernelArgs args, const gpu::SpanSplit& split,
                      bool whole, const gpu::LaunchTarget& target) {
  args.span = gpu::ToSpanArgs(split, args.y.cols);
  return gpu::LaunchInParts(
      args.y.total_rows(), gpu::MaxRows(args.span, gpu::kGridBlocks),
      [&](int64_t first, int64_t rows) {
        args.span.first_row = first;
        return gpu::Launch(
            whole ? &DequantizeKernel<T, true> : &DequantizeKernel<T, false>,
            gpu::SpanShape(split, args.span, rows), target, args);
      });
}

}  // namespace

gpu::Error LaunchDequantize(const DequantizeKernelArgs& args,
                            const gpu::SpanSplit& split, bool whole,
                            const gpu::LaunchTarget& target) {
  switch (args.y.dtype) {
    case DType::kF32:
      return LaunchType<float>(args, split, whole, target);
    case DType::kF16:
      return LaunchType<F16>(args, split, whole, target);
    case DType::kBF16:
      return LaunchType<BF16>(args, split, whole, target);
    default:
      return gpu::kNoKernel;
  }
}

}  // namespace lamina::quant_internal
