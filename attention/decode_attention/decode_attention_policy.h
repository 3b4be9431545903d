#pragma once

// Types, and how the CPU cuts the work. None of it changes a result.

#include <algorithm>
#include <cstdint>

#include "lamina/attention/kv_cache/kv_cache_policy.h"
#include "lamina/core/dispatch.h"
#include "lamina/core/math.h"

namespace lamina {

// Types of q and y; each with every type of KvCacheTable.
using DecodeAttentionTable = Table<Types<float>, Types<F16>, Types<BF16>>;

namespace attention_internal {

inline constexpr int64_t kMaxHeadDim = 512;
inline constexpr int64_t kDotSlots = 16;

// A tile is the query rows (token, head) that share one pass over keys and
// values. Its arrays live on the stack of the thread.
inline constexpr int64_t kTileRows = 32;
inline constexpr int64_t kTileFloats = 8192;  // rows * padded head_dim

struct DecodeAttentionPolicy {
  int64_t head_rows;    // heads of a group in one tile
  int64_t head_tiles;   // tiles that cover a group
  int64_t tile_tokens;  // tokens in one tile
  bool split;           // chunks of one tile go to several threads
};

constexpr DecodeAttentionPolicy SelectDecodeAttentionPolicy(
    int64_t tokens, int64_t group, int64_t kv_heads, int64_t head_dim,
    int threads) {
  const int64_t rows =
      std::min(kTileRows, kTileFloats / RoundUp(head_dim, kDotSlots));
  DecodeAttentionPolicy policy{};
  policy.head_tiles = CeilDiv(group, rows);
  policy.head_rows = CeilDiv(group, policy.head_tiles);
  policy.tile_tokens =
      std::clamp<int64_t>(rows / policy.head_rows, 1, std::max<int64_t>(1, tokens));
  // Enough tiles that no thread waits long for the last one.
  const int64_t enough = threads == 1 ? 1 : int64_t{4} * threads;
  const auto tiles = [&] {
    return CeilDiv(tokens, policy.tile_tokens) * kv_heads * policy.head_tiles;
  };
  while (policy.tile_tokens > 1 && tiles() < enough) {
    policy.tile_tokens = CeilDiv(policy.tile_tokens, 2);
  }
  policy.split = policy.tile_tokens == 1 && tiles() < enough;
  return policy;
}

}  // namespace attention_internal
}  // namespace lamina
