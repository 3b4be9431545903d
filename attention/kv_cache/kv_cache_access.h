#pragma once

// What KvAppend and DecodeAttention share: the checks of a cache.

#include <cstdint>

#include "absl/status/status.h"
#include "lamina/attention/kv_cache.h"
#include "lamina/attention/kv_cache/kv_run.h"

namespace lamina::attention_internal {

// Which sequence and positions a token touches.
struct KvTokens {
  int64_t tokens;
  const int32_t* sequence_ids;
  const int32_t* positions;
  int64_t Sequence(int64_t t) const {
    return sequence_ids == nullptr ? t : sequence_ids[t];
  }
};

// Shape, strides, dtype and pointers of a cache. Reads no device memory.
absl::Status CheckCache(const char* op, const KvCacheView& cache);

// The values that only a CPU can look at: scales, and for each token its
// sequence id, its position (in [0, max_position]) and the page indices of
// positions [p - window + 1, p] (window 0: all from 0).
absl::Status CheckCacheScales(const char* op, const KvCacheView& cache);
absl::Status CheckTokens(const char* op, const KvCacheView& cache,
                         const KvTokens& tokens, int64_t max_position,
                         int64_t window);

// Elements from cache.k (or v) to one past the last that the cache can touch.
int64_t CacheExtent(const KvCacheView& cache);

}  // namespace lamina::attention_internal
