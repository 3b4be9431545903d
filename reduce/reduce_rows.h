#pragma once

// ReduceRows: one number a row.
//
//   ConstMatrixView x = Matrix(logits, rows, vocabulary);
//   absl::Status status = ReduceRows({.x = x,
//                                     .reduction = RowReduction::kArgMax,
//                                     .y = Vector(token_ids, rows)},
//                                    stream);
//
// The rule, the same on every backend (all arithmetic in fp32):
//   kSum           canonical sum of x_i                 (core/simd-inl.h)
//   kSumOfSquares  canonical sum of x_i * x_i, each product rounded
//   kMean          kSum / float(cols), one division
//   kMax           largest x_i; a zero result is +0
//   kAbsMax        largest |x_i|
//   kArgMax        index of the first largest x_i; -0 equals +0
// NaN propagates as in PyTorch: kMax and kAbsMax of a row with a NaN are the
// quiet NaN 0x7fc00000, kArgMax is the index of the first NaN. Infinities are
// ordinary values. Sums of squares overflow to +Inf as fp32 does.
//
// Shapes: x is [batch, rows, cols], any row pitch, batch stride and alignment
// of one element; y is dense, y[b * rows + r] belongs to row (b, r). Zero rows:
// nothing is written. Zero columns: both sums are +0; the other reductions
// have no value and are InvalidArgument.
// Aliasing: y must not overlap x.
// Determinism: the same bits for any number of threads, any SIMD target or
// GPU and any number of rows beside it (batch-invariant).
// Errors: InvalidArgument for shapes, pointers, overlap and the type of y;
// Unimplemented for a type of x that is not in ReduceRowsTable
// (reduce/reduce_rows/reduce_rows_policy.h) and for a backend that is not
// built.

#include "absl/status/status.h"
#include "lamina/core/stream.h"
#include "lamina/core/views.h"
#include "lamina/reduce/row_reduction.h"

namespace lamina {

struct ReduceRowsArgs {
  ConstMatrixView x;  // [batch, rows, cols]: f32, f16, bf16
  RowReduction reduction = RowReduction::kSum;
  VectorView y;  // [batch * rows]: kF32; kI64 for kArgMax
};
[[nodiscard]] absl::Status ReduceRows(const ReduceRowsArgs& args,
                                      Stream stream);

}  // namespace lamina
