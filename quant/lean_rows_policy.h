#pragma once

// When the lean kernels (quant/lean_rows_args.h) are used, and how they split
// rows: plain values, no GPU needed. `inputs`: 1, or 2 (SwiGLU), of
// `type`.

#include <cstdint>
#include <optional>

#include "lamina/core/math.h"
#include "lamina/quant/lean_rows_args.h"

namespace lamina::quant_internal {

namespace lean_internal {

// A block's lanes when `blocks` share a row.
constexpr int64_t LanesFor(int64_t cols, int64_t columns, int64_t blocks,
                           const gpu::RowArch& arch) {
  return RoundUp(CeilDiv(cols, columns * blocks), arch.wave_size);
}

// Lanes from which on a kernel's dependents had better not start at once: they
// would take the units from its own blocks. Where lanes reduce they have time
// to start later in any case.
constexpr int64_t LateLanes(const gpu::RowArch& arch) {
  return int64_t{arch.units} * 200;
}

// Outputs for which lanes know nothing of each other, but within a wave.
//
// Measured, bf16 to e4m3fn, static scale (H200, 2026-11-30; us a graph node,
// plain / with overlap / with late dependents):
//   SwiGLU, 4 columns a lane, blocks of 128 and of 448 lanes; 8 columns
//      1 x 14336  1.19 / 0.80 / 0.93, 1.35 / 1.02 / 0.99
//     16 x 14336  2.03 / 1.94 / 1.68, 2.06 / 1.87 / 1.55
//     32 x 14336  2.36 / 2.23 / 2.29, 2.33 / 2.06 / 1.85; 2.42 / 2.98
//     64 x 14336  3.17 / 3.14 / 3.45, 3.11 / 2.59 / 2.59; 3.31 / 3.43 / 2.72
//    128 x 14336  5.63 / 5.45 / 5.72, 4.82 / 4.40 / 4.31; 4.45 / 3.98 / 3.80
//   SwiGLU, 8 columns a lane, a row each and many_rows
//    128 x 14336  4.40, 4.99;  512 x 14336  13.4, 12.1;  2048 x
//    14336 47.4, 39.5
//   Quantize, 8 columns a lane, a row each and many_rows
//   2048 x 4096   7.57, 7.64
constexpr LeanRowsPlan SelectElements(LeanOutput output, int64_t rows,
                                      int64_t cols, int inputs, DType type,
                                      const gpu::RowArch& arch) {
  LeanRowsPlan plan{.variant = {.output = output}, .row_groups = rows};
  const bool reduces = output == LeanOutput::kPerBlock;
  int64_t most = 256;
  // Four columns a lane are half the instructions from its load to its store:
  // as long as all those lanes fit the units at once.
  if (inputs == 2 &&
      rows * cols / 4 <= int64_t{arch.units} * (reduces ? 1024 : 2048)) {
    plan.variant.columns = 4;
    most = reduces || rows * cols / 4 < LateLanes(arch) ? 128 : 512;
  }
  plan.late_dependents =
      reduces || rows * cols / plan.variant.columns >= LateLanes(arch);
  const int columns = plan.variant.columns;
  while (LanesFor(cols, columns, plan.row_blocks(), arch) > most) {
    ++plan.blocks_log2;
  }
  plan.lanes =
      static_cast<int>(LanesFor(cols, columns, plan.row_blocks(), arch));
  // As many as the loops have registers for.
  LeanRowsVariant loop = plan.variant;
  loop.many_rows = true;
  const int64_t lanes = int64_t{MaxLanes(loop)} * BlocksAUnit(loop, type);
  const int64_t groups = arch.units * (lanes / plan.lanes) / plan.row_blocks();
  if (inputs == 2 && columns == 8 && groups > 0 && rows >= 4 * groups) {
    plan.variant = loop;
    plan.row_groups = groups;
    plan.late_dependents = false;
  }
  return plan;
}

// A scale a row.
//
// Measured, bf16 to e4m3fn (H200, 2026-11-30; us a graph node, plain / with
// overlap / with late dependents):
//   Quantize, a block with 1 and with 2 pieces a lane; clusters
//     32 x 4096   1.47 / 1.11, 1.41 / 1.05; 4 blocks 1.87 / 1.67
//   2048 x 4096   9.06, 7.60
//      1 x 14336  2 pieces 1.78 / 1.35; 8 blocks 1.76 / 1.36
//     64 x 28672  4 pieces 3.76 / 3.34; 8 blocks 5.07 / 4.63
//   SwiGLU, clusters of 8, 4, 2 blocks; a block with 2 pieces, and many_rows
//      1 x 14336  2.02 / 1.58 / 1.58, 2.22 / 1.78, 2.75 / 2.29; 3.47 / 3.05
//     16 x 14336  2.65 / 2.79 / 2.21, 2.71 / 2.60 / 2.21; 3.80 / 3.36
//     32 x 14336  3.18 / 3.23 / 2.65, 3.27 / 2.88 / 2.87; 3.92 / 3.49
//     64 x 14336  3.99 / 3.54, 5.03 / 4.59, 3.77 / 3.11; 4.10 / 3.63
//    128 x 14336  6.81 / 6.38, 7.72 / 7.22, 6.58 / 6.03; 4.65 / 4.11, 5.72
//    / 4.94
//   2048 x 14336  78.8, 81.0, 78.9; 53.4, 44.8
constexpr std::optional<LeanRowsPlan> SelectRows(int64_t rows, int64_t cols,
                                                 int inputs,
                                                 const gpu::RowArch& arch) {
  LeanRowsPlan plan{.variant = {.output = LeanOutput::kPerRow},
                    .row_groups = rows,
                    .late_dependents = true};
  // Pieces of a lane that has a row's share in one block.
  const int most_pieces = inputs == 1 ? 4 : 2;
  const int64_t block_cols = int64_t{8192} * most_pieces;
  const auto use_cluster = [&](int64_t blocks) {
    while (2 * plan.row_blocks() <= blocks &&
           2 * plan.row_blocks() <= arch.max_cluster_blocks &&
           LanesFor(cols, 8, 2 * plan.row_blocks(), arch) >= 64) {
      ++plan.blocks_log2;
    }
  };
  if (inputs == 1) {
    if (cols > block_cols || (cols > 16384 && 8 * rows <= arch.units)) {
      use_cluster(arch.max_cluster_blocks);
    }
  } else if (cols > block_cols) {
    use_cluster(arch.max_cluster_blocks);
  } else if (rows * (cols <= 4096 ? 8 : 4) <= arch.units) {
    use_cluster(arch.max_cluster_blocks);
  } else if (cols > 4096) {
    use_cluster(arch.units / rows);  // one block a unit
  }
  if (plan.blocks_log2 > 0) {
    plan.variant.scope = gpu::RowScope::kCluster;
  } else if (cols > block_cols) {
    return std::nullopt;
  } else {
    // With few rows a unit has one block, and more lanes are sooner done.
    const bool one =
        inputs == 1 ? cols <= 2048 : cols <= 8192 && rows <= arch.units;
    const int64_t pieces = one ? 1 : cols <= 16384 ? 2 : 4;
    plan.variant.pieces = static_cast<int>(pieces);
  }
  const int64_t lanes =
      LanesFor(cols, int64_t{8} * plan.variant.pieces, plan.row_blocks(), arch);
  if (lanes > 1024) return std::nullopt;
  plan.lanes = static_cast<int>(lanes);
  const int64_t resident = arch.units * (1024 / lanes);
  if (inputs == 2 && plan.variant.pieces == 2 && rows >= 3 * resident) {
    plan.variant.many_rows = true;
    plan.row_groups = resident;
    plan.late_dependents = false;
  }
  return plan;
}

}  // namespace lean_internal

// No plan for rows that they do not take: short ones, and with a scale a row
// very long ones.
constexpr std::optional<LeanRowsPlan> SelectLeanRowsPlan(
    LeanOutput output, int64_t rows, int64_t cols, int inputs, DType type,
    const gpu::RowArch& arch) {
  if (cols < 256 || cols % 8 != 0 || cols >= 1 << 28 || rows >= 1 << 28) {
    return std::nullopt;
  }
  const std::optional<LeanRowsPlan> plan =
      output == LeanOutput::kPerRow
          ? lean_internal::SelectRows(rows, cols, inputs, arch)
          : lean_internal::SelectElements(output, rows, cols, inputs, type,
                                          arch);
  if (plan.has_value() && plan->blocks() > gpu::MaxBlocks(plan->lanes)) {
    return std::nullopt;
  }
  return plan;
}

}  // namespace lamina::quant_internal
