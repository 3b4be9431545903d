#pragma once

// How the elements of a matrix are spread over a GPU's lanes where rows do not
// matter: plain values that a test can read without a GPU. core/span_lanes.cuh
// says what they mean to a kernel.

#include <bit>
#include <cstdint>

#include "lamina/core/launch.h"
#include "lamina/core/math.h"

namespace lamina::gpu {

// A block of `threads` owns spans of rows: `lanes` adjacent lanes own a span of
// lanes * octets octets of columns.
struct SpanSplit {
  int threads = 128;  // a power of two
  int lanes = 128;    // a power of two up to `threads`
  int octets = 1;     // of a lane

  friend constexpr bool operator==(const SpanSplit&,
                                   const SpanSplit&) = default;
};

// `units`: SMs or CUs.
constexpr SpanSplit SelectSpanSplit(int64_t rows, int64_t cols, int units) {
  const int64_t octets = CeilDiv(cols, 8);
  const int64_t total = rows * octets;
  SpanSplit split;
  // Small blocks spread few elements over more SMs; when all SMs are full, a
  // lane that owns several octets spends less on finding them.
  split.threads = total <= int64_t{512} * units ? 64 : 128;
  split.lanes = 1;
  while (split.lanes < octets && split.lanes < split.threads) split.lanes *= 2;
  if (total >= int64_t{4096} * units) {
    while (split.octets < 4 && split.lanes * split.octets < octets) {
      split.octets *= 2;
    }
  }
  return split;
}

// A split as kernels want it, for a matrix of these columns.
struct SpanArgs {
  int64_t first_row = 0;  // of a launch
  int lanes = 0;
  int lanes_log2 = 0;
  int octets = 0;
  int block_rows = 0;      // rows that a block has lanes for
  FastDivisor spans = {};  // of a row
};
constexpr SpanArgs ToSpanArgs(const SpanSplit& split, int64_t cols) {
  return {.lanes = split.lanes,
          .lanes_log2 = std::countr_zero(static_cast<unsigned>(split.lanes)),
          .octets = split.octets,
          .block_rows = split.threads / split.lanes,
          .spans = MakeFastDivisor(
              CeilDiv(cols, int64_t{8} * split.lanes * split.octets))};
}

// Rows that one launch takes at most, and the launch of `rows` rows.
constexpr int64_t MaxRows(const SpanArgs& args,
                          int64_t max_blocks = kMaxBlocks) {
  const int64_t block_rows =
      MaxBlocks(args.block_rows * args.lanes, max_blocks) / args.spans.divisor;
  return (block_rows > 1 ? block_rows : 1) * args.block_rows;
}
constexpr LaunchShape SpanShape(const SpanSplit& split, const SpanArgs& args,
                                int64_t rows) {
  return {.blocks = CeilDiv(rows, args.block_rows) * args.spans.divisor,
          .threads = split.threads};
}

}  // namespace lamina::gpu
