#pragma once

// EmbedRows: the rows of an embedding that ids name.
//
//   // ids: const int64_t*, [tokens]; table: const BF16*
//   absl::Status status =
//       EmbedRows({.table = Matrix(table, vocabulary, hidden_dim),
//                  .ids = Vector(ids, tokens),
//                  .y = Matrix(hidden, tokens, hidden_dim)},
//                 stream);
//
// The rule: y[t] = round_T(table[ids[t]]), element by element.
//
// Shapes: table [vocabulary, cols], y [tokens, cols], any row pitch, alignment
// of one element; ids [tokens], i32 or i64.
// Aliasing: y overlaps neither table nor ids.
// Ids outside [0, vocabulary): on the CPU InvalidArgument that names the token,
// and nothing is written. A GPU backend does not see ids before it runs: there
// such a row becomes NaN.
// Determinism: y[t] depends on ids[t] alone.
// Errors: InvalidArgument for shapes, pointers, types of ids, overlap;
// Unimplemented for a pair of types that is not in EmbedRowsTable
// (tokens/embed_rows/embed_rows_policy.h).
// Overlapped streams (core/stream.h): the table, too, is read after the kernel
// before, for the ids come first.

#include "absl/status/status.h"
#include "lamina/core/stream.h"
#include "lamina/core/views.h"

namespace lamina {

struct EmbedRowsArgs {
  ConstMatrixView table;  // [vocabulary, cols]: f32, f16, bf16
  ConstVectorView ids;    // [tokens]: kI32 or kI64
  MatrixView y;           // [tokens, cols]: f32, f16, bf16
};
[[nodiscard]] absl::Status EmbedRows(const EmbedRowsArgs& args, Stream stream);

}  // namespace lamina
