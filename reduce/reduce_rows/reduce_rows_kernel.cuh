#pragma once

// ReduceRows on a GPU: y[r] = reduction of row r.
//
// A row belongs to some lanes of a wave, a block or a cluster
// (reduce/row_reduce.cuh), which go over it tile by tile: 4 octets a lane, 512
// lanes a block at most. Bytes: the row, once. Sums are canonical; the others
// do not depend on the order.

#include <cmath>
#include <cstdint>
#include <limits>

#include "lamina/core/octet.cuh"
#include "lamina/reduce/reduce_rows/reduce_rows_args.h"
#include "lamina/reduce/row_reduce.cuh"

namespace lamina::reduce_internal {

// The larger one; NaN beats everything.
struct LargerOrNaN {
  __device__ float operator()(float a, float b) const {
    if (a != a) return a;
    return b > a || b != b ? b : a;
  }
};
struct Smaller {
  __device__ int64_t operator()(int64_t a, int64_t b) const {
    return b < a ? b : a;
  }
};

template <class T, ReduceRowsVariant kVariant>
class ReduceRow {
 public:
  static constexpr int kOctets = kVariant.octets;
  using Lanes =
      gpu::RowLanes<kVariant.wave_size, kVariant.scope, kVariant.octets>;

  __device__ explicit ReduceRow(const ReduceRowsKernelArgs& args)
      : args_(args), lanes_(args.lanes, args.x.cols, args.first_row) {}

  __device__ void Run() {
    // NOTE: a row of a cluster is long, and dependents that start at once would
    // take the units from clusters that have not.
    if constexpr (kVariant.scope != gpu::RowScope::kCluster) {
      gpu::AllowDependents();
    }
    gpu::WaitForPredecessor();
    exists_ = lanes_.row() < args_.x.total_rows();
    row_ = args_.x.Row<T>(exists_ ? lanes_.row() : 0);
    switch (args_.reduction) {
      case RowReduction::kSum:
        return Store(Sum([](float v) { return v; }));
      case RowReduction::kSumOfSquares:
        return Store(Sum([](float v) { return v * v; }));
      case RowReduction::kMean:
        return Store(gpu::Divide(Sum([](float v) { return v; }),
                                 static_cast<float>(args_.x.cols)));
      case RowReduction::kMax:
        return Store(Canonical(Max(-std::numeric_limits<float>::infinity(),
                                   [](float v) { return v; })));
      case RowReduction::kAbsMax:
        return Store(Canonical(Max(0.0f, [](float v) {
          return std::bit_cast<float>(std::bit_cast<uint32_t>(v) & 0x7fffffffu);
        })));
      case RowReduction::kArgMax:
        return Store(ArgMax());
    }
  }

 private:
  // f(octet, column, count) for the tiles of the row; `begin_tile` before each.
  template <class F>
  __device__ void ForEachTile(F&& f) {
    for (int64_t begin = 0; begin < args_.x.cols; begin += lanes_.columns()) {
      lanes_.MoveTo(begin);
      gpu::Octet tile[kOctets];
#pragma unroll
      for (int k = 0; k < kOctets; ++k) {
        const int count = Existing(k);
        if constexpr (kVariant.whole) {
          tile[k] = gpu::Octet{};
          if (count > 0) tile[k] = gpu::LoadOctet(row_ + lanes_.Column(k));
        } else {
          tile[k] = gpu::LoadOctetUpTo(row_ + lanes_.Column(k), count);
        }
      }
      f(tile);
    }
  }

  template <class Transform>
  __device__ float Sum(Transform&& transform) {
    float total = 0.0f;
    int slot = 0;
    ForEachTile([&](const gpu::Octet(&tile)[kOctets]) {
      float sums[kOctets];
#pragma unroll
      for (int k = 0; k < kOctets; ++k) {
        sums[k] = gpu::TreeSum(gpu::Map(tile[k], transform));
      }
      // NOTE: two slots in turn: a lane may still read the last tile's.
      total = lanes_.AddChunks(total, sums, slot);
      slot ^= 1;
    });
    return total;
  }

  // The largest of the columns that exist, -Inf without any; NaN beats all.
  template <class Transform>
  __device__ static float OctetMax(const gpu::Octet& octet, int count,
                                   Transform&& transform) {
    float largest = -std::numeric_limits<float>::infinity();
    bool nan = false;
#pragma unroll
    for (int i = 0; i < gpu::kOctet; ++i) {
      const float v = transform(octet.v[i]);
      if (kVariant.whole ? count > 0 : i < count) {
        largest = std::fmax(largest, v);  // ignores NaN
        nan |= v != v;
      }
    }
    return nan ? std::numeric_limits<float>::quiet_NaN() : largest;
  }
  __device__ int Existing(int k) const { return exists_ ? lanes_.Count(k) : 0; }

  template <class Transform>
  __device__ float Max(float lowest, Transform&& transform) {
    float largest = lowest;
    ForEachTile([&](const gpu::Octet(&tile)[kOctets]) {
#pragma unroll
      for (int k = 0; k < kOctets; ++k) {
        largest =
            LargerOrNaN()(largest, OctetMax(tile[k], Existing(k), transform));
      }
    });
    return lanes_.Reduce(largest, 0, LargerOrNaN());
  }

  // NaN becomes the quiet NaN, -0 becomes +0.
  __device__ static float Canonical(float v) {
    return v != v ? std::bit_cast<float>(0x7fc00000u) : v + 0.0f;
  }

  __device__ int64_t ArgMax() {
    // The first octet of this lane that has its largest value; then, in the
    // lanes that have the row's, the first such column of it.
    constexpr int64_t kNone = std::numeric_limits<int64_t>::max();
    float largest = -std::numeric_limits<float>::infinity();
    int64_t octet_begin = kNone;
    ForEachTile([&](const gpu::Octet(&tile)[kOctets]) {
#pragma unroll
      for (int k = 0; k < kOctets; ++k) {
        const int count = Existing(k);
        const float value = OctetMax(tile[k], count, [](float v) { return v; });
        const bool better =
            octet_begin == kNone ||
            (largest == largest && (value > largest || value != value));
        if (count > 0 && better) {
          largest = value;
          octet_begin = lanes_.Column(k);
        }
      }
    });
    const float best = lanes_.Reduce(largest, 0, LargerOrNaN());
    int64_t index = kNone;
    if (octet_begin != kNone &&
        (best != best ? largest != largest : largest == best)) {
      const int64_t left = args_.x.cols - octet_begin;
      for (int i = left < gpu::kOctet ? static_cast<int>(left) : gpu::kOctet;
           i-- > 0;) {
        const float v = gpu::LoadOctetUpTo(row_ + octet_begin + i, 1).v[0];
        if (best != best ? v != v : v == best) index = octet_begin + i;
      }
    }
    return lanes_.Reduce(index, 1, Smaller());
  }

  template <class Value>
  __device__ void Store(Value value) {
    if constexpr (kVariant.scope == gpu::RowScope::kCluster) {
      gpu::AllowDependents();
    }
    if (exists_ && lanes_.lane() == 0) {
      static_cast<Value*>(args_.y.data)[lanes_.row()] = value;
    }
  }

  const ReduceRowsKernelArgs& args_;
  Lanes lanes_;
  bool exists_ = false;
  const T* row_ = nullptr;
};

}  // namespace lamina::reduce_internal
