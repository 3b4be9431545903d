#pragma once

// How Quantize is split over a GPU: plain values, no GPU needed.

#include "lamina/quant/quantize/quantize_args.h"

namespace lamina::quant_internal {

struct QuantizeShape {
  int64_t rows = 0;
  int64_t cols = 0;
  bool whole = false;  // as in QuantizeVariant
};

// A pass for the maxima of a tensor: at most so many parts, so that every block
// of the second pass can read them all.
inline constexpr gpu::SpanSplit kAmaxSplit{
    .threads = kTileThreads, .lanes = kTileThreads, .octets = 1};
inline constexpr int64_t kMaxPartials = 512;
constexpr gpu::SpanSplit SelectAmaxSplit(int64_t cols) {
  gpu::SpanSplit split = kAmaxSplit;
  while (split.lanes > 1 && int64_t{split.lanes / 2} * 8 >= cols) {
    split.lanes /= 2;
  }
  return split;
}
constexpr int64_t NumPartials(int64_t rows, int64_t cols) {
  const gpu::SpanSplit split = SelectAmaxSplit(cols);
  const int64_t blocks =
      gpu::SpanShape(split, gpu::ToSpanArgs(split, cols), rows).blocks;
  return blocks < kMaxPartials ? blocks : kMaxPartials;
}

constexpr QuantizePlan SelectAmaxPlan(const QuantizeShape& shape) {
  return {.variant = {.kernel = QuantizeKernel::kAmax, .whole = shape.whole},
          .span = SelectAmaxSplit(shape.cols)};
}
constexpr QuantizePlan SelectQuantizeSpans(const QuantizeShape& shape,
                                           const gpu::RowArch& arch) {
  return {.variant = {.whole = shape.whole},
          .span = gpu::SelectSpanSplit(shape.rows, shape.cols, arch.units)};
}
constexpr QuantizePlan SelectQuantizeTiles(const QuantizeShape& shape) {
  return {.variant = {.kernel = QuantizeKernel::kTile, .whole = shape.whole}};
}
constexpr QuantizePlan SelectQuantizeRows(const QuantizeShape& shape,
                                          const gpu::RowArch& arch) {
  gpu::RowSplit split = gpu::SelectRowSplit(shape.rows, shape.cols, arch);
  const auto lanes_up_to = [&](int64_t most) {
    const int64_t lanes = RoundUp(CeilDiv(shape.cols, 16), 128);
    return static_cast<int>(lanes < most ? lanes : most);
  };
  if (split.scope == gpu::RowScope::kBlock || split.octets > 2) {
    split = {.scope = gpu::RowScope::kBlock,
             .octets = 2,
             .lanes = lanes_up_to(1024)};
  }
  if (shape.whole && split.columns() >= shape.cols) {
    return {.variant = {.kernel = QuantizeKernel::kRow,
                        .scope = split.scope,
                        .octets = split.octets},
            .split = split};
  }
  // Element by element, or too long.
  return {.variant = {.kernel = QuantizeKernel::kLongRow,
                      .scope = gpu::RowScope::kBlock,
                      .octets = 2,
                      .whole = false},
          .split = {.scope = gpu::RowScope::kBlock,
                    .octets = 2,
                    .lanes = lanes_up_to(512)}};
}

}  // namespace lamina::quant_internal
