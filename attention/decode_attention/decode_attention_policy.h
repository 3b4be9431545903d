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

// KV heads of one tile: together they read a position's keys in one piece.
inline constexpr int64_t kTileHeadFloats = 512;  // kv_heads * padded head_dim

struct DecodeAttentionPolicy {
  int64_t group_rows;   // heads of a group in one tile
  int64_t group_tiles;  // tiles that cover a group
  int64_t kv_heads;     // KV heads in one tile; 1 unless group_tiles is
  int64_t head_tiles;   // tiles that cover all heads
  int64_t tokens;       // tokens in one tile
  bool split;           // chunks of one tile go to several threads
};

struct DecodeAttentionShape {
  int64_t tokens = 1;
  int64_t longest_run = 1;  // of neighbouring tokens of one sequence
  int64_t group = 1;
  int64_t kv_heads = 1;
  int64_t head_dim = 64;
  int64_t chunks = 1;  // of the longest context
};

constexpr DecodeAttentionPolicy SelectDecodeAttentionPolicy(
    const DecodeAttentionShape& shape, int threads) {
  const int64_t padded_dim = RoundUp(shape.head_dim, kDotSlots);
  const int64_t rows = std::min(kTileRows, kTileFloats / padded_dim);
  // Enough work items that no thread waits long for the last one.
  const int64_t enough = threads == 1 ? 1 : int64_t{4} * threads;

  DecodeAttentionPolicy policy{};
  policy.group_tiles = CeilDiv(shape.group, rows);
  policy.group_rows = CeilDiv(shape.group, policy.group_tiles);
  policy.kv_heads = 1;
  policy.tokens =
      std::clamp<int64_t>(rows / policy.group_rows, 1, shape.longest_run);
  const auto tiles = [&] {
    policy.head_tiles =
        CeilDiv(shape.kv_heads, policy.kv_heads) * policy.group_tiles;
    return CeilDiv(shape.tokens, policy.tokens) * policy.head_tiles;
  };
  while (policy.tokens > 1 && tiles() < enough) {
    policy.tokens = CeilDiv(policy.tokens, 2);
  }
  if (policy.tokens == 1 && policy.group_tiles == 1) {
    policy.kv_heads = std::clamp<int64_t>(
        std::min(rows / policy.group_rows, kTileHeadFloats / padded_dim), 1,
        shape.kv_heads);
    const auto items = [&](int64_t kv_heads) {
      policy.kv_heads = kv_heads;
      return tiles() * shape.chunks;
    };
    // With two items a thread the chunks can be shared evenly. A tile of one
    // chunk is halved only if the busiest thread then has less to do. (SmolLM2,
    // 2 threads, us: context 64 28 to 15, 300 54 to 44, 1024 133 to 114
    // together with shares of equal work; EPYC 7003, 2026-11-30.)
    int64_t best = policy.kv_heads;
    while (best > 1 && items(best) < int64_t{2} * threads) {
      const int64_t half = CeilDiv(best, 2);
      if (shape.chunks == 1 && CeilDiv(items(half), threads) * half >=
                                   CeilDiv(items(best), threads) * best) {
        break;
      }
      best = half;
    }
    policy.kv_heads = best;
  }
  policy.split = tiles() < enough && policy.tokens == 1 && shape.chunks > 1;
  return policy;
}

}  // namespace attention_internal
}  // namespace lamina
