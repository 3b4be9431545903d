#pragma once

// Dequantize: y = round_T(code * scale), the product in fp32 (one rounding),
// then one rounding to T (none for f32).
//
// Shapes    codes and y [batch, rows, cols], each with its own strides;
//           adjacent columns. Scales count flat rows; every granularity of
//           quant/scale.h, any scale strides, stride 0 included. A static
//           scale per output channel of a weight [channels, k] is kPerRow.
// Types     codes f8e4m3fn, f8e5m2, f8e4m3fnuz, f8e5m2fnuz or i8; scales f32
//           or f8e8m0; y f32, f16 or bf16.
// Values    NaN codes give NaN; a product too large for T gives ±Inf.
// Alignment one element each. Aliasing: y overlaps neither codes nor scales.
// Empty     zero rows or columns: OK, nothing is written.
// Result    equals the scalar rule bit for bit (NaN payloads aside) on every
//           target, for every number of threads; batch-invariant.
// Errors    InvalidArgument and Unimplemented as core/status.h says.
//
// Example:
//   absl::Status status = Dequantize(
//       {.codes = Matrix(codes.data(), rows, cols),
//        .scales = PerRow(scales.data()),
//        .y = Matrix(y.data(), rows, cols)},
//       Stream::Cpu());

#include "absl/status/status.h"
#include "lamina/core/stream.h"
#include "lamina/core/views.h"
#include "lamina/quant/scale.h"

namespace lamina {

struct DequantizeArgs {
  ConstMatrixView codes;
  ConstScaleView scales;
  MatrixView y;
};
[[nodiscard]] absl::Status Dequantize(const DequantizeArgs& args,
                                      Stream stream);

}  // namespace lamina
