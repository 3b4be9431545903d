#pragma once

// Where a lane of a span works: see core/span_split.h.

#include <cstdint>

#include "lamina/core/octet.cuh"
#include "lamina/core/span_split.h"

namespace lamina::gpu {

// Octet k of a lane begins at column col() + k * step().
class SpanLane {
 public:
  // Of block `block` of the grid for a [rows, cols] matrix.
  __device__ SpanLane(const SpanArgs& args, int64_t rows, int64_t cols,
                      int64_t block = BlockIndex())
      : step_(args.lanes * kOctet) {
    const uint32_t block_row =
        args.spans.Quotient(static_cast<uint32_t>(block));
    const uint32_t span =
        static_cast<uint32_t>(block) - block_row * args.spans.divisor;
    const int row_in_block = ThreadIndex() >> args.lanes_log2;
    const int lane = ThreadIndex() & (args.lanes - 1);
    row_ =
        args.first_row + (int64_t{block_row} * args.block_rows + row_in_block);
    col_ = int64_t{span} * step_ * args.octets + lane * kOctet;
    const int64_t to_end = row_ < rows ? cols - col_ : 0;
    constexpr int kFar = 1 << 30;
    left_ = to_end < kFar ? static_cast<int>(to_end) : kFar;
  }

  // Can be past the end: then left() <= 0.
  __device__ int64_t row() const { return row_; }
  __device__ int64_t col() const { return col_; }
  __device__ int step() const { return step_; }
  // Columns from col() to the end, or some number that is more than a lane's.
  __device__ int left() const { return left_; }

 private:
  int64_t row_;
  int64_t col_;
  int step_;
  int left_;
};

}  // namespace lamina::gpu
