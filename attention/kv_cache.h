#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "lamina/core/dtype.h"
#include "lamina/core/stream.h"
#include "lamina/core/views.h"

namespace lamina {

// Keys and values of past tokens, in pages of `page_tokens` tokens.
//   K of (sequence s, position p, head h) starts at element
//     page(s, p / page_tokens) * page_stride
//       + (p % page_tokens) * token_stride + h * head_stride
// with page(s, i) = page_table[s * page_table_stride + i]. A null page_table
// is a contiguous cache: sequence s is page s, and page_tokens its capacity.
struct KvCacheView {
  void* k = nullptr;
  void* v = nullptr;
  DType dtype = DType::kBF16;  // f32, f16, bf16 or FP8
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  int64_t num_pages = 0;
  int64_t page_tokens = 0;
  int64_t page_stride = 0;
  int64_t token_stride = 0;
  int64_t head_stride = 0;
  const int32_t* page_table = nullptr;  // [sequences, pages per sequence]
  int64_t page_table_stride = 0;
  int64_t sequences = 0;
  // FP8: real = code * scale, per tensor. Null: 1.
  const float* k_scale = nullptr;
  const float* v_scale = nullptr;
};

// [pages, page_tokens, kv_heads, head_dim], dense.
KvCacheView DenseKvCache(void* k, void* v, DType dtype, int64_t num_pages,
                         int64_t page_tokens, int64_t kv_heads,
                         int64_t head_dim);

struct KvAppendArgs {
  ConstMatrixView k;  // [tokens, kv_heads, head_dim]: f32, f16, bf16
  ConstMatrixView v;
  KvCacheView cache;
  const int32_t* sequence_ids = nullptr;  // [tokens]; null: token t is of sequence t
  const int32_t* positions = nullptr;     // [tokens]: where to write
};
[[nodiscard]] absl::Status KvAppend(const KvAppendArgs& args, Stream stream);

}  // namespace lamina
