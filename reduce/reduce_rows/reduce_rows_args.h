#pragma once

// What the host hands to the GPU kernels of ReduceRows: plain values.

#include <cstdint>

#include "lamina/core/launch.h"
#include "lamina/core/views.h"
#include "lamina/reduce/row_reduction.h"
#include "lamina/reduce/row_split.h"

namespace lamina::reduce_internal {

struct ReduceRowsKernelArgs {
  ConstMatrixView x;
  RowReduction reduction = RowReduction::kSum;
  VectorView y;
  int64_t first_row = 0;
  int lanes = 0;  // RowSplit::lanes
};

// What a kernel is compiled for, beside the type of x.
struct ReduceRowsVariant {
  gpu::RowScope scope = gpu::RowScope::kBlock;
  int octets = 4;
  bool whole = true;  // x can be moved by octets
  int wave_size = 32;

  constexpr bool CompiledFor(bool clusters) const {
    return clusters || scope != gpu::RowScope::kCluster;
  }

  friend constexpr bool operator==(const ReduceRowsVariant&,
                                   const ReduceRowsVariant&) = default;
};

inline constexpr ReduceRowsVariant kReduceRowsVariants[] = {
    {.scope = gpu::RowScope::kWave, .octets = 1, .whole = true},
    {.scope = gpu::RowScope::kWave, .octets = 1, .whole = false},
    {.scope = gpu::RowScope::kBlock, .octets = 4, .whole = true},
    {.scope = gpu::RowScope::kBlock, .octets = 4, .whole = false},
    {.scope = gpu::RowScope::kCluster, .octets = 4, .whole = true},
};

struct ReduceRowsPlan {
  gpu::RowSplit split;
  bool whole = true;
};

// Rows up to 256 columns: some lanes of a wave. Otherwise a block, which goes
// over its row by tiles, or a cluster when rows are few and long.
constexpr ReduceRowsPlan SelectReduceRowsPlan(int64_t rows, int64_t cols,
                                              bool whole,
                                              const gpu::RowArch& arch) {
  if (cols <= 256) {
    int lanes = 1;
    while (lanes * 8 < cols) lanes *= 2;
    return {.split = {.scope = gpu::RowScope::kWave,
                      .octets = 1,
                      .lanes = lanes,
                      .block_lanes = 256},
            .whole = whole};
  }
  constexpr int kOctets = 4;
  int blocks = whole ? arch.max_cluster_blocks : 1;
  while (blocks > 1 && (blocks * rows > arch.units ||
                        cols < int64_t{blocks} * 128 * 8 * kOctets)) {
    blocks /= 2;
  }
  const int64_t lanes =
      RoundUp(CeilDiv(cols, int64_t{8} * kOctets * blocks), 128);
  return {.split = {.scope = blocks > 1 ? gpu::RowScope::kCluster
                                        : gpu::RowScope::kBlock,
                    .octets = kOctets,
                    .lanes = static_cast<int>(lanes < 512 ? lanes : 512),
                    .cluster_blocks = blocks},
          .whole = whole};
}

gpu::Error LaunchReduceRows(const ReduceRowsKernelArgs& args,
                            const ReduceRowsPlan& plan,
                            const gpu::LaunchTarget& target);

}  // namespace lamina::reduce_internal
