#pragma once

// What the host hands to the tensor cores' attention kernel: plain values.

#include <cstdint>

#include "lamina/attention/decode_attention/attention_kernel_args.h"
#include "lamina/core/launch.h"
#include "lamina/core/math.h"

namespace lamina::attention_internal {

inline constexpr int kTilePositions = 16;
inline constexpr int kTensorRows = 16;  // query rows of a block
inline constexpr int kTensorWaves = 8;
// Shared memory of a block with long rings, about.
inline constexpr int kLongRingBytes = 208 << 10;
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
  // Splits are combined by the blocks of a cluster, a split each; otherwise by
  // FoldSplits, from `partials`.
  int32_t cluster_blocks = 1;
  int32_t slice_shift = 0;  // log2 of the columns that each of them adds up
  // Neighbouring tokens of one sequence that share a block: a power of two.
  int32_t run_tokens = 1;
  int32_t group_rows = 1;  // query heads of a token in a block
  // Of a launch:
  int64_t last_token = 0;
  FastDivisor splits = {};  // blocks for a token's rows
  FastDivisor parts = {};   // of a KV head's group
  FastDivisor heads = {};   // KV heads
};

// What a kernel is compiled for.
struct TensorAttentionVariant {
  DType type = DType::kBF16;  // of q and y: BF16 or F16
  bool fp8 = false;           // the cache is F8E4M3Fn; otherwise as q
  int dims = 128;             // head_dim is at most that: 64, 128
  bool dense = false;         // two blocks a unit with short rings, or one
  int wave_size = 32;

  constexpr bool CompiledFor(bool) const { return wave_size == 32; }
  friend constexpr bool operator==(const TensorAttentionVariant&,
                                   const TensorAttentionVariant&) = default;
};

// How a launch goes about it.
struct TensorAttentionPlan {
  TensorAttentionVariant variant = {};
  SplitRule split = {};
  int slots = 1;  // blocks for the splits of a token
  int cluster_blocks = 1;
  int run_tokens = 1;
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
