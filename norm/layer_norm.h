#pragma once

#include "absl/status/status.h"
#include "lamina/core/stream.h"
#include "lamina/core/views.h"
#include "lamina/quant/scale.h"

namespace lamina {

struct LayerNormArgs {
  ConstMatrixView x;       // [batch, rows, cols]: T
  ConstVectorView weight;  // optional
  ConstVectorView bias;    // optional
  bool weight_plus_one = false;
  float epsilon = 1e-5f;
  MatrixView y;
  QuantizedOutput quantized;
};
[[nodiscard]] absl::Status LayerNorm(const LayerNormArgs& args, Stream stream);

}  // namespace lamina
