#pragma once

// Elementwise activations, with an optional quantised output.
//
//   y = round_T(act(x))
//
// act and its edges (NaN, Inf, large values) are in core/gate.h.
//
//   absl::Status status = Activation({.x = Matrix(h, rows, cols),
//                                     .kind = ActivationKind::kGeluTanh,
//                                     .y = Matrix(h, rows, cols)},  // in place
//                                    stream);
//
// Shapes. x, y and codes are [batch, rows, cols], any cols, any row stride >=
// cols. y or quantized or both must be given.
//
// Types. x and y: the rows of ActivationTable (f32, f16, bf16). Codes: the
// four FP8 types or i8; scales static (any granularity) or dynamic per row and
// per block of 32, 64 or 128 columns.
//
// Rule. fp32 with one rounding at the store. Codes come from the fp32 result,
// or from round_T of it with quantized.round_before_quant.
//
// Determinism. Results do not depend on the other rows, on the number of
// threads or on the SIMD target, bit for bit (NaN: any NaN).
//
// Aliasing. y may be x (the very same view). Otherwise no output may overlap x
// or another output.
//
// Errors. InvalidArgument names the argument; Unimplemented for a type that is
// not in the table and for dynamic scales that rows share.

#include "absl/status/status.h"
#include "lamina/core/gate.h"
#include "lamina/core/stream.h"
#include "lamina/core/views.h"
#include "lamina/quant/scale.h"

namespace lamina {

struct ActivationArgs {
  ConstMatrixView x = {};  // [batch, rows, cols]: T
  ActivationKind kind = ActivationKind::kSilu;
  MatrixView y = {};  // T; may be x; optional with `quantized`
  QuantizedOutput quantized = {};
};

[[nodiscard]] absl::Status Activation(const ActivationArgs& args,
                                      Stream stream);

}  // namespace lamina
