#include "lamina/quant/to_quantized_args.h"

#include <bit>
#include <limits>

namespace lamina {
namespace {

uint8_t Log2(int64_t power_of_two) {
  return static_cast<uint8_t>(
      std::countr_zero(static_cast<uint64_t>(power_of_two)));
}

}  // namespace

ScaleArgs ToScaleArgs(const ScaleView& scales) {
  ScaleArgs args{.data = scales.data,
                 .dtype = scales.dtype,
                 .granularity = scales.granularity};
  switch (scales.granularity) {
    case ScaleGranularity::kPerTensor:
      break;
    case ScaleGranularity::kPerTile:
      args.row_shift = Log2(scales.block_rows);
      [[fallthrough]];
    case ScaleGranularity::kPerBlock:
      args.col_shift = Log2(scales.block_cols);
      args.col_stride = scales.col_stride;
      [[fallthrough]];
    case ScaleGranularity::kPerRow:
      args.row_stride = scales.row_stride;
      break;
  }
  return args;
}

ScaleArgs ToScaleArgs(const ConstScaleView& scales) {
  return ToScaleArgs(ScaleView{.data = const_cast<void*>(scales.data),
                               .dtype = scales.dtype,
                               .granularity = scales.granularity,
                               .block_cols = scales.block_cols,
                               .block_rows = scales.block_rows,
                               .row_stride = scales.row_stride,
                               .col_stride = scales.col_stride});
}

QuantizedArgs ToQuantizedArgs(const QuantizedOutput& out) {
  if (!out.has_value()) return {};
  const float qmax = ResolvedQmax(out);
  // FP8 conversions saturate to the largest value by themselves; int8 reaches
  // -128.
  const bool saturates = IsFp8(out.codes.dtype) && out.qmax == 0;
  return {.codes = Flattened(out.codes),
          .scales = ToScaleArgs(out.scales),
          .dynamic = out.dynamic,
          .round_before_quant = out.round_before_quant,
          .octets = RowsAreAligned(out.codes, 8),
          .clamp = out.dynamic && !saturates,
          .qmax = qmax,
          .inverse_qmax = 1.0f / qmax,
          .min_scale = MinScale(qmax),
          .scale_ub =
              out.scale_ub.value_or(std::numeric_limits<float>::infinity())};
}

}  // namespace lamina
