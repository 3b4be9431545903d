#pragma once

// What the host hands to the tensor cores' attention kernel: plain values.

#include <cstdint>

#include "lamina/attention/decode_attention/attention_kernel_args.h"
#include "lamina/core/launch.h"
#include "lamina/core/math.h"

namespace lamina::attention_internal {

inline constexpr int kTilePositions = 16;
inline constexpr int kTensorRows = 16;    // query rows of a block at most
inline constexpr int kFewTensorRows = 8;  // and of one with few of them
inline constexpr int kTensorWaves = 8;
inline constexpr int kMaxTensorStages = 4;  // of a wave's ring
inline constexpr int kMaxSplitCluster = 8;

// How a context is cut: into splits of as many tiles each, but for the last
// one. It follows from the context alone.
struct SplitRule {
  int min_tiles = 1;
  int max_splits = 1;
  int long_tiles = 1 << 30;  // contexts of more are cut into long_splits
  int long_splits = 1;

  // Tiles of a split.
  LAMINA_HD constexpr int Length(int tiles) const {
    const int splits = tiles > long_tiles ? long_splits : max_splits;
    const int length = (tiles + splits - 1) / splits;
    return length > min_tiles ? length : min_tiles;
  }
  LAMINA_HD constexpr int Count(int tiles) const {
    const int length = Length(tiles);
    return (tiles + length - 1) / length;
  }
  friend constexpr bool operator==(const SplitRule&,
                                   const SplitRule&) = default;
};

struct TensorAttentionArgs {
  AttentionKernelArgs attention = {};
  SplitRule split = {};
  int32_t max_splits = 1;  // of a token: its results have room for them
  // As many as slots: these blocks are a cluster and add up their splits
  // themselves. Otherwise FoldSplits does, from `partials`.
  int32_t cluster_blocks = 1;
  int32_t slice_shift = 0;  // log2 of the columns that each of them adds up
  // Neighbouring tokens of one sequence that share a block: a power of two.
  int32_t run_tokens = 1;
  int32_t group_rows = 1;  // query heads of a token in a block
  int32_t stages = 1;      // of a wave's ring
  bool run_ahead = true;   // the rings go on while a split's sums are added
  // Keys and values that a block asks for before its predecessor has ended.
  int32_t prefetch_rows = 0;
  int32_t max_position = 0;
  // Of a launch:
  int64_t last_token = 0;
  FastDivisor slots = {};  // blocks that share a token's splits
  FastDivisor parts = {};  // of a KV head's group
  FastDivisor heads = {};  // KV heads
  FastDivisor page = {};   // tokens of a page
  FastDivisor short_splits = {}, long_splits = {};  // of the rule

  // split.Length(tiles).
  LAMINA_HD int Length(int tiles) const {
    const FastDivisor& splits =
        tiles > split.long_tiles ? long_splits : short_splits;
    const int length = static_cast<int>(
        splits.Quotient(static_cast<uint32_t>(tiles) + splits.divisor - 1));
    return length > split.min_tiles ? length : split.min_tiles;
  }
  LAMINA_HD int rows() const { return run_tokens * group_rows; }
};

// Of the launch that adds up what the splits have left in `partials`.
struct FoldSplitsArgs {
  TensorAttentionArgs attention = {};
};

// What a kernel is compiled for.
struct TensorAttentionVariant {
  DType type = DType::kBF16;  // of q and y: BF16 or F16
  bool fp8 = false;           // the cache is F8E4M3Fn; otherwise as q
  int dims = 128;             // head_dim is at most that: 64, 128
  int rows = kFewTensorRows;  // of a block at most: 8, 16
  int wave_size = 32;

  constexpr bool CompiledFor(bool) const { return wave_size == 32; }
  friend constexpr bool operator==(const TensorAttentionVariant&,
                                   const TensorAttentionVariant&) = default;
};

// How a launch goes about it.
struct TensorAttentionPlan {
  TensorAttentionVariant variant = {};
  SplitRule split = {};
  int splits = 1;  // that a token can have
  int slots = 1;   // blocks that share them
  int cluster_blocks = 1;
  int run_tokens = 1;
  int stages = 1;
  bool run_ahead = true;
  int prefetch_rows = 0;      // with overlap
  bool overlap_fold = false;  // FoldSplits starts early even without it
  int64_t max_position = 0;
  int64_t tokens = 1;  // of a launch at most
};

// Splits at most: more do not pay.
inline constexpr int64_t kMaxSplits = 256;
// Floats of a split's result for one query head: m, l, o.
LAMINA_HD constexpr int64_t SplitSize(int64_t head_dim) { return 2 + head_dim; }
// Tokens of a launch whose splits go through the workspace: more take turns.
constexpr int64_t MaxPartialTokens(int64_t blocks_a_split, int units) {
  return CeilDiv(int64_t{16} * units, blocks_a_split);
}

// ---- A block's shared memory ------------------------------------------------

// Bytes from its beginning. The rings come first; the waves' sums lie behind
// them, or in their place if these do not run ahead.
struct TensorLayout {
  int64_t sums = 0;
  int64_t waves = 0;     // m and l of each row and wave
  int64_t received = 0;  // what the splits send: m, l, some columns of o
  int64_t phaser = 0;    // which counts it
  int64_t bytes = 0;
};
struct TensorLayoutShape {
  int dims = 128, value_bytes = 2;  // of the cache
  int rows = 1;
  int stages = 1;
  bool run_ahead = true;
  int received_splits = 0;
  int received_columns = 0;
};
// Rows of the waves' sums are so many floats apart: four of them, two rows
// apart, lie in different banks.
LAMINA_HD constexpr int TensorSumPitch(int dims) { return dims + 4; }
LAMINA_HD constexpr TensorLayout TensorLayoutOf(const TensorLayoutShape& s) {
  const int64_t ring = int64_t{kTensorWaves} * s.stages * 2 * kTilePositions *
                       s.dims * s.value_bytes;
  const int64_t sums =
      int64_t{kTensorWaves} * s.rows * TensorSumPitch(s.dims) * 4;
  TensorLayout layout;
  layout.sums = s.run_ahead ? ring : 0;
  layout.waves = s.run_ahead ? ring + sums : ring > sums ? ring : sums;
  layout.received = layout.waves + int64_t{2} * kTensorWaves * s.rows * 4;
  layout.phaser = layout.received + int64_t{4} * s.rows * s.received_splits *
                                        (2 + s.received_columns);
  layout.bytes = layout.phaser + 8;
  return layout;
}

// For q of BF16 and of F16.
gpu::Error LaunchTensorAttentionBF16(const AttentionKernelArgs& args,
                                     int64_t tokens,
                                     const TensorAttentionPlan& plan,
                                     const gpu::LaunchTarget& target);
gpu::Error LaunchTensorAttentionF16(const AttentionKernelArgs& args,
                                    int64_t tokens,
                                    const TensorAttentionPlan& plan,
                                    const gpu::LaunchTarget& target);

}  // namespace lamina::attention_internal
