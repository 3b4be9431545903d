#pragma once

// What a thread that loads weights does in ring_gemm.cuh: one 16-byte column of
// every stage, and of its rows every n-th.
//
// NOTE: three waves fill a stage within some 400 cycles, so everything that is
// the same for all stages is known before the first: an instruction more a row
// costs what a wave waits for its result.

#include <cstdint>

#include "lamina/core/device/async.cuh"
#include "lamina/core/device/intrinsics.cuh"
#include "lamina/gemm/skinny_gemm/ring_gemm_args.h"
#include "lamina/gemm/skinny_gemm/ring_gemm_sums.cuh"

namespace lamina::gemm_internal {

template <RingGemmVariant kVariant>
class RingWeightLoader {
 public:
  __device__ RingWeightLoader(const RingGemmArgs& args, int thread)
      : next_(args.rows.next),
        up_(args.rows.up),
        whole_steps_(args.whole_steps),
        none_(args.gemm.w),
        first_row_(thread / kColumns),
        column_(thread % kColumns % kSegmentColumns) {
    const int column = thread % kColumns;
    from_ = static_cast<const char*>(args.gemm.w) + args.rows.first +
            first_row_ * args.rows.next + column * 16;
    to_ = column / kSegmentColumns * args.layout.segment_bytes;
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      offset_[i] = Swizzled(TileRow(first_row_ + i * kStep), column_);
    }
    const int left = args.tail_bytes - column * 16;
    tail_ = left >= 16 ? 16 : left > 0 ? left : 0;
  }

  // Where a column of y begins.
  __device__ const char* Column(int col) const { return from_ + col * next_; }

  // `cols` columns of y, of which `from` is the first one's Column() plus steps
  // of K, to a stage.
  __device__ void Load(const char* from, int cols, int step,
                       uint8_t* stage) const {
    LoadRows(from, cols, step, stage + to_);
    if (up_ != 0) {
      LoadRows(from + up_, cols, step, stage + to_ + 8 * kSegmentBytes);
    }
  }

 private:
  static constexpr int kStepBytes = StageStepBytes(kVariant);
  static constexpr int kColumns = kStepBytes / 16;
  static constexpr int kSegmentColumns = kSegmentBytes / 16;
  static constexpr int kStep = kWeightThreads / kColumns;  // in rows
  // NOTE: the swizzle repeats itself every 8 rows.
  static constexpr int kAtOnce = 8;

  // Of the row of the tile's column `col`, or of its gate: with a gate, every
  // eight rows of gates are followed by those of their ups.
  __device__ int TileRow(int col) const {
    return up_ == 0 ? col : col + col / 8 * 8;
  }

  __device__ void LoadRows(const char* from, int cols, int step,
                           uint8_t* to) const {
    // NOTE: settled, or it is loaded and multiplied anew for every row.
    auto hop = static_cast<uint64_t>(kStep * next_);
    gpu::Settle(hop);
    const int advance = TileRow(kAtOnce * kStep) * kSegmentBytes;
    if (step < whole_steps_) {
#pragma unroll 1
      for (int row = first_row_; row < cols; row += kAtOnce * kStep) {
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i) {
          if (row + i * kStep < cols) {
            gpu::CopyAsync16Once(to + offset_[i], from);
          }
          from += hop;
        }
        to += advance;
      }
    } else {
      const int bytes = step == whole_steps_ ? tail_ : 0;
      // NOTE: the source of no bytes has to exist too.
#pragma unroll 1
      for (int row = first_row_; row < cols; row += kStep) {
        gpu::CopyAsync16(to + Swizzled(TileRow(row), column_),
                         bytes > 0 ? from : none_, bytes);
        from += hop;
      }
    }
  }

  const int64_t next_;
  const int64_t up_;
  const int whole_steps_;
  const void* const none_;
  int first_row_;
  int column_;  // of 16 bytes, in its segment
  const char* from_;
  int to_;  // in a stage
  int offset_[kAtOnce];
  int tail_;  // bytes of the step after the whole ones
};

}  // namespace lamina::gemm_internal
