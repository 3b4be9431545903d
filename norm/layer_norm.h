#pragma once

// LayerNorm: y = (x - mean) / deviation * weight + bias, row by row.
//
//   absl::Status status = LayerNorm({.x = Matrix(hidden, tokens, hidden_dim),
//                                    .weight = Vector(gamma, hidden_dim),
//                                    .bias = Vector(beta, hidden_dim),
//                                    .y = Matrix(normed, tokens, hidden_dim)},
//                                   stream);
//
// The rule, the same on every backend (fp32 throughout, each operation rounded
// on its own, none fused); two passes, so that a large mean costs no accuracy:
//   mean     = canonical_sum(x_i) / float(cols)         (core/simd-inl.h)
//   d_i      = x_i - mean
//   variance = canonical_sum(d_i * d_i) / float(cols)
//   rstd     = 1 / sqrt(variance + epsilon)  exactly rounded root and division
//   v_i      = (d_i * rstd) * w_i + b_i      w_i, or 1 + w_i with
//                                            weight_plus_one; without a weight
//                                            or a bias that step is left out
//   y_i      = round_T(v_i)                  to nearest, ties to even
//   quantized: of v_i, or of y_i with round_before_quant  (quant/scale.h)
// Formula: Ba, Kiros and Hinton, "Layer Normalization" (2016).
//
// Shapes, quantised output, determinism: as RmsNorm (norm/rms_norm.h). bias is
// [cols] and has the type of weight (T or f32).
// Aliasing: y may be x (the very view). Other outputs overlap nothing.
// Special values: a NaN or ±Inf makes its whole row NaN. A constant row whose
// mean is exact gives v_i = b_i (epsilon > 0); with epsilon = 0 it is NaN.
// Accuracy: d_i carries the error of the mean, at most (cols / 256 + 10) *
// 2^-24 * mean|x|; all other steps add a relative error of at most
// (cols / 512 + 14) * 2^-24 to v_i - b_i, and the last addition rounds once.
// Errors: as RmsNorm; the types are LayerNormTable's
// (norm/layer_norm/layer_norm_policy.h).

#include "absl/status/status.h"
#include "lamina/core/stream.h"
#include "lamina/core/views.h"
#include "lamina/quant/scale.h"

namespace lamina {

struct LayerNormArgs {
  ConstMatrixView x;             // [batch, rows, cols]: T in {f32, f16, bf16}
  ConstVectorView weight = {};   // [cols]: T or f32; optional
  ConstVectorView bias = {};     // [cols]: the type of weight; optional
  bool weight_plus_one = false;  // multiply by 1 + w, formed in fp32
  float epsilon = 1e-5f;
  MatrixView y = {};               // T; optional when `quantized` is given
  QuantizedOutput quantized = {};  // optional
};
[[nodiscard]] absl::Status LayerNorm(const LayerNormArgs& args, Stream stream);

}  // namespace lamina
