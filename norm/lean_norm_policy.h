#pragma once

// When the lean kernels (norm/lean_norm_args.h) are used, and how they split
// rows: plain values, no GPU needed.

#include <optional>

#include "lamina/norm/lean_norm_args.h"

namespace lamina::norm_internal {

// No plan for rows that they do not take: short ones, and very long ones.
//
// Measured for AddRmsNorm, bf16 to e4m3fn, static scale (H200, 2026-11-30; us a
// graph node, plain / with overlap):
//   1 x 4096   block 1.75 / 1.28, cluster of 4 1.87 / 1.39
//   1 x 8192   block 2.53 / 1.95, clusters of 2, 4, 8: 2.31, 2.12, 2.02 / 1.54
//   1 x 16384  clusters of 2, 4, 8: 3.59, 2.65, 2.45 / 1.92
//   128 x 8192   cluster of 4 4.67, many_rows 4.20; 128 x 16384 8.59, 6.54
//   16384 x 8192, a block a row: 330; many_rows: 240 (1 octet), 246 (2); with a
//   scale a row 447; 333, 252
// Two blocks of 512 lanes a unit are what 64 registers allow.
constexpr std::optional<LeanNormPlan> SelectLeanNormPlan(
    int64_t rows, int64_t cols, const gpu::RowArch& arch) {
  if (cols <= 256 || cols % 8 != 0) return std::nullopt;
  const auto lanes_for = [&](int octets, int blocks) {
    return static_cast<int>(
        RoundUp(CeilDiv(cols, int64_t{8} * octets * blocks), 128));
  };
  if (rows * 4 >= arch.units * 3 && cols <= 16384) {
    const int octets = cols <= 4096 ? 1 : 2;
    const int lanes = lanes_for(octets, 1);
    // What the registers of a unit hold: 64 a lane of 65,536; on CDNA 80 and
    // 86 at most of 131,072 (tests/isa/kernels.json).
    const int64_t lanes_of_unit = arch.wide_lanes < 1024 ? 1024
                                  : octets == 1          ? 1536
                                                         : 1024;
    return LeanNormPlan{.split = {.scope = gpu::RowScope::kBlock,
                                  .octets = octets,
                                  .lanes = lanes},
                        .many_rows = true,
                        .blocks = arch.units * (lanes_of_unit / lanes)};
  }
  if (cols <= 4096) {
    return LeanNormPlan{.split = {.scope = gpu::RowScope::kBlock,
                                  .octets = 1,
                                  .lanes = lanes_for(1, 1)}};
  }
  int blocks = arch.max_cluster_blocks;
  while (blocks > 2 &&
         (lanes_for(1, blocks) < 128 || blocks * rows > 4 * arch.units)) {
    blocks /= 2;
  }
  if (blocks > 1 && lanes_for(1, blocks) <= 1024) {
    return LeanNormPlan{.split = {.scope = gpu::RowScope::kCluster,
                                  .octets = 1,
                                  .lanes = lanes_for(1, blocks),
                                  .cluster_blocks = blocks}};
  }
  if (cols <= 8192) {
    return LeanNormPlan{.split = {.scope = gpu::RowScope::kBlock,
                                  .octets = 1,
                                  .lanes = lanes_for(1, 1)}};
  }
  // No clusters: a block holds a row where its lanes have the registers.
  if (arch.wide_lanes < 1024 || cols > 32768) return std::nullopt;
  const int octets = cols <= 16384 ? 2 : 4;
  const int lanes = lanes_for(octets, 1);
  if (rows > gpu::MaxBlocks(lanes)) return std::nullopt;
  return LeanNormPlan{.split = {.scope = gpu::RowScope::kBlock,
                                .octets = octets,
                                .lanes = lanes}};
}

}  // namespace lamina::norm_internal
