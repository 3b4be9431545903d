#pragma once

// When the kernels of gemm/skinny_gemm/ring_gemm.cuh are used, and how they
// split the work: plain values, no GPU needed.

#include <cstdint>
#include <optional>

#include "lamina/core/math.h"
#include "lamina/gemm/skinny_gemm/ring_gemm_args.h"

namespace lamina::gemm_internal {

// Nothing for pairs of types that there are no kernels for.
constexpr std::optional<RingTypes> RingTypesOf(DType w, DType x) {
  if (w == DType::kF8E4M3Fn && x == w) return RingTypes::kF8;
  if (w == DType::kF8E4M3Fn && x == DType::kBF16) return RingTypes::kF8BF16;
  if (w == DType::kBF16 && x == w) return RingTypes::kBF16;
  if (w == DType::kF16 && x == w) return RingTypes::kF16;
  return std::nullopt;
}

struct RingGemmProblem {
  int64_t m = 0;
  int64_t cols = 0;  // of y
  int64_t k = 0;
  RingTypes types = RingTypes::kF8;
  bool gated = false;
  bool block_scales = false;
  bool overlap = false;  // Stream::overlap()
};

struct RingArch {
  int units = 1;             // SMs
  int64_t shared_bytes = 0;  // most a block
};

// What a plan is made of.
struct RingGemmChoice {
  int64_t blocks = 0;
  int cluster = 1;
  int consumers = 4;
  int tiles = 1;
  int64_t ring_bytes = 0;    // stages of w, at most
  int64_t x_ring_bytes = 0;  // of x
  bool pairs = false;
  bool tensor_copies = false;
};

constexpr RingGemmVariant RingGemmVariantFor(const RingGemmProblem& problem) {
  RingGemmVariant variant = {.types = problem.types,
                             .block_scales = problem.block_scales};
  while (variant.rows < problem.m) variant.rows *= 2;
  return variant;
}

// Steps of a block along K; the last ones can have nothing of it.
constexpr int RingGemmSteps(const RingGemmPlan& plan, int64_t k) {
  const int64_t bytes = k * WeightBytes(plan.variant.types);
  const int64_t steps = CeilDiv(bytes, StageStepBytes(plan.variant));
  return static_cast<int>(RoundUp(CeilDiv(steps, plan.cluster), plan.shares));
}

namespace ring_internal {

// H200, 2026-11-30: 96 to 160 KiB on their way to a block are the same.
inline constexpr int64_t kRingBytes = 128 << 10;
// H200, 2026-11-30: twice or half as much is within 1 %.
constexpr int64_t ActivationRingBytes(int rows) {
  return rows == 8 ? 32 << 10 : 64 << 10;
}
// Kernels that overlap finish sooner when the next one finds some SMs free, up
// to so many bytes of w: H200, 2026-11-30, 1 to 2 % (4096 x 4096, 2304 x 16384
// FP8).
inline constexpr int64_t kSpareUnitsBytes = int64_t{40} << 20;
inline constexpr int kSpareUnits = 4;

// Warpgroups. H200, 2026-11-30: two are 1 to 6 % faster, having fewer to start
// and to wait for, but for FP8 with more than two tiles of w a block (28672 x
// 4096: 4 are 2 % faster) and with 64 rows and more (57344 x 8192: 2 %);
// widened weights, and scales of blocks with one tile, want all there can be.
constexpr int Consumers(const RingGemmVariant& variant, int64_t block_rows) {
  if (variant.types == RingTypes::kF8BF16 ||
      (variant.block_scales && block_rows <= kRingTileRows)) {
    return MaxConsumers(variant);
  }
  const bool four_tiles = block_rows > 2 * kRingTileRows;
  const bool one_group = block_rows <= 4 * kRingTileRows;
  const bool wants_four =
      four_tiles &&
      ((variant.types == RingTypes::kF8 && one_group) || variant.rows == 64);
  return wants_four ? MaxConsumers(variant) : 2;
}

// Whether copies of whole tiles bring w sooner than those of many threads,
// whose cost is that of a stage. H200, 2026-11-30: -27 % for 2304 x 16384 FP8
// at 8 rows of x, -4 % for 4096 x 4096 with overlap; at 64 rows -5 % for 10240
// x 8192 and 13312 x 16384, +6 % for 8192 x 28672; a loss of 2 to 6 %
// elsewhere.
constexpr bool WantsTensorCopies(const RingGemmProblem& problem,
                                 const RingGemmChoice& choice,
                                 int64_t tile_cols) {
  const RingGemmVariant variant = RingGemmVariantFor(problem);
  const bool long_rows = problem.k >= 8192;
  if (problem.gated || choice.cluster > 1) return false;
  if (variant.types == RingTypes::kF8BF16) {
    const bool some_cols = problem.cols <= choice.blocks * 32;
    return variant.rows <= 16 ? some_cols || long_rows
                              : !some_cols && long_rows;
  }
  if (tile_cols <= 24) return true;
  if (variant.rows == 64) return long_rows && tile_cols <= 52;
  return variant.types == RingTypes::kF8 && variant.rows == 8 &&
         problem.overlap && choice.pairs;
}

// Largest multiple of `step` up to `most`, at least one step.
constexpr int StagesIn(int64_t most, int step) {
  return static_cast<int>(most < step ? step : most / step * step);
}

}  // namespace ring_internal

constexpr RingGemmChoice SelectRingGemmChoice(const RingGemmProblem& problem,
                                              const RingArch& arch) {
  const RingGemmVariant variant = RingGemmVariantFor(problem);
  const int64_t rows = problem.cols * RowsOfColumn(problem.gated);
  // NOTE: never by `overlap` but for copies: on tiles, shares, pairs and
  // clusters depend the bits.
  const int64_t least_blocks = arch.units > 8 * ring_internal::kSpareUnits
                                   ? arch.units - ring_internal::kSpareUnits
                                   : arch.units;
  const bool few_cols = problem.cols <= least_blocks * kPairRows;
  RingGemmChoice choice = {
      .blocks = arch.units,
      .consumers =
          ring_internal::Consumers(variant, CeilDiv(rows, least_blocks)),
      .ring_bytes = ring_internal::kRingBytes,
      .x_ring_bytes = ring_internal::ActivationRingBytes(variant.rows),
      .pairs = TakesPairs(variant) && !problem.gated && few_cols};
  if (TakesClusters(variant) && !problem.gated && few_cols &&
      least_blocks > 2) {
    choice.cluster = 2;
  }
  const int64_t least_owners = least_blocks / choice.cluster;
  while (choice.tiles < choice.consumers &&
         rows > least_owners * choice.tiles * kRingTileRows) {
    choice.tiles *= 2;
  }
  // NOTE: without columns there is no plan, and no division by them either.
  const int64_t owner_rows = CeilDiv(rows < 1 ? 1 : rows, least_owners);
  const int64_t groups = CeilDiv(owner_rows, choice.tiles * kRingTileRows);
  choice.tensor_copies = ring_internal::WantsTensorCopies(
      problem, choice, CeilDiv(owner_rows, choice.tiles * groups));
  if (problem.overlap && rows * problem.k * WeightBytes(problem.types) <
                             ring_internal::kSpareUnitsBytes) {
    choice.blocks = least_blocks;
  }
  return choice;
}

// No plan for what the kernels do not take: more than 64 rows, no columns or no
// K, sizes that 32 bits do not hold, too little shared memory, several groups
// of tiles that have partial sums, pairs where there are none.
constexpr std::optional<RingGemmPlan> MakeRingGemmPlan(
    const RingGemmProblem& problem, const RingGemmChoice& choice,
    const RingArch& arch) {
  if (problem.m < 1 || problem.m > 64 || problem.cols < 1 || problem.k < 1 ||
      problem.cols >= 1 << 29 || problem.k >= 1 << 28 ||
      (choice.tensor_copies && problem.gated)) {
    return std::nullopt;
  }
  RingGemmPlan plan = {.variant = RingGemmVariantFor(problem),
                       .cluster = choice.cluster,
                       .consumers = choice.consumers,
                       .tiles = choice.tiles,
                       .shares = choice.consumers / choice.tiles,
                       .pairs = choice.pairs,
                       .tensor_copies = choice.tensor_copies};
  if (choice.cluster < 1 || choice.blocks < choice.cluster ||
      (choice.cluster > 1 && (!TakesClusters(plan.variant) || problem.gated))) {
    return std::nullopt;
  }
  const int64_t most_owners = choice.blocks / choice.cluster;
  const int64_t owners =
      most_owners < problem.cols ? most_owners : problem.cols;
  plan.blocks = static_cast<int>(owners) * choice.cluster;

  const int64_t cols = CeilDiv(problem.cols, owners);  // of a cluster, at most
  const int64_t most_cols = kRingTileRows / RowsOfColumn(problem.gated);
  plan.groups = static_cast<int>(CeilDiv(cols, plan.tiles * most_cols));
  plan.tile_cols =
      static_cast<int>(CeilDiv(cols, int64_t{plan.tiles} * plan.groups));
  // NOTE: partial sums are exchanged where the stages have been.
  if (plan.groups > 1 && PartialSums(plan) > 1) return std::nullopt;
  if (plan.pairs && (!TakesPairs(plan.variant) || problem.gated ||
                     plan.tiles > 1 || plan.tile_cols > kPairRows)) {
    return std::nullopt;
  }

  const int64_t steps = RingGemmSteps(plan, problem.k);
  const auto stages_for = [](int64_t bytes, int stage_bytes, int64_t used,
                             int step) {
    const int64_t stages = bytes / stage_bytes;
    return ring_internal::StagesIn(stages < used ? stages : used, step);
  };
  plan.stages = stages_for(choice.ring_bytes,
                           LayoutOf(plan, problem.gated, steps).stage_bytes,
                           steps * plan.tiles * plan.groups, plan.consumers);
  plan.x_stages =
      stages_for(choice.x_ring_bytes, ActivationStageBytes(plan.variant),
                 steps * plan.groups, plan.shares);
  while (LayoutOf(plan, problem.gated, steps).bytes > arch.shared_bytes) {
    if (plan.stages > plan.consumers) {
      plan.stages -= plan.consumers;
    } else if (plan.x_stages > plan.shares) {
      plan.x_stages -= plan.shares;
    } else {
      return std::nullopt;
    }
  }
  return plan;
}

constexpr std::optional<RingGemmPlan> SelectRingGemmPlan(
    const RingGemmProblem& problem, const RingArch& arch) {
  return MakeRingGemmPlan(problem, SelectRingGemmChoice(problem, arch), arch);
}

// All but the maps.
constexpr RingGemmArgs MakeRingGemmArgs(const GemmArgs& gemm,
                                        const RingGemmPlan& plan) {
  RingGemmArgs args;
  args.gemm = gemm;
  args.plan = plan;
  args.steps = RingGemmSteps(plan, gemm.k);
  args.layout = LayoutOf(plan, gemm.epilogue.gated, args.steps);
  args.rows = RowsOf(gemm);
  const int64_t row_bytes = int64_t{gemm.k} * WeightBytes(plan.variant.types);
  const int step_bytes = StageStepBytes(plan.variant);
  args.whole_steps = static_cast<int>(row_bytes / step_bytes);
  args.tail_bytes = static_cast<int>(row_bytes % step_bytes);
  args.cols = gemm.epilogue.cols / Owners(plan);
  args.more_cols = gemm.epilogue.cols % Owners(plan);
  return args;
}

}  // namespace lamina::gemm_internal
