#pragma once

// When the lean kernels (norm/lean_norm_args.h) are used, and how they split
// rows: plain values, no GPU needed.

#include <optional>

#include "lamina/norm/lean_norm_args.h"

namespace lamina::norm_internal {

namespace lean_internal {

// A block's lanes when `blocks` share a row.
constexpr int LanesFor(int64_t cols, int octets, int blocks) {
  return static_cast<int>(RoundUp(CeilDiv(cols, int64_t{8} * octets * blocks),
                                  octets == 1 ? 128 : 64));
}

constexpr LeanNormPlan BlockPlan(int64_t cols, int octets) {
  return {.split = {.scope = gpu::RowScope::kBlock,
                    .octets = octets,
                    .lanes = LanesFor(cols, octets, 1)}};
}

// Rows for about every unit, or more.
constexpr std::optional<LeanNormPlan> SelectManyRows(int64_t rows, int64_t cols,
                                                     bool residual, bool f32,
                                                     const gpu::RowArch& arch) {
  // All rows at once, or nearly: one octet a lane is soonest done.
  const bool at_once =
      cols <= 4096 && rows * LanesFor(cols, 1, 1) <= int64_t{arch.units} * 2048;
  if (cols <= 1024 || at_once || (f32 && cols <= 8192)) {
    return BlockPlan(cols, 1);
  }
  if (f32) return std::nullopt;
  LeanNormPlan plan = BlockPlan(cols, 2);
  // Blocks that come and go spread their loads well, when there are many of
  // them; fewer do better when each loads its next row early.
  const int64_t lanes = plan.split.lanes;
  const int64_t resident = int64_t{arch.units} * 1024;
  const int64_t waves = rows * lanes / resident;
  const bool many = residual ? waves >= 4 : waves >= 16 && lanes <= 256;
  if (cols <= int64_t{arch.wide_lanes} * 16 && (many || waves == 0)) {
    return plan;
  }
  plan.many_rows = true;
  plan.blocks = resident / lanes;
  return plan;
}

constexpr std::optional<LeanNormPlan> SelectFewRows(int64_t rows, int64_t cols,
                                                    bool f32,
                                                    const gpu::RowArch& arch) {
  if (cols <= 4096) return BlockPlan(cols, 1);
  int blocks = arch.max_cluster_blocks;
  while (blocks > 2 && (LanesFor(cols, 1, blocks) < 128 ||
                        blocks * rows > 4 * int64_t{arch.units})) {
    blocks /= 2;
  }
  if (blocks > 1 && LanesFor(cols, 1, blocks) <= 1024) {
    return LeanNormPlan{.split = {.scope = gpu::RowScope::kCluster,
                                  .octets = 1,
                                  .lanes = LanesFor(cols, 1, blocks),
                                  .cluster_blocks = blocks}};
  }
  if (cols <= 8192) return BlockPlan(cols, 1);
  // No clusters: a block holds a row where its lanes have the registers.
  if (f32 || arch.wide_lanes < 1024 || cols > 32768) return std::nullopt;
  const LeanNormPlan plan = BlockPlan(cols, cols <= 16384 ? 2 : 4);
  if (rows > gpu::MaxBlocks(plan.split.lanes)) return std::nullopt;
  return plan;
}

}  // namespace lean_internal

// No plan for rows that they do not take: short ones, and very long ones. f32:
// of x; dynamic: scales that the kernel finds.
//
// Measured, bf16 (H200, 2026-11-30; us a graph node, plain / with overlap /
// with late dependents):
//   AddRmsNorm to e4m3fn, static scale; a block, clusters of 2, 4, 8
//      1 x 4096   1.76 / 1.28 / 1.30, 1.94, 1.84 / 1.36, 1.91
//     32 x 4096   2.24 / 1.93 / 1.77, 2.51, 2.51 / 2.03 / 2.12, 2.63
//      1 x 8192   2.42, 2.29, 2.07 / 1.59, 1.99 / 1.48 / 1.59
//     32 x 8192   3.07, 3.05, 2.97 / 2.85 / 2.49, 2.94 / 2.90 / 2.53
//      1 x 16384  -, 3.32, 2.49, 2.25 / 1.74 / 1.84
//     16 x 16384  -, 3.86, 3.19 / 3.36 / 2.65, 3.09 / 3.47 / 2.66
//   a block with 1 octet a lane, with 2, and many_rows (2); cluster of 4
//     64 x 8192   3.46, 3.28 / 3.23 / 2.85, 3.38; 3.55 / 3.63 / 3.02
//    128 x 8192   4.35, 4.20 / 3.99 / 3.88, 4.20 / 4.08 / 4.20; 4.67
//    128 x 16384  -, -, 6.63 / 6.14 / 6.14; 8.58
//    512 x 8192   10.1, 9.85, 9.53;        2048 x 8192   32.0, 30.9, 32.4
//   2048 x 4096   16.4, 16.3, 17.1;       16384 x 4096   114, 113, 124
//   RmsNorm, a block with 1 octet, with 2, and many_rows (2)
//    512 x 2048   2.89, 3.00, 2.98;       16384 x 1024   20.7, 23.8, 22.6
//   2048 x 4096   12.1, 10.2, 9.9;        16384 x 4096   80, 66, 73
//  16384 x 5120   111, 90, 84;            16384 x 8192   286, 139, 136
constexpr std::optional<LeanNormPlan> SelectLeanNormPlan(
    int64_t rows, int64_t cols, bool residual, bool f32, bool dynamic,
    const gpu::RowArch& arch) {
  if (cols <= 256 || cols % 8 != 0) return std::nullopt;
  const bool many = rows * 5 >= int64_t{arch.units} * 2 && cols <= 16384;
  std::optional<LeanNormPlan> plan =
      many ? lean_internal::SelectManyRows(rows, cols, residual, f32, arch)
           : lean_internal::SelectFewRows(rows, cols, f32, arch);
  if (!plan.has_value()) return std::nullopt;
  // Dependents that start at once would take the units from the kernel's own
  // blocks, when those are many.
  const int64_t lanes = rows * plan->split.lanes * plan->split.cluster_blocks;
  plan->late_dependents =
      !plan->many_rows && (dynamic || lanes >= int64_t{arch.units} * 64);
  return plan;
}

}  // namespace lamina::norm_internal
