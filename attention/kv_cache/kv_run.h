#pragma once

// Where a position of a sequence is in a cache.

#include <cstdint>

#include "lamina/attention/kv_cache_view.h"
#include "lamina/core/device/host_device.h"

namespace lamina::attention_internal {

// A run of positions that are token_stride apart.
struct KvRun {
  int64_t offset;  // elements from k or v to (first position, head)
  int64_t count;
};

// The positions from `position` that share its page, `count` at most.
LAMINA_HD inline KvRun FindRun(const KvCacheView& cache, int64_t sequence,
                               int64_t head, int64_t position, int64_t count) {
  int64_t page = sequence;
  int64_t token = position;
  if (cache.page_table != nullptr) {
    // NOTE: positions have 31 bits, and a GPU divides 32-bit numbers alone.
    const uint32_t index = cache.page_tokens > position
                               ? 0
                               : static_cast<uint32_t>(position) /
                                     static_cast<uint32_t>(cache.page_tokens);
    token = position - index * cache.page_tokens;
    page = cache.page_table[sequence * cache.page_table_stride + index];
  }
  const int64_t left = cache.page_tokens - token;
  return {page * cache.page_stride + token * cache.token_stride +
              head * cache.head_stride,
          count < left ? count : left};
}

}  // namespace lamina::attention_internal
