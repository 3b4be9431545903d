#pragma once

// When the kernels of gemm/skinny_gemm/ring_gemm.cuh are used, and how they
// split the work: plain values, no GPU needed.

#include <cstdint>
#include <optional>

#include "lamina/core/math.h"
#include "lamina/gemm/skinny_gemm/ring_gemm_args.h"

namespace lamina::gemm_internal {

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

// Steps along K; the last ones can have nothing of it.
constexpr int RingGemmSteps(const RingGemmPlan& plan, int64_t k) {
  const int64_t bytes = k * WeightBytes(plan.variant.types);
  return static_cast<int>(
      RoundUp(CeilDiv(bytes, StageStepBytes(plan.variant)), plan.shares));
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

// Whether copies of whole tiles bring w sooner than those of many threads,
// whose cost is that of a stage. H200, 2026-11-30: -27 % for 2304 x 16384 FP8
// at 8 rows of x, -3 to -10 % for 4096 x 14336, -7 % for 13312 x 16384 at 64
// rows, -11 % for its widened weights; a loss of 2 to 6 % elsewhere.
constexpr bool WantsTensorCopies(const RingGemmVariant& variant, int64_t cols,
                                 int64_t k, int64_t blocks) {
  const bool long_rows = k >= 8192;
  const bool few_cols = cols <= blocks * 24;
  const bool some_cols = cols <= blocks * 32;
  if (variant.types == RingTypes::kF8BF16) {
    return variant.rows <= 16 ? some_cols || long_rows
                              : !some_cols && long_rows;
  }
  switch (variant.rows) {
    case 8:
      return some_cols;
    case 16:
      return few_cols ||
             (some_cols && long_rows && variant.types == RingTypes::kF8);
    case 32:
      return few_cols;
    default:
      return long_rows;
  }
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
  RingGemmChoice choice = {
      .blocks = arch.units,
      .consumers = MaxConsumers(variant),
      .ring_bytes = ring_internal::kRingBytes,
      .x_ring_bytes = ring_internal::ActivationRingBytes(variant.rows)};
  // NOTE: never by `overlap`: on tiles depend the shares of K, on these the
  // bits.
  const int64_t least_blocks = arch.units > 8 * ring_internal::kSpareUnits
                                   ? arch.units - ring_internal::kSpareUnits
                                   : arch.units;
  while (choice.tiles < choice.consumers &&
         rows > least_blocks * choice.tiles * kRingTileRows) {
    choice.tiles *= 2;
  }
  choice.pairs = TakesPairs(variant) && !problem.gated &&
                 problem.cols <= least_blocks * kPairRows;
  choice.tensor_copies =
      !problem.gated && ring_internal::WantsTensorCopies(variant, problem.cols,
                                                         problem.k, arch.units);
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
                       .consumers = choice.consumers,
                       .tiles = choice.tiles,
                       .shares = choice.consumers / choice.tiles,
                       .pairs = choice.pairs,
                       .tensor_copies = choice.tensor_copies};
  const int64_t blocks =
      choice.blocks < problem.cols ? choice.blocks : problem.cols;
  plan.blocks = static_cast<int>(blocks);

  const int64_t cols = CeilDiv(problem.cols, blocks);  // of a block, at most
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
  plan.stages =
      stages_for(choice.ring_bytes, LayoutOf(plan, problem.gated).stage_bytes,
                 steps * plan.tiles * plan.groups, plan.consumers);
  plan.x_stages =
      stages_for(choice.x_ring_bytes, ActivationStageBytes(plan.variant),
                 steps * plan.groups, plan.shares);
  while (LayoutOf(plan, problem.gated).bytes > arch.shared_bytes) {
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
  args.layout = LayoutOf(plan, gemm.epilogue.gated);
  args.rows = RowsOf(gemm);
  args.steps = RingGemmSteps(plan, gemm.k);
  const int64_t row_bytes = int64_t{gemm.k} * WeightBytes(plan.variant.types);
  const int step_bytes = StageStepBytes(plan.variant);
  args.whole_steps = static_cast<int>(row_bytes / step_bytes);
  args.tail_bytes = static_cast<int>(row_bytes % step_bytes);
  args.cols = gemm.epilogue.cols / plan.blocks;
  args.more_cols = gemm.epilogue.cols % plan.blocks;
  return args;
}

}  // namespace lamina::gemm_internal
