#pragma once

// What a warpgroup of ring_gemm.cuh computes: the sums of a tile of w, up to 64
// rows, and all rows of x, in registers.

#include <cstdint>
#include <type_traits>

#include "lamina/core/device/intrinsics.cuh"
#include "lamina/core/device/matrix.cuh"
#include "lamina/gemm/skinny_gemm/epilogue.cuh"
#include "lamina/gemm/skinny_gemm/ring_gemm_args.h"

namespace lamina::gemm_internal {

// Columns of y and the rows of w behind them. With a gate these are the rows of
// the gate, then as many of up.
struct RingTile {
  const Epilogue& epilogue;
  int first_col;
  int cols;  // can be zero or less

  __device__ int rows() const { return cols * RowsOfColumn(epilogue.gated()); }
  __device__ int WeightRow(int row) const {
    if (!epilogue.gated()) return first_col + row;
    const bool up = row >= cols;
    return epilogue.WeightRow(first_col + (up ? row - cols : row), up);
  }
  // From the row of w of a column to that of the next.
  __device__ int Stride() const {
    return epilogue.WeightRow(1, false) - epilogue.WeightRow(0, false);
  }
};

// Where the 16-byte column of a row lies in a segment: core/device/matrix.cuh.
__device__ inline int Swizzled(int row, int column) {
  return row * kSegmentBytes + ((column ^ (row & 7)) << 4);
}

// The operand so many bytes further in shared memory.
// NOTE: of the low word alone. Each product needs two operands in uniform
// registers, and 64-bit sums are more instructions than the products are.
__device__ inline uint64_t Further(uint64_t operand, uint32_t bytes) {
  const auto low = static_cast<uint32_t>(operand) + bytes / 16;
  return (operand & 0xffffffff00000000u) | low;
}

template <RingGemmVariant kVariant>
class RingTileSums {
 public:
  __device__ RingTileSums(const RingGemmArgs& args, const RingTile& tile)
      : args_(args),
        wave_(gpu::UniformWave() % 4),
        lane_(gpu::ThreadIndex() % 32) {
    if constexpr (kVariant.block_scales) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        // NOTE: rows that do not exist read the scale of one that does.
        const int row = Row(half) < tile.rows() ? Row(half) : 0;
        weight_row_[half] = tile.cols > 0 ? tile.WeightRow(row) : 0;
      }
    }
  }

  // Adds the products of stage `step` of K. Nothing of it is read afterwards.
  __device__ void Add(int step, const uint8_t* w, const uint8_t* x) {
    // NOTE: one chain alone is not unrolled: it would take more registers than
    // a thread has.
#pragma unroll(kChains == 1 ? 1 : kSegments)
    for (int segment = 0; segment < kSegments; segment += kChains) {
      const uint8_t* const w_part = w + segment * args_.layout.segment_bytes;
      const uint8_t* const x_part = x + segment * kXSegmentBytes;
      if constexpr (kPromote) {
        float products[kChains][kSums];
        Multiply(w_part, x_part, products);
        Promote(step * kSegments + segment, products);
      } else {
        Multiply(w_part, x_part, sums_);
      }
    }
    gpu::WarpgroupWait<0>();
  }

  // Adds up what ran side by side. Once, after all stages.
  __device__ void Join() {
#pragma unroll
    for (int set = 1; set < kSumSets; ++set) {
#pragma unroll
      for (int i = 0; i < kSums; ++i) sums_[0][i] += sums_[set][i];
    }
  }

  // Of rows `part` * kExchange and on of x, to [kExchange, kExchangePitch].
  __device__ void Put(int part, float* exchanged) const {
    constexpr int kExchange = ExchangeRows(kVariant);
#pragma unroll
    for (int i = 0; i < kSums; ++i) {
      if (ActivationRow(i) / kExchange != part) continue;
      exchanged[ActivationRow(i) % kExchange * kExchangePitch +
                Row(i / 2 % 2)] = sums_[0][i];
    }
  }

 private:
  static constexpr RingTypes kTypes = kVariant.types;
  static constexpr bool kFromRegisters = kTypes == RingTypes::kF8BF16;
  // What the tensor cores multiply.
  using T = std::conditional_t<
      kTypes == RingTypes::kF8, F8E4M3Fn,
      std::conditional_t<kTypes == RingTypes::kF16, F16, BF16>>;

  static constexpr int kRows = kVariant.rows;
  static constexpr int kSums = kRows / 2;  // a thread's, of 64 x kRows
  static constexpr int kSegments = StageSegments(kVariant);
  static constexpr int kXBoxBytes = kRows * kSegmentBytes;
  static constexpr int kHalfSlices = kSegmentBytes / 32;  // of 16 FP8 weights
  // Of x, what meets a segment of w.
  static constexpr int kXSegmentBytes =
      kXBoxBytes * ActivationBytes(kTypes) / WeightBytes(kTypes);

  // Whether sums leave the tensor core every 128 of K.
  static constexpr bool kPromote =
      kTypes == RingTypes::kF8 || kVariant.block_scales;
  // Segments whose products run side by side, into sums of their own.
  static constexpr int kChains = kFromRegisters || kRows == 64 ? 1
                                 : kRows == 32                 ? 2
                                                               : kSegments;
  static constexpr int kSumSets = kPromote ? 1 : kChains;

  // Sum i of this lane is of row Row(i / 2 % 2) of the tile and of row
  // ActivationRow(i) of x: core/device/matrix.cuh.
  __device__ int Row(int half) const {
    // NOTE: operands in registers can be of any row. These give every wave a
    // part of a tile of few rows.
    return kFromRegisters ? 32 * half + 8 * wave_ + lane_ / 4
                          : 16 * wave_ + 8 * half + lane_ / 4;
  }
  __device__ int ActivationRow(int i) const {
    return i / 4 * 8 + lane_ % 4 * 2 + i % 2;
  }

  // d[i] = segment i of w times that of x; of 16-bit types d[i] += it. Done
  // after WarpgroupWait.
  __device__ void Multiply(const uint8_t* w, const uint8_t* x,
                           float (&d)[kChains][kSums]) const {
    if constexpr (kFromRegisters) {
      MultiplyWidened(w, x, d[0]);
    } else {
      const auto segment_bytes =
          static_cast<uint32_t>(args_.layout.segment_bytes);
      const uint64_t a = gpu::SwizzledTile(w);
      const uint64_t b = gpu::SwizzledTile(x);
      gpu::WarpgroupFence();
#pragma unroll
      for (uint32_t byte = 0; byte < kSegmentBytes; byte += 32) {
#pragma unroll
        for (uint32_t i = 0; i < kChains; ++i) {
          gpu::WarpgroupMma<T, kRows>(
              d[i], Further(a, i * segment_bytes + byte),
              Further(b, i * kXBoxBytes + byte), !kPromote || byte > 0);
        }
      }
      gpu::WarpgroupCommit();
    }
  }

  // FP8 weights become BF16 on their way through registers, which is exact:
  // half a segment at a time, that of one box of x, while the tensor cores have
  // the other half.
  __device__ void MultiplyWidened(const uint8_t* w, const uint8_t* x,
                                  float (&d)[kSums]) const {
    uint32_t a[2][kHalfSlices][4];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      Widen(w, half, a[half]);
      const uint64_t b = gpu::SwizzledTile(x + half * kXBoxBytes);
      gpu::WarpgroupFence();
#pragma unroll
      for (int slice = 0; slice < kHalfSlices; ++slice) {
        gpu::WarpgroupMmaFromRegisters<T, kRows>(
            d, a[half][slice], Further(b, slice * 32),
            !kPromote || half > 0 || slice > 0);
      }
      gpu::WarpgroupCommit();
    }
    gpu::WarpgroupWait<0>();
  }

  // Operands of this lane's rows, 16 columns each. Rows that the tile does not
  // have are not read.
  __device__ void Widen(const uint8_t* segment, int half_of_k,
                        uint32_t (&a)[kHalfSlices][4]) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = Row(half);
      const bool exists = row * kSegmentBytes < args_.layout.segment_bytes;
#pragma unroll
      for (int slice = 0; slice < kHalfSlices; ++slice) {
        const auto* const codes = reinterpret_cast<const uint16_t*>(
            segment + Swizzled(row, half_of_k * kHalfSlices + slice) +
            lane_ % 4 * 2);
        a[slice][half] = exists ? gpu::WidenE4M3(codes[0]) : 0;
        a[slice][half + 2] = exists ? gpu::WidenE4M3(codes[4]) : 0;
      }
    }
  }

  // Waits for the products of segments `first` and on; sums += them, in order
  // and scaled.
  __device__ void Promote(int first, float (&products)[kChains][kSums]) {
    if constexpr (!kVariant.block_scales) {
      gpu::WarpgroupWait<0>();
#pragma unroll
      for (int chain = 0; chain < kChains; ++chain) {
#pragma unroll
        for (int i = 0; i < kSums; ++i) sums_[0][i] += products[chain][i];
      }
    } else {
      // NOTE: loaded while the tensor cores work.
      float w_scale[kChains][2];
      float x_scale[kChains][kSums / 2];
#pragma unroll
      for (int chain = 0; chain < kChains; ++chain) {
        const int past = (first + chain) * kSegmentBytes;
        const int k = past < args_.gemm.k ? past : args_.gemm.k - 1;
        LoadWeightScales(k, w_scale[chain]);
        LoadActivationScales(k, x_scale[chain]);
      }
      gpu::WarpgroupWait<0>();
#pragma unroll
      for (int chain = 0; chain < kChains; ++chain) {
#pragma unroll
        for (int i = 0; i < kSums; ++i) {
          sums_[0][i] +=
              (products[chain][i] * x_scale[chain][i / 4 * 2 + i % 2]) *
              w_scale[chain][i / 2 % 2];
        }
      }
    }
  }

  __device__ void LoadWeightScales(int k, float (&scale)[2]) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      scale[half] = ScaleOrOne(args_.gemm.w_scales, weight_row_[half], k);
    }
  }
  // Those of sums 0, 1, 4, 5, 8, …
  __device__ void LoadActivationScales(int k, float (&scale)[kSums / 2]) const {
#pragma unroll
    for (int i = 0; i < kSums / 2; ++i) {
      const int row = ActivationRow(i / 2 * 4 + i % 2);
      scale[i] = ScaleOrOne(args_.gemm.x_scales,
                            row < args_.gemm.m ? row : args_.gemm.m - 1, k);
    }
  }

  const RingGemmArgs& args_;
  int wave_;  // of the warpgroup
  int lane_;
  int weight_row_[2] = {};
  float sums_[kSumSets][kSums] = {};
};

}  // namespace lamina::gemm_internal
