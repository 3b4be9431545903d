#pragma once

// How rows are spread over a GPU's lanes: plain values that a test can read
// without a GPU. reduce/row_reduce.cuh says what they mean to a kernel.

#include <cstdint>

#include "lamina/core/device.h"
#include "lamina/core/launch.h"
#include "lamina/core/math.h"

namespace lamina::gpu {

enum class RowScope : uint8_t { kWave, kBlock, kCluster };
constexpr const char* Name(RowScope scope) {
  switch (scope) {
    case RowScope::kWave:
      return "wave";
    case RowScope::kBlock:
      return "block";
    case RowScope::kCluster:
      return "cluster";
  }
  return "invalid";
}

struct RowSplit {
  RowScope scope = RowScope::kBlock;
  int octets = 1;  // a lane's; what kernels are compiled for
  // kWave: of a row, a power of two up to 32. Otherwise of a block, a multiple
  // of 128, or of 64 with more octets.
  int lanes = 32;
  int cluster_blocks = 1;
  int block_lanes = 128;  // kWave: threads of a block

  friend constexpr bool operator==(const RowSplit&, const RowSplit&) = default;

  // Columns that the row's lanes hold at once.
  constexpr int64_t columns() const {
    return int64_t{8} * octets * lanes * cluster_blocks;
  }
  constexpr int64_t rows_per_block() const {
    return scope == RowScope::kWave ? block_lanes / lanes : 1;
  }
};

// Rows that one launch can take.
constexpr int64_t MaxRows(const RowSplit& split,
                          int64_t max_blocks = kMaxBlocks) {
  const int threads =
      split.scope == RowScope::kWave ? split.block_lanes : split.lanes;
  return MaxBlocks(threads, max_blocks) / split.cluster_blocks *
         split.rows_per_block();
}

// What a split depends on, beside the rows.
struct RowArch {
  int units = 1;  // SMs or CUs
  int wave_size = 32;
  int max_cluster_blocks = 1;  // 1: no clusters
  // Lanes of a block whose lanes have 128 registers each.
  int wide_lanes = 512;
};

inline RowArch RowArchOf(const DeviceInfo& info) {
  return {.units = info.num_units,
          .wave_size = info.wave_size,
          .max_cluster_blocks = info.max_cluster_blocks,
          .wide_lanes = info.device.backend == Backend::kHip ? 1024 : 512};
}

// A split for kernels that keep a row in registers. Rows that do not fit get
// the widest block there is (split.columns() < cols).
//
// NOTE: the split never changes a result: sums are canonical.
constexpr RowSplit SelectRowSplit(int64_t rows, int64_t cols,
                                  const RowArch& arch) {
  const auto lanes_for = [&](int64_t octets_a_lane, int64_t blocks) {
    const int64_t columns = 8 * octets_a_lane * blocks;
    return static_cast<int>(
        RoundUp(CeilDiv(cols > 1 ? cols : 1, columns), 128));
  };
  if (cols <= 256) {
    int lanes = 1;
    while (lanes * 8 < cols) lanes *= 2;
    return {.scope = RowScope::kWave, .octets = 1, .lanes = lanes};
  }
  // Few rows: as many units as a row can use.
  const int64_t most = arch.units / (rows > 1 ? rows : 1);
  for (int blocks = arch.max_cluster_blocks; blocks > 1; blocks /= 2) {
    if (blocks > most || cols < int64_t{blocks} * 128 * 8) continue;
    if (lanes_for(1, blocks) > 1024) continue;
    return {.scope = RowScope::kCluster,
            .octets = 1,
            .lanes = lanes_for(1, blocks),
            .cluster_blocks = blocks};
  }
  if (cols <= int64_t{arch.wide_lanes} * 8 * 2) {
    const int octets = cols <= 4096 ? 1 : 2;
    return {.scope = RowScope::kBlock,
            .octets = octets,
            .lanes = lanes_for(octets, 1)};
  }
  for (int blocks = 2; blocks <= arch.max_cluster_blocks; blocks *= 2) {
    if (lanes_for(1, blocks) > 1024) continue;
    return {.scope = RowScope::kCluster,
            .octets = 1,
            .lanes = lanes_for(1, blocks),
            .cluster_blocks = blocks};
  }
  return {.scope = RowScope::kBlock, .octets = 2, .lanes = arch.wide_lanes};
}

// The launch of a kernel with `reductions` reductions over `rows` rows.
constexpr LaunchShape RowShape(const RowSplit& split, int64_t rows,
                               int reductions) {
  if (split.scope == RowScope::kWave) {
    return {.blocks = CeilDiv(rows, split.rows_per_block()),
            .threads = split.block_lanes};
  }
  const int64_t chunks =
      int64_t{split.octets} * split.lanes * split.cluster_blocks / 32;
  return {.blocks = rows * split.cluster_blocks,
          .threads = split.lanes,
          .cluster_blocks = split.cluster_blocks,
          .shared_bytes = reductions * chunks * int64_t{sizeof(float)}};
}

}  // namespace lamina::gpu
