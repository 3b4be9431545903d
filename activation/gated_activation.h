#pragma once

// Gated activations: SwiGLU, GeGLU, ReGLU and gpt-oss's clamped SwiGLU, with an
// optional quantised output.
//
//   y = round_T(act(gate) * up)
//
// gate and up lie in one row of x, as the gate/up projection leaves them:
// halves ([gate | up] or [up | gate]) or interleaved. act, the clamped
// variant and their edges (NaN, Inf, large values) are in core/gate.h.
//
//   // [rows, 2 * 14336] bf16 -> FP8 with a scale a row
//   absl::Status status = GatedActivation(
//       {.x = Matrix(gate_up, rows, 2 * 14336),
//        .quantized = {.codes = Matrix(codes, rows, 14336),
//                      .scales = PerRow(scales),
//                      .dynamic = true}},
//       stream);
//
// Shapes. x is [batch, rows, 2 * cols] and y, codes are [batch, rows, cols];
// any cols, also odd, also 0. Any row stride >= the columns of the view; the
// halves may be misaligned. y or quantized or both must be given.
//
// Types. x and y: the rows of GatedActivationTable (f32, f16, bf16). Codes:
// the four FP8 types or i8; scales static (any granularity) or dynamic per row
// and per block of 32, 64 or 128 columns of y.
//
// Rule. Everything is fp32 with one rounding at the store, by core/gate.h's
// GatedProduct: act(gate) is not rounded to T before the product (frameworks
// that run act and product apart do round it there). Codes come from the fp32
// result, or from round_T of it with quantized.round_before_quant.
//
// Determinism. Each element depends on its own gate and up alone (and codes on
// their group), so results do not depend on the other rows, on the number of
// threads or on the SIMD target, bit for bit (NaN: any NaN).
//
// Aliasing. No output may overlap x or another output.
//
// Errors. InvalidArgument names the argument; Unimplemented for a type that is
// not in the table and for dynamic scales that rows share.
//
// Sources: Shazeer, "GLU Variants Improve Transformer" (2020); the clamped
// variant is gpt-oss's.

#include "absl/status/status.h"
#include "lamina/core/gate.h"
#include "lamina/core/stream.h"
#include "lamina/core/views.h"
#include "lamina/quant/scale.h"

namespace lamina {

struct GatedActivationArgs {
  ConstMatrixView x = {};  // [batch, rows, 2 * cols]: T
  GateSpec gate = {};
  MatrixView y = {};  // [batch, rows, cols]: T; optional with `quantized`
  QuantizedOutput quantized = {};
};

[[nodiscard]] absl::Status GatedActivation(const GatedActivationArgs& args,
                                           Stream stream);

}  // namespace lamina
