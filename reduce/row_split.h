#pragma once

// How rows are spread over a GPU's lanes: plain values that a test can read
// without a GPU. reduce/row_reduce.cuh says what they mean to a kernel.

#include <cstdint>

#include "lamina/core/attributes.h"
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
  // of 32 and of the wave size.
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
