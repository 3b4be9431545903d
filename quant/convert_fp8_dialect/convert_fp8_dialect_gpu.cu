// The table of quant/convert_fp8_dialect.h, eight codes of a row a lane; scales
// one a thread. Bytes per element: 1 read, 1 written.

#include "lamina/core/launch.cuh"
#include "lamina/core/launch_matching.cuh"
#include "lamina/core/octet.cuh"
#include "lamina/core/span_lanes.cuh"
#include "lamina/quant/convert_fp8_dialect/convert_fp8_dialect_args.h"
#include "lamina/quant/convert_fp8_dialect/fp8_code_table.h"
#include "lamina/quant/fp8.cuh"
#include "lamina/quant/store_quantized.cuh"

namespace lamina::quant_internal {
namespace {

using gpu::kOctet;

constexpr int kScaleThreads = 128;

__device__ inline gpu::Bits64 ConvertOctet(const gpu::Bits64& codes,
                                           Fp8Format from, Fp8Format to) {
  gpu::Bits64 converted = {{0, 0}};
#pragma unroll
  for (int i = 0; i < kOctet; ++i) {
    const uint8_t code =
        static_cast<uint8_t>(codes.word[i / 4] >> (8 * (i % 4)));
    converted.word[i / 4] |=
        static_cast<uint32_t>(ConvertFp8Code(code, from, to)) << (8 * (i % 4));
  }
  return converted;
}

template <bool kWhole>
__global__ void __launch_bounds__(128)
    ConvertCodesKernel(ConvertCodesArgs args) {
  gpu::AllowDependents();
  const gpu::SpanLane lane(args.span, args.codes.total_rows(), args.codes.cols);
  gpu::WaitForPredecessor();
  int64_t col = lane.col();
  int left = lane.left();
  for (int k = 0; k < args.span.octets && left > 0; ++k) {
    const int count = left < kOctet ? left : kOctet;
    const uint8_t* const from = args.codes.Row<uint8_t>(lane.row()) + col;
    uint8_t* const to = args.out_codes.Row<uint8_t>(lane.row()) + col;
    const gpu::Bits64 codes = ConvertOctet(
        kWhole ? gpu::Load64(from) : gpu::LoadCodesUpTo(from, count), args.from,
        args.to);
    if constexpr (kWhole) {
      gpu::Store64(codes, to);
    } else {
      gpu::StoreCodesUpTo(codes, to, count);
    }
    col += lane.step();
    left -= lane.step();
  }
}

__global__ void __launch_bounds__(kScaleThreads)
    ConvertScalesKernel(ConvertScalesArgs args) {
  gpu::AllowDependents();
  gpu::WaitForPredecessor();
  const int64_t i = gpu::BlockIndex() * kScaleThreads + gpu::ThreadIndex();
  if (i >= args.rows * args.cols) return;
  const int64_t row = i / args.cols;
  const int64_t col = i - row * args.cols;
  const auto index = [&](const ScaleArgs& scales) {
    return row * scales.row_stride + col * scales.col_stride;
  };
  const float scale = gpu::LoadScale(args.scales, index(args.scales));
  gpu::StoreScale(args.out_scales, index(args.out_scales), scale * args.factor);
}

}  // namespace

gpu::Error LaunchConvertCodes(const ConvertCodesArgs& given,
                              const gpu::SpanSplit& split, bool whole,
                              const gpu::LaunchTarget& target) {
  ConvertCodesArgs args = given;
  args.span = gpu::ToSpanArgs(split, args.codes.cols);
  return gpu::LaunchInParts(
      args.codes.total_rows(), gpu::MaxRows(args.span, gpu::kGridBlocks),
      [&](int64_t first, int64_t rows) {
        args.span.first_row = first;
        return gpu::Launch(
            whole ? &ConvertCodesKernel<true> : &ConvertCodesKernel<false>,
            gpu::SpanShape(split, args.span, rows), target, args);
      });
}

gpu::Error LaunchConvertScales(const ConvertScalesArgs& args,
                               const gpu::LaunchTarget& target) {
  return gpu::Launch(&ConvertScalesKernel,
                     {.blocks = CeilDiv(args.rows * args.cols, kScaleThreads),
                      .threads = kScaleThreads},
                     target, args);
}

}  // namespace lamina::quant_internal
