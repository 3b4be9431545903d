#pragma once

// A row and the lanes that share it.
//
// Octet k of lane l of a row of `lanes` lanes begins at column
// 8 * (k * lanes + l): neighbouring lanes own neighbouring columns, and 32 of
// them a canonical chunk. The lanes are
//
//   kWave    up to 32 lanes of one wave: rows up to 256 columns an octet;
//            a block then holds several rows
//   kBlock   a block
//   kCluster the blocks of a cluster: few, long rows
//
// Sums are the canonical ones (core/canonical_sum.h), whatever the split: the
// lanes that own a chunk add it, and every lane adds the chunks in the order of
// their columns.

#include <cstdint>

#include "lamina/core/block.cuh"
#include "lamina/core/octet.cuh"
#include "lamina/reduce/row_split.h"
#include "lamina/reduce/wave_reduce.cuh"

namespace lamina::gpu {

// What one lane knows of its row. kOctets: how many octets it owns.
template <int kWave, RowScope kScope, int kOctets, class Block = LaunchedBlock>
class RowLanes {
 public:
  // Of the grid that RowShape() describes; `lanes` is RowSplit::lanes, the
  // lanes of a block (kWave: of a row).
  // The grid's first row is `first_row`.
  __device__ RowLanes(int lanes, int64_t cols, int64_t first_row = 0,
                      Block block = {})
      : block_(block), cols_(cols) {
    const int thread = ThreadIndex();
    if constexpr (kScope == RowScope::kWave) {
      lanes_ = lanes;
      lane_ = thread & (lanes - 1);
      row_ = block_.Index() * (block_.Threads() / lanes) + thread / lanes;
    } else if constexpr (kScope == RowScope::kBlock) {
      lanes_ = lanes;
      lane_ = thread;
      row_ = block_.Index();
    } else {
      lanes_ = lanes * ClusterBlocks();
      lane_ = lanes * ClusterRank() + thread;
      row_ = ClusterIndex();
      // NOTE: waited for in the first reduction: a block must have started
      // before another writes to its shared memory.
      ClusterArriveRelaxed();
    }
    row_ += first_row;
  }

  // The row; in kWave scope it can be past the last one.
  __device__ int64_t row() const { return row_; }
  __device__ int lane() const { return lane_; }
  __device__ int lanes() const { return lanes_; }
  // Columns that the lanes own at once.
  __device__ int64_t columns() const {
    return static_cast<int64_t>(kOctets) * lanes_ * kOctet;
  }
  // For rows longer than columns(): the octets now begin at this multiple of
  // columns().
  __device__ void MoveTo(int64_t column) { begin_ = column; }
  // First column of octet k; can be past the end.
  __device__ int64_t Column(int k) const {
    return begin_ + (static_cast<int64_t>(k) * lanes_ + lane_) * kOctet;
  }
  // Columns of octet k that exist: 0 to 8.
  __device__ int Count(int k) const {
    const int64_t left = cols_ - Column(k);
    return left >= kOctet ? kOctet : left > 0 ? static_cast<int>(left) : 0;
  }

  // The canonical sum of the row; octet_sums[k] is TreeSum of octet k (+0 past
  // the end). `slot` numbers the reductions of a kernel from 0.
  __device__ float Sum(const float (&octet_sums)[kOctets], int slot) {
    return AddChunks(0.0f, octet_sums, slot);
  }

  // total + the chunks of these octets, in the order of the columns.
  __device__ float AddChunks(float total, const float (&octet_sums)[kOctets],
                             int slot) {
    if constexpr (kScope == RowScope::kWave) {
#pragma unroll
      for (int k = 0; k < kOctets; ++k) {
        total += ChunkSum<kWave>(octet_sums[k], lanes_);
      }
      return total;
    } else {
      float chunks[kOctets];
#pragma unroll
      for (int k = 0; k < kOctets; ++k) {
        chunks[k] = ChunkSum<kWave>(octet_sums[k]);
      }
      return AddChunkSums(total, chunks, slot);
    }
  }

  // The same of chunks whose 32 lanes know their sum; not in kWave scope.
  __device__ float AddChunkSums(float total, const float (&chunks)[kOctets],
                                int slot) {
    float* const partial = Partials(slot);
#pragma unroll
    for (int k = 0; k < kOctets; ++k) {
      Publish(partial + k * groups() + lane_ / kChunkLanes, chunks[k]);
    }
    Sync();
    const Float4* const four = reinterpret_cast<const Float4*>(partial);
    const int fours = kOctets * groups() / 4;
#pragma unroll 4
    for (int i = 0; i < fours; ++i) {
      const Float4 chunk = four[i];
      total += chunk.v[0];
      total += chunk.v[1];
      total += chunk.v[2];
      total += chunk.v[3];
    }
    return total;
  }

  // combine over the row's lanes: commutative, associative and idempotent, like
  // a maximum. `value` (a
  // float, or an int64_t when kOctets > 1) of lanes without columns must not
  // matter.
  template <class Value, class Combine>
  __device__ Value Reduce(Value value, int slot, Combine&& combine) {
    if constexpr (kScope == RowScope::kWave) {
      return WaveReduce<kWave>(value, lanes_, combine);
    } else {
      static_assert(sizeof(Value) <= kOctets * sizeof(float),
                    "a slot holds kOctets floats for 32 lanes");
      Value* const partial = reinterpret_cast<Value*>(Partials(slot));
      Publish(partial + lane_ / kChunkLanes,
              WaveReduce<kWave>(value, kChunkLanes, combine));
      Sync();
      if constexpr (kScope == RowScope::kBlock) {
        value = partial[0];
#pragma unroll 4
        for (int i = 1; i < groups(); ++i) value = combine(value, partial[i]);
        return value;
      }
      // A cluster has up to 256 of them.
      const int lane = ThreadIndex() % kChunkLanes;
      value = partial[lane < groups() ? lane : 0];
#pragma unroll 4
      for (int i = lane + kChunkLanes; i < groups(); i += kChunkLanes) {
        value = combine(value, partial[i]);
      }
      return WaveReduce<kWave>(value, kChunkLanes, combine);
    }
  }

 private:
  struct alignas(16) Float4 {
    float v[4];
  };

  // Groups of 32 lanes in the row; kOctets times it is a multiple of 4.
  __device__ int groups() const { return lanes_ / kChunkLanes; }

  // NOTE: each reduction of a kernel has memory of its own, so that one barrier
  // is enough.
  __device__ float* Partials(int slot) const {
    return block_.template Shared<float>() + slot * kOctets * groups();
  }

  template <class Value>
  __device__ void Publish(Value* to, Value value) {
    const int lane = ThreadIndex() % kChunkLanes;
    if constexpr (kScope == RowScope::kCluster) {
      if (!started_) ClusterWait();
      started_ = true;
      // Lane i writes to block i: clusters have at most 8 blocks.
      if (lane < ClusterBlocks()) StoreShared(to, lane, value);
    } else {
      if (lane == 0) *to = value;
    }
  }

  __device__ void Sync() {
    if constexpr (kScope == RowScope::kCluster) {
      ClusterArrive();
      ClusterWait();
    } else {
      block_.Sync();
    }
  }

  [[no_unique_address]] Block block_;
  int64_t cols_;
  int64_t begin_ = 0;
  int64_t row_;
  int lanes_;
  int lane_;
  bool started_ = false;
};

}  // namespace lamina::gpu
