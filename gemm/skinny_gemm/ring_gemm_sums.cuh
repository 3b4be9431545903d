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

// Columns of y; the rows of w behind them are the rows of a tile. With a gate
// eight rows of gates and the eight of their ups take turns.
struct RingTile {
  int first_col;
  int cols;  // can be zero or less
};

// Where the sums of a thread belong: sum i to row ActivationRow(i) of x and row
// Row(i / 2 % 2) of the tile (core/device/matrix.cuh). With pairs, waves 2 and
// 3 have the same rows as waves 0 and 1, and of each pair the second segment.
template <RingGemmVariant kVariant>
class RingThread {
 public:
  __device__ RingThread(bool gated, bool pairs)
      : gated_(gated), lane_(gpu::ThreadIndex() % 32) {
    const int wave = gpu::UniformWave() % 4;
    wave_ = pairs ? wave % 2 : wave;
    second_ = pairs && wave >= 2;
  }

  __device__ bool second_of_pair() const { return second_; }
  __device__ int Row(int half) const {
    // NOTE: operands in registers can be of any row. These give every wave a
    // part of a tile of few rows.
    return kVariant.types == RingTypes::kF8BF16 && !gated_
               ? 32 * half + 8 * wave_ + lane_ / 4
               : 16 * wave_ + 8 * half + lane_ / 4;
  }
  // The column of the tile that the row belongs to; with a gate the same for
  // both halves, first the gate's, then up's.
  __device__ int Column(int half) const {
    return gated_ ? 8 * wave_ + lane_ / 4 : Row(half);
  }
  __device__ int ActivationRow(int i) const {
    return (i >> 2 << 3) + (lane_ & 3) * 2 + (i & 1);
  }
  // What follows is computed where it is used, not where registers are few.
  __device__ void Settle() {
    gpu::Settle(wave_);
    gpu::Settle(lane_);
  }
  __device__ bool gated() const { return gated_; }
  __device__ int lane() const { return lane_; }

 private:
  bool gated_;
  bool second_;
  int wave_;  // of those that have other rows
  int lane_;
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
  // x_scales: with block_scales, where layout.has_x_scales says, as if from the
  // first segment of K on.
  __device__ RingTileSums(const RingGemmArgs& args, const Epilogue& epilogue,
                          const RingTile& tile, const float* x_scales)
      : args_(args),
        segment_bytes_(args.layout.segment_bytes),
        pairs_(args.plan.pairs),
        x_scales_(x_scales),
        thread_(epilogue.gated(), args.plan.pairs) {
    if constexpr (kVariant.block_scales) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int col = thread_.Column(half);
        // NOTE: rows that do not exist read the scale of one that does.
        weight_row_[half] =
            epilogue.WeightRow(col < tile.cols ? tile.first_col + col : 0,
                               epilogue.gated() && half == 1);
      }
    }
  }

  // What can be loaded before the wait for stage `step` of K.
  __device__ void LoadScalesAhead(int step) {
    if constexpr (kScalesAhead) {
#pragma unroll
      for (int segment = 0; segment < kSegments; ++segment) {
        LoadScales(step * kSegments + segment, w_scale_[segment],
                   x_scale_[segment]);
      }
    }
  }

  // Adds the products of the stage. Nothing of it is read afterwards.
  __device__ void Add(int step, const uint8_t* w, const uint8_t* x) {
    if constexpr (kFromRegisters) {
      if (!thread_.gated() &&
          segment_bytes_ <= kRingTileRows / 2 * kSegmentBytes) {
        AddSegments<1>(step, w, x);
        return;
      }
    } else if constexpr (kTakesPairs) {
      if (pairs_) {
        AddPairs(w, x);
        return;
      }
    }
    AddSegments<2>(step, w, x);
  }

  // Adds up what ran side by side. Once, after all stages.
  __device__ void Join() {
    if constexpr (kTakesPairs && !kPromote) {
      if (pairs_) AddOwnSegments(pair_sums_);
    }
#pragma unroll
    for (int set = 1; set < kSumSets; ++set) {
#pragma unroll
      for (int i = 0; i < kSums; ++i) sums_[0][i] += sums_[set][i];
    }
  }

  // After Join.
  __device__ float operator[](int i) const { return sums_[0][i]; }

 private:
  static constexpr RingTypes kTypes = kVariant.types;
  static constexpr bool kFromRegisters = kTypes == RingTypes::kF8BF16;
  // What the tensor cores multiply.
  using T = std::conditional_t<
      kTypes == RingTypes::kF8, F8E4M3Fn,
      std::conditional_t<kTypes == RingTypes::kF16, F16, BF16>>;

  static constexpr int kRows = kVariant.rows;
  static constexpr int kSums = RingSums(kVariant);
  static constexpr int kSegments = StageSegments(kVariant);
  static constexpr int kXBoxBytes = kRows * kSegmentBytes;
  static constexpr int kHalfSlices = kSegmentBytes / 32;  // of 16 FP8 weights
  // Of x, what meets a segment of w.
  static constexpr int kXSegmentBytes =
      kXBoxBytes * ActivationBytes(kTypes) / WeightBytes(kTypes);

  // Whether sums leave the tensor core every kInARow * 128 of K.
  static constexpr bool kPromote =
      kTypes == RingTypes::kF8 || kVariant.block_scales;
  // Segments whose products run side by side, into sums of their own.
  static constexpr int kChains = kFromRegisters || kRows == 64 ? 1
                                 : kRows == 32                 ? 2
                                                               : kSegments;
  // Segments whose products run one after the other, into the same sums.
  // NOTE: with 64 rows a wait for them every 128 of K costs more than they do.
  static constexpr int kInARow =
      kTypes == RingTypes::kF8 && kRows == 64 && !kVariant.block_scales ? 2 : 1;
  static constexpr int kTogether = kChains * kInARow;
  static constexpr int kSumSets = kPromote ? 1 : kChains;
  // NOTE: there are no registers for scales beside those of widened weights.
  static constexpr bool kScalesAhead = kVariant.block_scales && !kFromRegisters;
  static constexpr int kScaleSets = kScalesAhead ? kSegments : 1;

  static constexpr bool kTakesPairs = TakesPairs(kVariant);
  // NOTE: of 32 rows, products of a pair are as many as registers allow.
  static constexpr int kPairChains = kRows == 32 ? 1 : kSegments / 2;

  // Rows 0 to 31 of one wgmma are a segment of w, rows 32 to 63 the next; x has
  // both segments as columns. Half of the products are of one segment by the
  // other, for nobody.
  __device__ void AddPairs(const uint8_t* w, const uint8_t* x) {
#pragma unroll(kPairChains == 1 ? 1 : kSegments)
    for (int segment = 0; segment < kSegments; segment += 2 * kPairChains) {
      const uint8_t* const w_part = w + segment * kPairRows * kSegmentBytes;
      const uint8_t* const x_part = x + segment * kXSegmentBytes;
      if constexpr (kPromote) {
        float products[kPairChains][2 * kSums];
        MultiplyPairs(w_part, x_part, products);
        gpu::WarpgroupWait<0>();
        AddOwnSegments(products);
      } else {
        MultiplyPairs(w_part, x_part, pair_sums_);
      }
    }
    gpu::WarpgroupWait<0>();
  }
  __device__ void MultiplyPairs(const uint8_t* w, const uint8_t* x,
                                float (&d)[kPairChains][2 * kSums]) const {
    const uint64_t a = gpu::SwizzledTile(w);
    const uint64_t b = gpu::SwizzledTile(x);
    gpu::WarpgroupFence();
#pragma unroll
    for (uint32_t byte = 0; byte < kSegmentBytes; byte += 32) {
#pragma unroll
      for (uint32_t chain = 0; chain < kPairChains; ++chain) {
        gpu::WarpgroupMma<T, 2 * kRows>(
            d[chain], Further(a, chain * 2 * kPairRows * kSegmentBytes + byte),
            Further(b, chain * 2 * kXBoxBytes + byte), !kPromote || byte > 0);
      }
    }
    gpu::WarpgroupCommit();
  }
  // sums += those of d that are of this thread's segments.
  __device__ void AddOwnSegments(const float (&d)[kPairChains][2 * kSums]) {
#pragma unroll
    for (int chain = 0; chain < kPairChains; ++chain) {
#pragma unroll
      for (int i = 0; i < kSums; ++i) {
        const float first = d[chain][i];
        const float second = d[chain][kSums + i];
        sums_[0][i] += thread_.second_of_pair() ? second : first;
      }
    }
  }

  // kHalves: of the tile's rows, that there are.
  template <int kHalves>
  __device__ void AddSegments(int step, const uint8_t* w, const uint8_t* x) {
    // NOTE: one chain alone is not unrolled: it would take more registers than
    // a thread has. Scales have to be, to be in registers.
#pragma unroll(kChains == 1 && !kScalesAhead ? 1 : kSegments)
    for (int segment = 0; segment < kSegments; segment += kTogether) {
      const uint8_t* const w_part = w + segment * segment_bytes_;
      const uint8_t* const x_part = x + segment * kXSegmentBytes;
      if constexpr (kPromote) {
        float products[kChains][kSums];
        Multiply<kHalves>(w_part, x_part, products);
        Promote(step, segment, products);
      } else {
        Multiply<kHalves>(w_part, x_part, sums_);
      }
    }
    gpu::WarpgroupWait<0>();
  }

  // d[i] = segment i of w times that of x; of 16-bit types d[i] += it. Done
  // after WarpgroupWait.
  template <int kHalves>
  __device__ void Multiply(const uint8_t* w, const uint8_t* x,
                           float (&d)[kChains][kSums]) const {
    if constexpr (kFromRegisters) {
      MultiplyWidened<kHalves>(w, x, d[0]);
    } else {
      const auto segment_bytes = static_cast<uint32_t>(segment_bytes_);
      const uint64_t a = gpu::SwizzledTile(w);
      const uint64_t b = gpu::SwizzledTile(x);
      gpu::WarpgroupFence();
#pragma unroll
      for (uint32_t in_a_row = 0; in_a_row < kInARow; ++in_a_row) {
#pragma unroll
        for (uint32_t byte = 0; byte < kSegmentBytes; byte += 32) {
#pragma unroll
          for (uint32_t chain = 0; chain < kChains; ++chain) {
            const uint32_t segment = chain * kInARow + in_a_row;
            gpu::WarpgroupMma<T, kRows>(
                d[chain], Further(a, segment * segment_bytes + byte),
                Further(b, segment * kXBoxBytes + byte),
                !kPromote || in_a_row > 0 || byte > 0);
          }
        }
      }
      gpu::WarpgroupCommit();
    }
  }

  // FP8 weights become BF16 on their way through registers, which is exact:
  // half a segment at a time, that of one box of x, while the tensor cores have
  // the other half.
  template <int kHalves>
  __device__ void MultiplyWidened(const uint8_t* w, const uint8_t* x,
                                  float (&d)[kSums]) const {
    uint32_t a[2][kHalfSlices][4];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      Widen<kHalves>(w, half, a[half]);
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

  // Operands of this lane's rows, 16 columns each; 0 in a half that is not
  // there.
  template <int kHalves>
  __device__ void Widen(const uint8_t* segment, int half_of_k,
                        uint32_t (&a)[kHalfSlices][4]) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = thread_.Row(half);
#pragma unroll
      for (int slice = 0; slice < kHalfSlices; ++slice) {
        const auto* const codes = reinterpret_cast<const uint16_t*>(
            segment + Swizzled(row, half_of_k * kHalfSlices + slice) +
            thread_.lane() % 4 * 2);
        a[slice][half] = half < kHalves ? gpu::WidenE4M3(codes[0]) : 0;
        a[slice][half + 2] = half < kHalves ? gpu::WidenE4M3(codes[4]) : 0;
      }
    }
  }

  // Waits for the products of segments `segment` and on; sums += them, in order
  // and scaled.
  __device__ void Promote(int step, int segment,
                          float (&products)[kChains][kSums]) {
    if constexpr (kVariant.block_scales && !kScalesAhead) {
      LoadScales(step * kSegments + segment, w_scale_[0], x_scale_[0]);
    }
    gpu::WarpgroupWait<0>();
#pragma unroll
    for (int chain = 0; chain < kChains; ++chain) {
#pragma unroll
      for (int i = 0; i < kSums; ++i) {
        float product = products[chain][i];
        if constexpr (kVariant.block_scales) {
          const int set = kScalesAhead ? segment + chain : 0;
          product = (product * x_scale_[set][i / 4 * 2 + i % 2]) *
                    w_scale_[set][i / 2 % 2];
        }
        sums_[0][i] += product;
      }
    }
  }

  // Those of segment `block` of K.
  __device__ void LoadScales(int block, float (&w_scale)[2],
                             float (&x_scale)[kSums / 2]) const {
    const int past = block * kSegmentBytes;
    const int k = past < args_.gemm.k ? past : args_.gemm.k - 1;
    LoadWeightScales(k, w_scale);
    LoadActivationScales(block, k, x_scale);
  }
  __device__ void LoadWeightScales(int k, float (&scale)[2]) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      scale[half] = ScaleOrOne(args_.gemm.w_scales, weight_row_[half], k);
    }
  }
  // Those of sums 0, 1, 4, 5, 8, …
  __device__ void LoadActivationScales(int block, int k,
                                       float (&scale)[kSums / 2]) const {
    if (args_.layout.has_x_scales) {
      const float* const scales = x_scales_ + block * kRows;
#pragma unroll
      for (int i = 0; i < kSums / 2; ++i) {
        scale[i] = scales[thread_.ActivationRow(i / 2 * 4 + i % 2)];
      }
      return;
    }
#pragma unroll
    for (int i = 0; i < kSums / 2; ++i) {
      const int row = thread_.ActivationRow(i / 2 * 4 + i % 2);
      scale[i] = ScaleOrOne(args_.gemm.x_scales,
                            row < args_.gemm.m ? row : args_.gemm.m - 1, k);
    }
  }

  const RingGemmArgs& args_;
  const int segment_bytes_;
  const bool pairs_;
  const float* x_scales_;
  RingThread<kVariant> thread_;
  int weight_row_[2] = {};
  float sums_[kSumSets][kSums] = {};
  // Of pairs that stay in the tensor cores.
  float pair_sums_[kPairChains][2 * kSums] = {};
  // With block_scales, of the stage or segment at hand.
  float w_scale_[kScaleSets][2];
  float x_scale_[kScaleSets][kSums / 2];
};

}  // namespace lamina::gemm_internal
