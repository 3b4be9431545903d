#pragma once

#include <cstdint>

#include "lamina/core/dtype.h"

namespace lamina {

// Keys and values of past tokens, in pages of `page_tokens` tokens. K of
// (sequence s, position p, head h) is the head_dim adjacent elements from
//
//   page(s, p / page_tokens) * page_stride
//     + (p % page_tokens) * token_stride + h * head_stride
//
// with page(s, i) = page_table[s * page_table_stride + i], V likewise with the
// same strides from its own pointer. The strides may nest in any order
// ([page, token, head] or [page, head, token]) but no two vectors may overlap;
// the stride of a dimension of size 1 is not used. Paged memory: Kwon et al.,
// "Efficient Memory Management … with PagedAttention" (2023).
//
// A null page_table is a contiguous cache: sequence s is page s, page_tokens
// its capacity, and there are num_pages sequences (`sequences` is not read).
struct KvCacheView {
  void* k = nullptr;
  void* v = nullptr;
  DType dtype = DType::kBF16;  // f32, f16, bf16 or one of the four FP8
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  int64_t num_pages = 0;
  int64_t page_tokens = 0;
  int64_t page_stride = 0;
  int64_t token_stride = 0;
  int64_t head_stride = 0;
  // [sequences, page_table_stride]; entry i of a row is read only when the
  // sequence has positions on its i-th page.
  const int32_t* page_table = nullptr;
  int64_t page_table_stride = 0;  // pages per sequence
  int64_t sequences = 0;
  // FP8 caches only: real = code * scale, one scale for all keys, one for all
  // values, finite and > 0. Null: 1.
  const float* k_scale = nullptr;
  const float* v_scale = nullptr;
};

}  // namespace lamina
