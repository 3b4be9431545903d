#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "lamina/attention/kv_cache.h"
#include "lamina/attention/rope.h"
#include "lamina/core/stream.h"
#include "lamina/core/views.h"

namespace lamina {

// What stands between the QKV product and attention, in one launch on a GPU:
//
//   Rope     q to y
//   Rope     k in place
//   KvAppend k and v
//
// Bit for bit what these three give, with their types, strides and duties; on
// a GPU NaN may be any NaN.
//
// Shapes      q, y [tokens, heads, head_dim]; k, v [tokens, kv_heads,
//             head_dim], any strides.
// Aliasing    y may be the very view of q; otherwise q, y, k, v, the table and
//             the cache do not overlap.
// Errors      as those of Rope and KvAppend; nothing has been written then.
//
//   absl::Status status = RopeAppend({.q = Heads(q, tokens, 32, 128),
//                                     .y = Heads(q, tokens, 32, 128),
//                                     .k = Heads(k, tokens, 8, 128),
//                                     .v = Heads(v, tokens, 8, 128),
//                                     .table = rope_table,
//                                     .cache = cache,
//                                     .positions = positions},
//                                    stream);
struct RopeAppendArgs {
  ConstMatrixView q;
  MatrixView y;
  MatrixView k;
  ConstMatrixView v;
  ConstMatrixView table;  // FillRopeTable's, f32
  RopePairing pairing = RopePairing::kHalfSplit;
  KvCacheView cache;
  const int32_t* sequence_ids =
      nullptr;  // [tokens]; null: token t is of sequence t
  const int32_t* positions = nullptr;  // [tokens]
};
[[nodiscard]] absl::Status RopeAppend(const RopeAppendArgs& args,
                                      Stream stream);

}  // namespace lamina
