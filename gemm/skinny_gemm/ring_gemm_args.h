#pragma once

// The GEMM of Hopper's tensor cores (gemm/skinny_gemm/ring_gemm.cuh): what its
// kernels take and which there are.

#include <cstdint>

#include "lamina/core/device/tensor_map.h"
#include "lamina/core/launch.h"
#include "lamina/core/math.h"
#include "lamina/gemm/skinny_gemm/gemm_args.h"

namespace lamina::gemm_internal {

// Weights, then activations.
enum class RingTypes : uint8_t { kF8, kBF16, kF16, kF8BF16 };
constexpr int WeightBytes(RingTypes types) {
  return types == RingTypes::kF8 || types == RingTypes::kF8BF16 ? 1 : 2;
}
constexpr int ActivationBytes(RingTypes types) {
  return types == RingTypes::kF8 ? 1 : 2;
}

struct RingGemmVariant {
  RingTypes types = RingTypes::kF8;
  int rows = 8;  // most rows of x: 8, 16, 32 or 64
  bool block_scales = false;
  int wave_size = 32;

  constexpr bool CompiledFor(bool clusters) const {
    return clusters && wave_size == 32;
  }

  friend constexpr bool operator==(const RingGemmVariant&,
                                   const RingGemmVariant&) = default;
};

inline constexpr int kSegmentBytes = 128;  // of a row: what a swizzle spans
inline constexpr int kRingTileRows = 64;   // of w: what one wgmma takes

// Segments of w in a stage: adjacent along K.
// NOTE: 512 adjacent bytes of a row rather than 128 are worth 0.1 to 0.5 us
// (h200, 2026-11-29, prototype); more than 256 leave too few stages of x for
// its 64 rows.
constexpr int StageSegments(const RingGemmVariant& variant) {
  return variant.rows == 64 ? 2 : 4;
}
constexpr int StageStepBytes(const RingGemmVariant& variant) {
  return StageSegments(variant) * kSegmentBytes;
}
// Bytes of x that meet a stage of w.
constexpr int ActivationStageBytes(const RingGemmVariant& variant) {
  return variant.rows * StageStepBytes(variant) / WeightBytes(variant.types) *
         ActivationBytes(variant.types);
}

// Warpgroups that compute, at most. NOTE: with four of them a thread has 96
// registers, with two 168.
constexpr int MaxConsumers(const RingGemmVariant& variant) {
  const bool widened = variant.types == RingTypes::kF8BF16;
  return variant.rows >= 32 && (widened || variant.block_scales) ? 2 : 4;
}
// Three waves load w and one loads x.
inline constexpr int kWeightThreads = 96;
constexpr int RingGemmThreads(int consumers) { return consumers * 128 + 128; }

// Sums of a tile that a thread has.
constexpr int RingSums(const RingGemmVariant& variant) {
  return variant.rows / 2;
}

// How a launch goes about it: ring_gemm.cuh says what the parts are.
struct RingGemmPlan {
  RingGemmVariant variant = {};
  int blocks = 0;     // a multiple of cluster
  int cluster = 1;    // blocks that share columns: a part of K each
  int consumers = 4;  // warpgroups that compute: tiles * shares
  int tiles = 1;      // of a group
  int shares = 4;     // of K, of each tile
  int groups = 1;     // of tiles, of a block
  int tile_cols = 0;  // of y, a tile
  int stages = 0;     // of w: a multiple of consumers
  int x_stages = 0;   // a multiple of shares
  // Two segments of a tile of up to 32 rows are the rows of one wgmma.
  bool pairs = false;
  // w by boxes of whole tiles, which one thread asks for.
  bool tensor_copies = false;

  friend constexpr bool operator==(const RingGemmPlan&,
                                   const RingGemmPlan&) = default;
};

inline constexpr int kPairRows = kRingTileRows / 2;
// Types and rows of x for which there are pairs.
constexpr bool TakesPairs(const RingGemmVariant& variant) {
  return variant.types != RingTypes::kF8BF16 && !variant.block_scales &&
         variant.rows <= 32;
}
// What can be split over the blocks of a cluster.
// NOTE: with fewer rows, x is little beside w.
constexpr bool TakesClusters(const RingGemmVariant& variant) {
  return variant.rows == 64;
}
// Sums that are added up in the end for a result: those of the blocks of a
// cluster, of each those of its shares, of each those of both segments of
// pairs.
constexpr int PartialSums(const RingGemmPlan& plan) {
  return plan.cluster * plan.shares * (plan.pairs ? 2 : 1);
}
// Blocks that have columns of their own.
constexpr int Owners(const RingGemmPlan& plan) {
  return plan.blocks / plan.cluster;
}

// Rows of w behind a column of y.
constexpr int RowsOfColumn(bool gated) { return gated ? 2 : 1; }

// Bytes from the start of a block's shared memory, where the stages of w are.
struct RingGemmLayout {
  int segment_bytes = 0;  // of all rows of a tile
  int stage_bytes = 0;
  int x = 0;
  // Scales of x: [rows], with scales of blocks [segments of the block, rows],
  // or none where these would be too many.
  int x_scales = 0;
  bool has_x_scales = false;
  // Partial sums: in a cluster memory of their own, which other blocks write to
  // when they like, else where the stages have been.
  int exchange = 0;
  int phasers = 0;
  int bytes = 0;
};
inline constexpr int kMostScaleBytes = 32 << 10;
// steps: of a block.
constexpr RingGemmLayout LayoutOf(const RingGemmPlan& plan, bool gated,
                                  int64_t steps) {
  const RingGemmVariant& variant = plan.variant;
  const int rows =
      plan.pairs ? kPairRows : static_cast<int>(RoundUp(plan.tile_cols, 8));
  RingGemmLayout layout;
  layout.segment_bytes = rows * RowsOfColumn(gated) * kSegmentBytes;
  layout.stage_bytes = layout.segment_bytes * StageSegments(variant);
  layout.x = plan.stages * layout.stage_bytes;
  const int exchange =
      PartialSums(plan) == 1
          ? 0
          : plan.consumers * 128 * RingSums(variant) * int{sizeof(float)};
  if (plan.cluster == 1 && layout.x < exchange) layout.x = exchange;
  layout.x_scales = layout.x + plan.x_stages * ActivationStageBytes(variant);
  const int64_t scale_bytes =
      (variant.block_scales ? steps * StageSegments(variant) : 1) *
      variant.rows * int64_t{sizeof(float)};
  layout.has_x_scales = scale_bytes <= kMostScaleBytes;
  layout.phasers = layout.x_scales +
                   (layout.has_x_scales ? static_cast<int>(scale_bytes) : 0);
  if (plan.cluster > 1) {
    layout.exchange = layout.phasers;
    layout.phasers += exchange;
  }
  layout.bytes = layout.phasers + (2 * (plan.stages + plan.x_stages) + 1) * 8;
  // NOTE: a wgmma reads 64 rows whatever a tile has: the last stage's must end
  // within the block's memory.
  const int reach = layout.x + kRingTileRows * kSegmentBytes;
  if (layout.bytes < reach) layout.bytes = reach;
  return layout;
}

// Bytes from w to the rows behind the columns of y.
struct RingGemmRows {
  int64_t first = 0;  // of column 0
  int64_t next = 0;   // from a column to the next
  int64_t up = 0;     // from the row of a column's gate to that of its up
};
constexpr RingGemmRows RowsOf(const GemmArgs& gemm) {
  const int64_t pitch = gemm.w_pitch;
  if (!gemm.epilogue.gated) return {.next = pitch};
  const int64_t half = gemm.epilogue.cols * pitch;
  switch (gemm.epilogue.gate.layout) {
    case GateLayout::kGateFirst:
      return {.next = pitch, .up = half};
    case GateLayout::kGateSecond:
      return {.first = half, .next = pitch, .up = -half};
    case GateLayout::kInterleaved:
      return {.next = 2 * pitch, .up = pitch};
  }
  return {};
}

struct RingGemmArgs {
  gpu::TensorMap x_map = {};  // boxes of variant.rows rows and 128 bytes
  gpu::TensorMap w_map = {};  // with tensor_copies: of tile_cols rows
  GemmArgs gemm = {};
  RingGemmPlan plan = {};
  RingGemmLayout layout = {};
  RingGemmRows rows = {};
  int steps = 0;        // stages along K of a block: a multiple of plan.shares
  int whole_steps = 0;  // that lie within K
  int tail_bytes = 0;   // of a row after these
  int cols = 0;         // of y, a cluster: so many,
  int more_cols = 0;    // and one more in so many of the first clusters
  int x_releases = 1;   // of a stage of x, by each wave that has used it
};

// By types; plan.variant.types is theirs.
gpu::Error LaunchRingGemmF8(const RingGemmArgs& args,
                            const gpu::LaunchTarget& target);
gpu::Error LaunchRingGemmBF16(const RingGemmArgs& args,
                              const gpu::LaunchTarget& target);
gpu::Error LaunchRingGemmF16(const RingGemmArgs& args,
                             const gpu::LaunchTarget& target);
gpu::Error LaunchRingGemmF8BF16(const RingGemmArgs& args,
                                const gpu::LaunchTarget& target);
inline gpu::Error LaunchRingGemm(const RingGemmArgs& args,
                                 const gpu::LaunchTarget& target) {
  switch (args.plan.variant.types) {
    case RingTypes::kF8:
      return LaunchRingGemmF8(args, target);
    case RingTypes::kBF16:
      return LaunchRingGemmBF16(args, target);
    case RingTypes::kF16:
      return LaunchRingGemmF16(args, target);
    case RingTypes::kF8BF16:
      return LaunchRingGemmF8BF16(args, target);
  }
  return gpu::kNoKernel;
}

}  // namespace lamina::gemm_internal
