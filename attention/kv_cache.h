#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "lamina/attention/kv_cache_view.h"
#include "lamina/core/dtype.h"
#include "lamina/core/stream.h"
#include "lamina/core/views.h"

namespace lamina {

// [pages, page_tokens, kv_heads, head_dim], dense.
KvCacheView DenseKvCache(void* k, void* v, DType dtype, int64_t num_pages,
                         int64_t page_tokens, int64_t kv_heads,
                         int64_t head_dim);

// Writes k and v of token t at position positions[t] of sequence
// sequence_ids[t]:
//
//   f32, f16, bf16 cache   round_T(x)
//   FP8 cache              convert(x * (1 / scale)), the division and the
//                          product rounded to fp32; saturating, NaN stays NaN
//
// The same bits on every backend, but that a NaN is any NaN on a GPU.
//
// Shapes      k, v [tokens, kv_heads, head_dim], any strides.
// Types       f32, f16, bf16 (v has k's) into any type of the cache.
// Aliasing    neither k nor v may overlap the cache.
// Duty        (sequence, position) of any two tokens differ; two sequences
//             share no page that is written.
// Errors      InvalidArgument; Unimplemented for other types. On the CPU a
//             sequence id, position or page index outside the cache is
//             InvalidArgument and names the token, and a scale is checked;
//             nothing has been written then. A GPU backend does not see these
//             values before it runs: there they are the caller's duty.
//
//   KvCacheView cache = DenseKvCache(k_cache, v_cache, DType::kBF16,
//                                    sequences, 4096, kv_heads, head_dim);
//   absl::Status status = KvAppend({.k = Heads(k, tokens, kv_heads, head_dim),
//                                   .v = Heads(v, tokens, kv_heads, head_dim),
//                                   .cache = cache,
//                                   .positions = positions},
//                                  stream);
struct KvAppendArgs {
  ConstMatrixView k;
  ConstMatrixView v;
  KvCacheView cache;
  const int32_t* sequence_ids =
      nullptr;  // [tokens]; null: token t is of sequence t
  const int32_t* positions = nullptr;  // [tokens]
};
[[nodiscard]] absl::Status KvAppend(const KvAppendArgs& args, Stream stream);

}  // namespace lamina
