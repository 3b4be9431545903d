#include "lamina/activation/row_outputs.h"

#include <string>

#include "lamina/core/status.h"

namespace lamina::activation_internal {

absl::Status CheckRowOutputs(const char* op, const RowOutputs& out,
                             const ConstMatrixView& x, int64_t cols,
                             bool in_place_ok) {
  const bool empty = x.total_rows() == 0 || cols == 0;
  if (!empty && !out.y.has_value() && !out.quantized.has_value()) {
    return InvalidArgument(op, "y", std::string("no output"),
                           "y, quantized or both");
  }
  if (out.y.has_value()) {
    LAMINA_RETURN_IF_ERROR(CheckDType(op, "y", out.y.dtype, x.dtype));
    LAMINA_RETURN_IF_ERROR(CheckShape(op, "y", out.y, x.batch, x.rows, cols));
    LAMINA_RETURN_IF_ERROR(CheckOverlap(op, "y", out.y, "x", x, in_place_ok));
  }
  if (!out.quantized.has_value()) return absl::OkStatus();
  LAMINA_RETURN_IF_ERROR(CheckRowwiseQuantizedOutput(
      op, "quantized", out.quantized, x.batch, x.rows, cols));
  LAMINA_RETURN_IF_ERROR(
      CheckQuantizedOverlap(op, "quantized", out.quantized, "x", x));
  if (!out.y.has_value()) return absl::OkStatus();
  LAMINA_RETURN_IF_ERROR(
      CheckQuantizedOverlap(op, "quantized", out.quantized, "y", out.y));
  // Static scales are read while y is written.
  return CheckOverlap(op, "y", out.y, "quantized.scales",
                      ScaleGridView(out.quantized.scales, x.total_rows(), cols),
                      /*in_place_ok=*/false);
}

}  // namespace lamina::activation_internal
