#pragma once

// How a chain's stages are split over the blocks that stay: plain values, no
// GPU needed.
//
// What bits depend on (tiles and shares of a GEMM, its pairs, splits of a
// context) stays as it was recorded; how many blocks there are, stages and
// groups of tiles, is the chain's.

#include <algorithm>
#include <cstdint>
#include <optional>

#include "lamina/core/math.h"
#include "lamina/gemm/skinny_gemm/ring_gemm_policy.h"
#include "lamina/persistent/persistent_chain/chain_args.h"

namespace lamina::persistent_internal {

// Bytes of a stage of w with tiles of so many columns.
constexpr int WeightStageBytes(const gemm_internal::RingGemmArgs& args,
                               int64_t tile_cols) {
  const int64_t rows =
      args.plan.pairs ? gemm_internal::kPairRows : RoundUp(tile_cols, 8);
  return static_cast<int>(
      rows * gemm_internal::RowsOfColumn(args.gemm.epilogue.gated) *
      gemm_internal::StageStepBytes(args.plan.variant));
}

// How the columns of a recorded GEMM go over `blocks` blocks and their
// warpgroups. Tiles may become groups, where a result is one sum.
struct ChainSplit {
  int blocks = 0;
  int tiles = 1;
  int shares = 1;
  int groups = 1;
  int tile_cols = 0;
};
constexpr std::optional<ChainSplit> SplitOf(
    const gemm_internal::RingGemmArgs& args, int blocks, int stage_bytes) {
  const gemm_internal::RingGemmPlan& plan = args.plan;
  const int consumers = Consumers(plan.variant.types);
  const bool gated = args.gemm.epilogue.gated;
  ChainSplit split = {.blocks = std::min(blocks, args.gemm.epilogue.cols),
                      .tiles = std::min(plan.tiles, consumers),
                      .shares = plan.shares};
  if (split.tiles * split.shares > consumers) return std::nullopt;
  const int64_t cols = CeilDiv(args.gemm.epilogue.cols, split.blocks);
  const int64_t most = plan.pairs ? gemm_internal::kPairRows
                                  : gemm_internal::kRingTileRows /
                                        gemm_internal::RowsOfColumn(gated);
  for (;; ++split.groups) {
    const int64_t tile = CeilDiv(cols, int64_t{split.tiles} * split.groups);
    if (tile <= most && WeightStageBytes(args, tile) <= stage_bytes) {
      split.tile_cols = static_cast<int>(tile);
      return split;
    }
    if (gemm_internal::PartialSums(plan) > 1 || tile <= 8) return std::nullopt;
  }
}

// What a GEMM keeps in the work memory beside its stages of x.
constexpr int ExchangeBytes(const ChainVariant& variant) {
  return Consumers(variant.types) * 128 *
         gemm_internal::RingSums(variant.gemm()) * int{sizeof(float)};
}
constexpr int ScaleBytes(const ChainVariant& variant) {
  return static_cast<int>(RoundUp(variant.rows * int{sizeof(float)}, 16));
}

inline constexpr int kSharedAlignment = 1024;

// Of stages of w of `stage_bytes`, and at least `work_bytes` for other
// operators. Nothing when it does not fit.
constexpr std::optional<ChainLayout> LayoutFor(const ChainVariant& variant,
                                               int stage_bytes, int work_bytes,
                                               int64_t shared_bytes) {
  const int consumers = Consumers(variant.types);
  const int x_stage = gemm_internal::ActivationStageBytes(variant.gemm());
  const int beside = ExchangeBytes(variant) + ScaleBytes(variant);
  // NOTE: shares of K are at most the warpgroups.
  const int64_t least_x = int64_t{x_stage} * consumers;
  const int64_t wanted_x =
      std::max<int64_t>(least_x, variant.rows == 8 ? 32 << 10 : 64 << 10);
  ChainLayout layout;
  for (const int64_t x_bytes : {wanted_x, least_x}) {
    const int64_t work = RoundUp(
        std::max<int64_t>(work_bytes, x_bytes + beside), kSharedAlignment);
    layout.x_stages =
        static_cast<int>((work - beside) / x_stage / consumers * consumers);
    const int64_t schedule = kScheduleStages * int64_t{sizeof(Stage)};
    const auto phasers = [&](int64_t stages) {
      return (2 * (stages + layout.x_stages + kScheduleStages) + 1) * 8;
    };
    int64_t stages =
        (shared_bytes - work - schedule) / stage_bytes / consumers * consumers;
    while (stages > 0 &&
           stages * stage_bytes + work + schedule + phasers(stages) >
               shared_bytes) {
      stages -= consumers;
    }
    if (stages <= 0) continue;
    layout.stages = static_cast<int>(stages);
    layout.work = static_cast<int>(stages * stage_bytes);
    layout.schedule = layout.work + static_cast<int>(work);
    layout.phasers = layout.schedule + static_cast<int>(schedule);
    layout.bytes = layout.phasers + static_cast<int>(phasers(stages));
    return layout;
  }
  return std::nullopt;
}

// The GEMM as a stage of the chain.
constexpr gemm_internal::RingGemmArgs GemmStage(
    gemm_internal::RingGemmArgs args, const ChainSplit& split,
    const ChainLayout& chain, const ChainVariant& variant, int stage_bytes) {
  gemm_internal::RingGemmPlan& plan = args.plan;
  plan.blocks = split.blocks;
  plan.tiles = split.tiles;
  plan.shares = split.shares;
  plan.consumers = split.tiles * split.shares;
  plan.groups = split.groups;
  plan.tile_cols = split.tile_cols;
  plan.stages = chain.stages;
  plan.x_stages = chain.x_stages;
  plan.tensor_copies = false;
  gemm_internal::RingGemmLayout& layout = args.layout;
  layout.segment_bytes = WeightStageBytes(args, split.tile_cols) /
                         gemm_internal::StageSegments(plan.variant);
  layout.stage_bytes = stage_bytes;
  layout.x = chain.work;
  layout.exchange =
      chain.work +
      chain.x_stages * gemm_internal::ActivationStageBytes(plan.variant);
  layout.x_scales = layout.exchange + ExchangeBytes(variant);
  layout.has_x_scales = true;
  layout.phasers = chain.phasers;
  layout.bytes = chain.bytes;
  args.cols = args.gemm.epilogue.cols / split.blocks;
  args.more_cols = args.gemm.epilogue.cols % split.blocks;
  args.x_releases = Consumers(variant.types) / split.tiles;
  return args;
}

// Blocks that share the splits of a token's KV head: all blocks have some.
constexpr int64_t ContextSlots(int64_t heads, int64_t max_splits, int blocks) {
  return std::clamp<int64_t>(blocks / heads, 1, max_splits);
}
// Keys and values that a block asks for while it waits for the stage before.
inline constexpr int kPrefetchRows = 512;

// Columns that 2^n stand-ins share, eight a thread.
constexpr uint32_t RowBlocksLog2(int64_t cols) {
  uint32_t log2 = 0;
  while ((int64_t{kStandInThreads} * 8 << log2) < cols) ++log2;
  return log2;
}

}  // namespace lamina::persistent_internal
