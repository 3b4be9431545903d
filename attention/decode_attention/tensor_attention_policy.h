#pragma once

// Which problems the tensor cores take, and how: plain values, no GPU needed.

#include <algorithm>
#include <cstdint>

#include "lamina/attention/decode_attention.h"
#include "lamina/attention/decode_attention/tensor_attention_args.h"
#include "lamina/core/device.h"
#include "lamina/core/math.h"
#include "lamina/core/stream.h"
#include "lamina/core/views.h"

namespace lamina::attention_internal {

struct TensorAttentionProblem {
  int64_t tokens = 1, heads = 1, kv_heads = 1, head_dim = 64;
  int64_t max_position = 0;
  int64_t window = 0;  // 0: none
  DType q_type = DType::kBF16;
  DType kv_type = DType::kBF16;
  bool neighbours = false;  // tokens may be of one sequence
};

constexpr bool TensorCoresTake(DType q, DType kv, int64_t head_dim) {
  const bool q_fits = q == DType::kBF16 || q == DType::kF16;
  const bool kv_fits = kv == q || kv == DType::kF8E4M3Fn;
  // Rows of the cache are copied 16 bytes at a time.
  return q_fits && kv_fits && head_dim <= 128 &&
         head_dim % (IsFp8(kv) ? 16 : 8) == 0;
}

// Every vector of the cache and of q can be copied 16 bytes at a time.
inline bool MovesBy16(const DecodeAttentionArgs& args) {
  const KvCacheView& cache = args.cache;
  const auto moves = [&](int64_t count, int64_t stride) {
    return count == 1 || BytesFor(cache.dtype, stride) % 16 == 0;
  };
  const auto aligned = [](const void* p) {
    return reinterpret_cast<uintptr_t>(p) % 16 == 0;
  };
  return aligned(cache.k) && aligned(cache.v) &&
         moves(cache.num_pages, cache.page_stride) &&
         moves(cache.page_tokens, cache.token_stride) &&
         moves(cache.kv_heads, cache.head_stride) && RowsAreAligned(args.q, 16);
}
inline bool IsForTensorCores(const DecodeAttentionArgs& args,
                             const Stream& stream) {
  return stream.device().backend == Backend::kCuda &&
         TensorCoresTake(args.q.dtype, args.cache.dtype, args.q.cols) &&
         MovesBy16(args);
}

// What a plan has to know of a GPU.
struct TensorArch {
  int units = 1;  // SMs
  bool clusters = false;
  int64_t shared_bytes = 227 << 10;  // of a block at most

  // Of each of two blocks that share a unit. NOTE: a block costs 1 KiB.
  constexpr int64_t shared_bytes_of_two() const {
    return (shared_bytes + 1024) / 2 - 1024;
  }
};
inline TensorArch TensorArchOf(const DeviceInfo& device) {
  return {.units = device.num_units,
          .clusters = device.max_cluster_blocks > 1,
          .shared_bytes = device.shared_memory_bytes};
}

// Query heads of a token that share a block, and blocks for a KV head's group.
constexpr int64_t GroupRows(int64_t group) {
  return std::min<int64_t>(group, kTensorRows);
}
constexpr int64_t GroupParts(int64_t group) {
  return CeilDiv(group, GroupRows(group));
}

// A token's results depend on its splits, so these follow from the model and
// the GPU, and from no other token. `blocks`: for one split of a token.
constexpr SplitRule SelectSplitRule(int64_t blocks, const TensorArch& arch) {
  const int64_t filling =
      std::clamp<int64_t>(arch.units / blocks, 1, kMaxSplits);
  SplitRule rule{.min_tiles = kTensorWaves,
                 .max_splits = kMaxSplitCluster,
                 .long_splits = static_cast<int>(filling)};
  if (!arch.clusters) {
    rule.max_splits = rule.long_splits;
  } else if (filling > kMaxSplitCluster) {
    rule.long_tiles = 4096 / kTilePositions;
  }
  return rule;
}

// Tiles and splits that a token can have.
constexpr int64_t MaxTilesOf(int64_t max_position, int64_t window) {
  const int64_t tiles = max_position / kTilePositions + 1;
  return window > 0 ? std::min(tiles, (window - 1) / kTilePositions + 2)
                    : tiles;
}
constexpr int64_t MaxSplitsOf(const SplitRule& rule, int64_t max_position,
                              int64_t window) {
  const int64_t tiles = MaxTilesOf(max_position, window);
  const int64_t most =
      tiles > rule.long_tiles ? rule.long_splits : rule.max_splits;
  return std::min<int64_t>(most, CeilDiv(tiles, rule.min_tiles));
}

// Keys and values that a block prefetches, where it has not many more. Many
// blocks wait for each other's. (H200, bf16, with overlap after a kernel of 2
// us, with and without, us: 1 token at 1k 7.50, 7.93, at 8k 15.2, 15.4, at 32k
// 38.6, 38.2; 2 tokens at 1k 8.2, 8.7; 32 tokens 37.9, 38.2; right after
// themselves 1 token 5.84, 6.07, 64 tokens 71.9, 68.9.)
inline constexpr int kPrefetchRows = 512;
inline constexpr int kMostRowsOfPrefetch = 1024;

// Shared memory that what splits send may take.
constexpr int64_t MostReceivedBytes(const TensorArch& arch) {
  return std::min<int64_t>(40 << 10, arch.shared_bytes / 4);
}

// Clusters of so many blocks that run at once, a block a unit: GPCs have 16 or
// 18 SMs, one of them fewer (H200: 15 of 8, 31 of 4, 66 of 2).
constexpr int64_t BlocksAtOnce(int cluster_blocks, int units) {
  return cluster_blocks <= 2   ? units
         : cluster_blocks == 4 ? units * 15 / 16
                               : units * 10 / 11;
}

// Blocks that share a token's splits, and how they meet.
//
// (H200, 2026-11-30, 8 KV heads of 128, bf16, contexts of 1k, us plain / with
// overlap, by blocks of a cluster, best depth of rings; read alone:
//   2 tokens   8: 7.5 / 7.0    4: 7.9 / 8.1                      3.6
//   4          8: 12.5 / 12.3  4: 10.3 / 9.4   2: 11.2 / 11.3    6.0
//   8          4: 16.8 / 19.6  2: 12.9 / 14.6  1: 18.8 / 18.3    9.4
//   16         4: 27.3 / 30.8  2: 21.2 / 21.3  1: 22.0 / 21.4    16.8
//   32                         2: 39.6 / 41.7  1: 36.9 / 36.3    31.4
// 2 tokens at 8k, a cluster of 8: 22.6 / 26.2, 8 blocks and another launch:
// 22.5 / 21.8, 16 of them 22.7 / 23.0; read alone 16.7. 1 token at 8k, a
// cluster of 8: 14.0 / 17.4, 16 blocks and another launch: 14.4 / 13.2; 9.5.)
constexpr void SelectSlots(int64_t pairs, int64_t rows, const TensorArch& arch,
                           TensorAttentionPlan& plan) {
  const int64_t fair = std::clamp<int64_t>(arch.units / pairs, 1, plan.splits);
  int cluster = 1;
  if (arch.clusters) {
    while (cluster < kMaxSplitCluster && cluster < plan.splits &&
           pairs * 2 * cluster <= arch.units) {
      cluster *= 2;
    }
    // Two blocks a unit rather than one for half of the units.
    if (pairs * 2 > arch.units && pairs <= arch.units && plan.splits > 1) {
      cluster = 2;
    }
  }
  const int64_t received =
      4 * rows * plan.splits * (2 + plan.variant.dims / cluster);
  // NOTE: a cluster has eight blocks at most. With many more units than that,
  // or long contexts for clusters that wait for each other, the other launch
  // pays.
  const bool few = cluster * 3 <= fair * 2;
  const bool queue = cluster == kMaxSplitCluster && plan.splits > cluster &&
                     pairs * cluster > BlocksAtOnce(cluster, arch.units);
  const bool meets = !few && !queue && received <= MostReceivedBytes(arch);
  plan.slots = static_cast<int>(
      meets ? cluster : std::max<int64_t>(fair, std::min(2, plan.splits)));
  plan.cluster_blocks = meets ? cluster : 1;
  plan.overlap_fold = arch.clusters;
}

// The rings' depth. (8 tokens, a block a unit and three stages, two and one, us
// after a kernel of 2 us with overlap: at 1k 14.9, 16.6, at 8k 67.9, 71.7, of
// FP8 40.2, 55.9.)
constexpr void SelectStages(int64_t blocks, int64_t tiles, int64_t rows,
                            const TensorArch& arch, TensorAttentionPlan& plan) {
  const bool meets = plan.slots == plan.cluster_blocks;
  const bool pairs = blocks > BlocksAtOnce(plan.cluster_blocks, arch.units);
  const int64_t most = pairs && plan.variant.rows == kFewTensorRows
                           ? arch.shared_bytes_of_two()
                           : arch.shared_bytes;
  const int64_t splits = CeilDiv(plan.splits, plan.slots);  // of a block
  const int64_t wave_tiles =
      splits * CeilDiv(CeilDiv(tiles, plan.splits), kTensorWaves);
  const auto fits = [&](int64_t stages, bool run_ahead) {
    return TensorLayoutOf(
               {.dims = plan.variant.dims,
                .value_bytes = plan.variant.fp8 ? 1 : 2,
                .rows = static_cast<int>(rows),
                .stages = static_cast<int>(stages),
                .run_ahead = run_ahead,
                .received_splits = meets ? plan.splits : 0,
                .received_columns =
                    meets ? plan.variant.dims / plan.cluster_blocks : 0})
               .bytes <= most;
  };
  plan.run_ahead = fits(1, true);
  int64_t stages = std::min<int64_t>(kMaxTensorStages, wave_tiles);
  while (stages > 1 && !fits(stages, plan.run_ahead)) --stages;
  plan.stages = static_cast<int>(stages);
}

constexpr TensorAttentionPlan SelectTensorAttentionPlan(
    const TensorAttentionProblem& problem, const TensorArch& arch) {
  const int64_t group = problem.heads / problem.kv_heads;
  const int64_t blocks = problem.kv_heads * GroupParts(group);
  TensorAttentionPlan plan{
      .variant = {.type = problem.q_type,
                  .fp8 = IsFp8(problem.kv_type),
                  .dims = problem.head_dim <= 64 ? 64 : 128},
      .split = SelectSplitRule(blocks, arch),
      .max_position = problem.max_position};
  if (problem.neighbours && problem.tokens > 1) {
    while (2 * plan.run_tokens * GroupRows(group) <= kTensorRows) {
      plan.run_tokens *= 2;
    }
  }
  const int64_t rows = plan.run_tokens * GroupRows(group);
  if (plan.run_tokens > 1 || rows > kFewTensorRows) {
    plan.variant.rows = kTensorRows;
  }
  plan.splits = static_cast<int>(
      MaxSplitsOf(plan.split, problem.max_position, problem.window));
  const int64_t pairs = problem.tokens * blocks;
  const int64_t tiles = MaxTilesOf(problem.max_position, problem.window);
  SelectSlots(pairs, rows, arch, plan);
  SelectStages(pairs * plan.slots, tiles, rows, arch, plan);
  if (plan.run_tokens == 1 && pairs * kMaxSplitCluster <= arch.units &&
      CeilDiv(tiles, plan.slots) * 2 * kTilePositions <= kMostRowsOfPrefetch) {
    plan.prefetch_rows = kPrefetchRows;
  }
  plan.tokens =
      plan.slots != plan.cluster_blocks
          ? std::min(problem.tokens, MaxPartialTokens(blocks, arch.units))
          : problem.tokens;
  return plan;
}

// Enough for every window, and for fewer tokens.
constexpr int64_t TensorWorkspaceBytes(const TensorAttentionProblem& problem,
                                       const TensorArch& arch) {
  const int64_t blocks =
      problem.kv_heads * GroupParts(problem.heads / problem.kv_heads);
  const int64_t splits =
      MaxSplitsOf(SelectSplitRule(blocks, arch), problem.max_position, 0);
  if (splits == 1) return 0;
  return std::min(problem.tokens,
                  MaxPartialTokens(problem.kv_heads, arch.units)) *
         problem.heads * splits * SplitSize(problem.head_dim) *
         int64_t{sizeof(float)};
}

}  // namespace lamina::attention_internal
