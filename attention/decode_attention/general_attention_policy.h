#pragma once

// How the general kernel splits a problem: plain values, no GPU needed. None of
// it changes a result.

#include <algorithm>
#include <cstdint>

#include "lamina/attention/decode_attention/general_attention_args.h"
#include "lamina/core/math.h"

namespace lamina::attention_internal {

// Chunks that a token can have; window 0: none.
constexpr int64_t MaxChunks(int64_t max_position, int64_t window) {
  const int64_t chunks = max_position / kGpuChunk + 1;
  if (window == 0) return chunks;
  return std::min(chunks, (window - 1) / kGpuChunk + 2);
}

// Calls of more tokens fill `units` without splitting (four blocks each).
constexpr int64_t MaxSplitTokens(int64_t kv_heads, int units) {
  return CeilDiv(int64_t{4} * units, kv_heads);
}

constexpr int64_t GeneralWorkspaceBytes(int64_t tokens, int64_t heads,
                                        int64_t kv_heads, int64_t head_dim,
                                        int64_t chunks, int units) {
  if (chunks <= 1) return 0;
  return std::min(tokens, MaxSplitTokens(kv_heads, units)) * heads * chunks *
         PartialSize(head_dim) * int64_t{sizeof(float)};
}

constexpr GeneralAttentionPlan SelectGeneralAttentionPlan(int64_t tokens,
                                                          int64_t kv_heads,
                                                          int64_t chunks,
                                                          int units) {
  return {.split = chunks > 1 && tokens <= MaxSplitTokens(kv_heads, units),
          .tokens = tokens};
}

}  // namespace lamina::attention_internal
