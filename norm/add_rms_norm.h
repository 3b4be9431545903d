#pragma once

// AddRmsNorm: the residual addition and the RmsNorm after it, in one pass.
//
//   // hidden += attention; normed = RmsNorm(hidden)
//   MatrixView hidden_view = Matrix(hidden, tokens, hidden_dim);
//   absl::Status status =
//       AddRmsNorm({.x = Matrix(attention, tokens, hidden_dim),
//                   .residual = hidden_view,
//                   .residual_out = hidden_view,
//                   .weight = Vector(gamma, hidden_dim),
//                   .y = Matrix(normed, tokens, hidden_dim)},
//                  stream);
//
// The rule: z_i = round_T(x_i + residual_i), added in fp32; z is stored in
// residual_out, and y and quantized are RmsNorm of the *rounded* z (rule,
// special values, accuracy and quantised output: norm/rms_norm.h). So the
// result equals an addition followed by RmsNorm bit for bit.
//
// Shapes: x, residual, residual_out, y and quantized.codes are [batch, rows,
// cols], each with strides of its own, alignment of one element.
// Aliasing: residual_out may be residual or x; y may be x or residual, when
// residual_out is not the same (always the very view). Other outputs overlap
// nothing.
// Determinism, errors: as RmsNorm; the types are AddRmsNormTable's
// (norm/add_rms_norm/add_rms_norm_policy.h).

#include "absl/status/status.h"
#include "lamina/core/stream.h"
#include "lamina/core/views.h"
#include "lamina/quant/scale.h"

namespace lamina {

struct AddRmsNormArgs {
  ConstMatrixView x;            // [batch, rows, cols]: T in {f32, f16, bf16}
  ConstMatrixView residual;     // T
  MatrixView residual_out;      // T: z = round_T(x + residual); may be residual
  ConstVectorView weight = {};  // [cols]: T or f32; optional
  bool weight_plus_one = false;  // Gemma: multiply by 1 + w, formed in fp32
  float epsilon = 1e-5f;
  MatrixView y = {};  // T; optional when `quantized` is given; may be x
  QuantizedOutput quantized = {};  // optional
};
[[nodiscard]] absl::Status AddRmsNorm(const AddRmsNormArgs& args,
                                      Stream stream);

}  // namespace lamina
