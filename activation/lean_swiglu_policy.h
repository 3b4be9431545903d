#pragma once

// When the lean kernels (activation/lean_swiglu_args.h) are used, and how they
// split rows: plain values, no GPU needed.
//
// NOTE: the constants below are predictions from instruction counts and
// registers (sm_90a, 2026-11-30); none has been measured yet.

#include <cstdint>
#include <optional>

#include "lamina/activation/lean_swiglu_args.h"
#include "lamina/core/math.h"

namespace lamina::activation_internal {

namespace lean_internal {

// Four columns a lane, half the instructions from its load to its store, as
// long as all those lanes fit the units at once.
inline constexpr int64_t kQuadLanesPerUnit = 1024;
inline constexpr int64_t kQuadRowLanesPerUnit = 2048;
// Lanes of the loops over rows that a unit has registers for (56 a lane, with
// two pieces 64), and rows a lane that make a loop worth its uneven end.
inline constexpr int64_t kLoopLanesPerUnit = 1120;
inline constexpr int64_t kTwoPieceLanesPerUnit = 1024;
inline constexpr int64_t kLoopRows = 8;

// A block's lanes when `blocks` share a row.
constexpr int64_t LanesFor(int64_t cols, int64_t columns, int64_t blocks,
                           const gpu::RowArch& arch) {
  return RoundUp(CeilDiv(cols, columns * blocks), arch.wave_size);
}

// Outputs for which lanes know nothing of each other, but within a wave.
constexpr LeanSwiGluPlan SelectElements(LeanOutput output, int64_t rows,
                                        int64_t cols,
                                        const gpu::RowArch& arch) {
  LeanSwiGluPlan plan{.variant = {.output = output}, .row_groups = rows};
  if (rows * cols <= arch.units * kQuadLanesPerUnit * 4) {
    plan.variant.columns = 4;
  }
  const int columns = plan.variant.columns;
  const int64_t most = columns == 4 ? 128 : 256;
  while (LanesFor(cols, columns, plan.row_blocks(), arch) > most) {
    ++plan.blocks_log2;
  }
  plan.lanes =
      static_cast<int>(LanesFor(cols, columns, plan.row_blocks(), arch));
  const int64_t groups =
      arch.units * (kLoopLanesPerUnit / plan.lanes) / plan.row_blocks();
  if (rows >= kLoopRows * groups && groups > 0) {
    plan.variant.many_rows = true;
    plan.row_groups = groups;
  }
  return plan;
}

constexpr std::optional<LeanSwiGluPlan> SelectRowLoop(
    int64_t rows, int64_t cols, const gpu::RowArch& arch) {
  if (cols > 16384) return std::nullopt;
  const int pieces = cols <= 8192 ? 1 : 2;
  const int64_t lanes = LanesFor(cols, 8 * pieces, 1, arch);
  const int64_t most = pieces == 1 ? kLoopLanesPerUnit : kTwoPieceLanesPerUnit;
  const int64_t groups = arch.units * (most / lanes);
  return LeanSwiGluPlan{.variant = {.output = LeanOutput::kPerRow,
                                    .pieces = pieces,
                                    .many_rows = true},
                        .lanes = static_cast<int>(lanes),
                        .row_groups = rows < groups ? rows : groups};
}

// A scale a row.
constexpr std::optional<LeanSwiGluPlan> SelectRows(int64_t rows, int64_t cols,
                                                   const gpu::RowArch& arch) {
  if (rows * 4 >= arch.units * 3 && cols <= 16384) {
    return SelectRowLoop(rows, cols, arch);
  }
  LeanSwiGluPlan plan{.variant = {.output = LeanOutput::kPerRow, .columns = 4},
                      .row_groups = rows};
  while (2 * plan.row_blocks() <= arch.max_cluster_blocks &&
         LanesFor(cols, 4, 2 * plan.row_blocks(), arch) >= 128 &&
         2 * plan.row_blocks() * rows <= 4 * arch.units) {
    ++plan.blocks_log2;
  }
  int64_t lanes = LanesFor(cols, 4, plan.row_blocks(), arch);
  if (lanes > 1024 ||
      rows * plan.row_blocks() * lanes > arch.units * kQuadRowLanesPerUnit) {
    plan.variant.columns = 8;
    lanes = LanesFor(cols, 8, plan.row_blocks(), arch);
    while (lanes > 1024 && 2 * plan.row_blocks() <= arch.max_cluster_blocks) {
      ++plan.blocks_log2;
      lanes = LanesFor(cols, 8, plan.row_blocks(), arch);
    }
    if (plan.blocks_log2 == 0) return SelectRowLoop(rows, cols, arch);
    if (lanes > 1024) return std::nullopt;
  }
  plan.lanes = static_cast<int>(lanes);
  if (plan.blocks_log2 > 0) plan.variant.scope = gpu::RowScope::kCluster;
  return plan;
}

}  // namespace lean_internal

// No plan for rows that they do not take: short ones, and with a scale a row
// very long ones.
constexpr std::optional<LeanSwiGluPlan> SelectLeanSwiGluPlan(
    LeanOutput output, int64_t rows, int64_t cols, const gpu::RowArch& arch) {
  if (cols < 256 || cols % 8 != 0 || cols >= 1 << 28 || rows >= 1 << 28) {
    return std::nullopt;
  }
  const std::optional<LeanSwiGluPlan> plan =
      output == LeanOutput::kPerRow
          ? lean_internal::SelectRows(rows, cols, arch)
          : lean_internal::SelectElements(output, rows, cols, arch);
  if (plan.has_value() && plan->blocks() > gpu::MaxBlocks(plan->lanes)) {
    return std::nullopt;
  }
  return plan;
}

}  // namespace lamina::activation_internal
