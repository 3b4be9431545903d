#pragma once

#include <cstdint>

#include "lamina/attention/decode_attention.h"
#include "lamina/attention/kv_cache/kv_cache_access.h"

namespace lamina::attention_internal {

// Checked arguments and what follows from them.
struct AttentionPlan {
  const DecodeAttentionArgs& args;
  int64_t group;       // query heads of one KV head
  int64_t padded_dim;  // head_dim rounded up to kDotSlots
  float factor;        // scale * k_scale

  KvTokens Tokens() const {
    return {args.q.batch, args.sequence_ids, args.positions};
  }
  // First and last position that a token attends to.
  int64_t First(int64_t token) const {
    const int64_t p = args.positions[token];
    return args.window > 0 && args.window <= p ? p + 1 - args.window : 0;
  }
  int64_t Last(int64_t token) const { return args.positions[token]; }
};

// Tokens of one sequence; of each group of the KV heads, the same part.
struct AttentionTile {
  int64_t token_begin, token_end;
  int64_t kv_head_begin, kv_head_end;
  int64_t group_begin, group_end;

  int64_t RowsPerHead() const {
    return (token_end - token_begin) * (group_end - group_begin);
  }
  int64_t Rows() const { return (kv_head_end - kv_head_begin) * RowsPerHead(); }
};

// The whole result of a tile.
void AttendTile(const AttentionPlan& plan, const AttentionTile& tile);

// The same in two steps, for a tile of one token. A partial result is m and l
// of each row, then o of each row: Rows() * (2 + padded_dim) floats. FoldChunk
// merges the partial results of rising chunks into `state` (same layout) and
// writes y after the last.
void AttendChunk(const AttentionPlan& plan, const AttentionTile& tile,
                 int64_t chunk, float* partial);
void FoldChunk(const AttentionPlan& plan, const AttentionTile& tile,
               const float* partial, bool first, bool last, float* state);

}  // namespace lamina::attention_internal
