#include "lamina/quant/lean_rows_gpu.h"

#include "lamina/quant/lean_rows_policy.h"

namespace lamina::quant_internal {
namespace {

bool FitsUint32(int64_t value) { return value >= 0 && value < 1LL << 32; }

}  // namespace

bool IsLean(const ConstMatrixView& view) {
  return view.batch == 1 && FitsUint32(BytesFor(view.dtype, view.row_stride));
}

uint32_t LeanPitch(const ConstMatrixView& view) {
  return static_cast<uint32_t>(BytesFor(view.dtype, view.row_stride));
}

std::optional<LeanOutput> LeanOutputOf(const MatrixView& y,
                                       const QuantizedArgs& quantized) {
  if (y.has_value() == quantized.has_value()) return std::nullopt;
  if (y.has_value()) return LeanOutput::kY;
  if (quantized.round_before_quant || quantized.scales.dtype != DType::kF32) {
    return std::nullopt;
  }
  const auto when = [](bool condition, LeanOutput output) {
    return condition ? std::optional(output) : std::nullopt;
  };
  switch (quantized.scales.granularity) {
    case ScaleGranularity::kPerTensor:
      return when(!quantized.dynamic, LeanOutput::kStatic);
    case ScaleGranularity::kPerRow:
      return when(quantized.dynamic, LeanOutput::kPerRow);
    case ScaleGranularity::kPerBlock:
      return when(quantized.dynamic, LeanOutput::kPerBlock);
    case ScaleGranularity::kPerTile:
      return std::nullopt;
  }
  return std::nullopt;
}

std::optional<LeanRowsCall> SelectLeanRows(const LeanRowsInput& input,
                                           const MatrixView& y,
                                           const QuantizedArgs& quantized,
                                           const DeviceInfo& device) {
  const std::optional<LeanOutput> output = LeanOutputOf(y, quantized);
  const ConstMatrixView& x = input.x;
  const MatrixView& out = y.has_value() ? y : quantized.codes;
  if (!output.has_value() || !IsLean(x) || !IsLean(out) ||
      (x.dtype != DType::kF16 && x.dtype != DType::kBF16)) {
    return std::nullopt;
  }
  const ScaleArgs& scales = quantized.scales;
  if (quantized.has_value() &&
      (quantized.codes.dtype != device.fp8 || quantized.clamp ||
       !FitsUint32(scales.row_stride) || !FitsUint32(scales.col_stride))) {
    return std::nullopt;
  }
  const int inputs = input.up == nullptr ? 1 : 2;
  const std::optional<LeanRowsPlan> plan = SelectLeanRowsPlan(
      *output, x.rows, input.cols, inputs, x.dtype, gpu::RowArchOf(device));
  if (!plan.has_value()) return std::nullopt;
  return LeanRowsCall{
      .args = {.x = input.first,
               .up = input.up,
               .out = out.data,
               .scales = static_cast<float*>(scales.data),
               .x_pitch = LeanPitch(x),
               .out_pitch = LeanPitch(out),
               .rows = static_cast<uint32_t>(x.rows),
               .cols = static_cast<int32_t>(input.cols),
               .qmax = quantized.qmax,
               .inverse_qmax = quantized.inverse_qmax,
               .min_scale = quantized.min_scale,
               .scale_ub = quantized.scale_ub,
               .col_shift = scales.col_shift,
               .scale_row_stride = static_cast<uint32_t>(scales.row_stride),
               .scale_col_stride = static_cast<uint32_t>(scales.col_stride)},
      .plan = *plan};
}

}  // namespace lamina::quant_internal
