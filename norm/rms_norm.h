#pragma once

#include "absl/status/status.h"
#include "lamina/core/stream.h"
#include "lamina/core/views.h"
#include "lamina/quant/scale.h"

namespace lamina {

struct RmsNormArgs {
  ConstMatrixView x;        // [batch, rows, cols]: T in {f32, f16, bf16}
  ConstVectorView weight;   // [cols]: T or f32; optional
  bool weight_plus_one = false;  // Gemma: multiply by 1 + w, formed in fp32
  float epsilon = 1e-5f;
  MatrixView y;             // T; optional when `quantized` is given
  QuantizedOutput quantized;  // optional
};
[[nodiscard]] absl::Status RmsNorm(const RmsNormArgs& args, Stream stream);

}  // namespace lamina
