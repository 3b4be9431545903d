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
  bool long_rings = true;  // a block can have the shared memory for them
};
inline TensorArch TensorArchOf(const DeviceInfo& device) {
  return {.units = device.num_units,
          .clusters = device.max_cluster_blocks > 1,
          .long_rings = device.shared_memory_bytes >= kLongRingBytes};
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
//
// A cluster combines up to eight splits in the launch itself, which another
// launch does for more of them in some 1.5 us. Long contexts fill the GPU.
// (H200, 2026-11-30, 8 KV heads of 128, bf16, us plain / with overlap, 8 splits
// on 64 of the 132 SMs and 16 with another launch; read alone:
//   1k    6.0 / 6.1,   7.6 / 7.1;    2.46
//   4k    8.9 / 10.0,  10.1 / 10.2;  5.96
//   8k    12.7 / 16.0, 13.6 / 13.8;  9.5
//   32k   36.1 / 40.3, 36.1 / 36.6;  31.1
//   128k  131 / 132,   124 / 124;    118)
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

// Splits that a token can have.
constexpr int64_t MaxSplitsOf(const SplitRule& rule, int64_t max_position,
                              int64_t window) {
  int64_t tiles = max_position / kTilePositions + 1;
  if (window > 0) tiles = std::min(tiles, (window - 1) / kTilePositions + 2);
  const int64_t most =
      tiles > rule.long_tiles ? rule.long_splits : rule.max_splits;
  return std::min<int64_t>(most, CeilDiv(tiles, rule.min_tiles));
}

constexpr TensorAttentionPlan SelectTensorAttentionPlan(
    const TensorAttentionProblem& problem, const TensorArch& arch) {
  const int64_t group = problem.heads / problem.kv_heads;
  const int64_t blocks = problem.kv_heads * GroupParts(group);
  TensorAttentionPlan plan{
      .variant = {.type = problem.q_type,
                  .fp8 = IsFp8(problem.kv_type),
                  .dims = problem.head_dim <= 64 ? 64 : 128},
      .split = SelectSplitRule(blocks, arch)};
  const int64_t splits =
      MaxSplitsOf(plan.split, problem.max_position, problem.window);
  // Two blocks a unit when there are so many: GPCs keep 0.85 of the SMs busy
  // with clusters of eight. Clusters that wait for each other cost more than a
  // launch. (H200, 8 KV heads of 128, bf16, at 1k, us, one block an SM, two,
  // two without clusters: 2 tokens 11.4, 8.3, 8.9; 4 tokens 17.1, 14.1, 11.7;
  // 32 tokens 88, 58, 47.8; read alone 3.55, 6.0, 31.6.)
  const int64_t total = problem.tokens * blocks * splits;
  const bool clustered =
      arch.clusters && splits <= kMaxSplitCluster && total <= arch.units;
  plan.variant.dense =
      !arch.long_rings ||
      (clustered ? total * 20 > int64_t{17} * arch.units : total > arch.units);
  plan.slots = static_cast<int>(splits);
  if (clustered) {
    while (plan.cluster_blocks < splits) plan.cluster_blocks *= 2;
    plan.slots = plan.cluster_blocks;
  }
  if (problem.neighbours && problem.tokens > 1) {
    while (2 * plan.run_tokens * GroupRows(group) <= kTensorRows) {
      plan.run_tokens *= 2;
    }
  }
  plan.tokens =
      plan.cluster_blocks == 1 && plan.slots > 1
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
