#pragma once

#include "absl/status/status.h"
#include "lamina/core/stream.h"
#include "lamina/core/views.h"
#include "lamina/quant/scale.h"

namespace lamina {

struct AddRmsNormArgs {
  ConstMatrixView x;         // [batch, rows, cols]: T
  ConstMatrixView residual;  // T
  MatrixView residual_out;   // T: z = round_T(x + residual); may be residual
  ConstVectorView weight;
  bool weight_plus_one = false;
  float epsilon = 1e-5f;
  MatrixView y;              // T; optional when `quantized` is given; may be x
  QuantizedOutput quantized;
};
[[nodiscard]] absl::Status AddRmsNorm(const AddRmsNormArgs& args,
                                      Stream stream);

}  // namespace lamina
