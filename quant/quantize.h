#pragma once

#include "absl/status/status.h"
#include "lamina/core/stream.h"
#include "lamina/core/views.h"
#include "lamina/quant/scale.h"

namespace lamina {

struct QuantizeArgs {
  ConstMatrixView x;      // [batch, rows, cols], f32, f16 or bf16
  QuantizedOutput out;    // same shape; any granularity, static or dynamic
};
[[nodiscard]] absl::Status Quantize(const QuantizeArgs& args, Stream stream);

struct DequantizeArgs {
  ConstMatrixView codes;  // FP8 or i8
  ConstScaleView scales;
  MatrixView y;           // f32, f16 or bf16: round_T(code * scale)
};
[[nodiscard]] absl::Status Dequantize(const DequantizeArgs& args,
                                      Stream stream);

struct ConvertFp8DialectArgs {
  ConstMatrixView codes;
  ConstScaleView scales;  // optional, kF32
  MatrixView out_codes;   // the other dialect of the same split (E4M3, E5M2)
  ScaleView out_scales;   // as scales, same granularity
};
[[nodiscard]] absl::Status ConvertFp8Dialect(const ConvertFp8DialectArgs& args,
                                             Stream stream);

}  // namespace lamina
