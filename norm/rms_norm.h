#pragma once

// RmsNorm: y = x / rms(x) * weight, row by row.
//
//   absl::Status status = RmsNorm({.x = Matrix(hidden, tokens, hidden_dim),
//                                  .weight = Vector(gamma, hidden_dim),
//                                  .epsilon = 1e-6f,
//                                  .y = Matrix(normed, tokens, hidden_dim)},
//                                 stream);
//
// The rule, the same on every backend (fp32 throughout, each operation rounded
// on its own, none fused):
//   mean = canonical_sum(x_i * x_i) / float(cols)       (core/simd-inl.h)
//   rstd = 1 / sqrt(mean + epsilon)       an exactly rounded root and division
//   v_i  = (x_i * rstd) * w_i             w_i, or 1 + w_i with weight_plus_one;
//                                         without a weight v_i = x_i * rstd
//   y_i  = round_T(v_i)                   to nearest, ties to even
//   quantized: of v_i, or of y_i with round_before_quant  (quant/scale.h)
// Formula: Zhang and Sennrich, "Root Mean Square Layer Normalization" (2019);
// 1 + w is Gemma's.
//
// Shapes: x is [batch, rows, cols], cols >= 1: any row pitch, batch stride and
// alignment of one element, so that the heads of a fused qkv row are
// normalised where they lie (QK-norm: batch = tokens, rows = heads, cols =
// head_dim). weight is [cols], in T or f32. y and quantized.codes have x's
// shape and strides of their own. One of them at least is given. Zero rows: OK,
// nothing is written; every pointer may then be null.
// Quantised output: any type of CodeTable; static scales of any granularity,
// dynamic scales per row or per block of 32, 64 or 128 columns. (Dynamic scales
// that rows share take a second pass over all rows: Unimplemented; use Quantize
// on y.)
// Aliasing: y may be x (the very view). Other outputs overlap nothing.
// Special values: a NaN makes its whole row NaN; so does ±Inf, in its own
// column (Inf * 0), while the rest of the row is ±0. The sum of squares
// overflows to +Inf from about 1.8e19 on: the row becomes zeros. With
// epsilon = 0 a row of zeros becomes NaN.
// Determinism: the same bits for any number of threads, on any SIMD target and
// GPU, and for any number of rows beside it (batch-invariant).
// Accuracy: the relative error of v_i is at most (cols / 512 + 11) * 2^-24, as
// long as no square overflows or is subnormal.
// Errors: InvalidArgument for shapes, strides, pointers, overlap, epsilon (not
// finite or < 0) and scales; Unimplemented for a pair of types that is not in
// RmsNormTable (norm/rms_norm/rms_norm_policy.h) and for a backend that is
// not built.

#include "absl/status/status.h"
#include "lamina/core/stream.h"
#include "lamina/core/views.h"
#include "lamina/quant/scale.h"

namespace lamina {

struct RmsNormArgs {
  ConstMatrixView x;             // [batch, rows, cols]: T in {f32, f16, bf16}
  ConstVectorView weight = {};   // [cols]: T or f32; optional
  bool weight_plus_one = false;  // Gemma: multiply by 1 + w, formed in fp32
  float epsilon = 1e-5f;
  MatrixView y = {};               // T; optional when `quantized` is given
  QuantizedOutput quantized = {};  // optional
};
[[nodiscard]] absl::Status RmsNorm(const RmsNormArgs& args, Stream stream);

}  // namespace lamina
