#pragma once

// The row algorithm of RmsNorm and AddRmsNorm in the common case
// (norm/lean_norm_args.h): the same rule as norm/norm_row.cuh, the fewest
// instructions.
//
//   z = round_T(x + residual) (or x);  v = (z * rstd) * w;  y or codes of v
//
// A lane owns one, two or four octets, which stay in registers. Weights and a
// static scale are loaded before the kernel waits for its predecessor.

#include <cstdint>

#include "lamina/core/octet.cuh"
#include "lamina/core/quick_divide.cuh"
#include "lamina/norm/lean_norm_args.h"
#include "lamina/quant/fp8.cuh"
#include "lamina/quant/store_quantized.cuh"
#include "lamina/reduce/row_reduce.cuh"

namespace lamina::norm_internal {

// CUDA: 64 registers a lane; CDNA: 128.
inline constexpr int kLeanBlockLanes = 1024;

template <class T, LeanNormVariant kVariant, bool kResidual>
class LeanNormRow {
 public:
  static constexpr int kOctets = kVariant.octets;
  static constexpr LeanOutput kOutput = kVariant.output;
  // NOTE: from the L1 cache; in registers they would not fit beside two octets
  // of this row and the next.
  static constexpr bool kWeightsEachRow = kVariant.many_rows && kOctets == 2;
  using Octet = gpu::Octet;
  using Bits128 = gpu::Bits128;

  __device__ explicit LeanNormRow(const LeanNormArgs& args)
      : args_(args), lanes_(args.lanes, args.cols) {}

  __device__ void Run() {
    Bits128 w[kOctets];
    if constexpr (!kWeightsEachRow) {
#pragma unroll
      for (int k = 0; k < kOctets; ++k) w[k] = LoadWeights(k);
    }
    float scale = 1.0f;
    if constexpr (kOutput == LeanOutput::kStatic) scale = *args_.scales;
    gpu::AllowDependents();
    gpu::WaitForPredecessor();

    uint32_t row = static_cast<uint32_t>(lanes_.row());
    Load(row);
    const float inverse = gpu::Divide(1.0f, scale);
    if constexpr (!kVariant.many_rows) {
      OneRow(row, w, inverse, 0, row);
    } else {
      const uint32_t stride = static_cast<uint32_t>(gpu::BlockCount());
      // NOTE: slots in turn: a lane may still read the last row's.
      for (int slot = 0; row < args_.rows; slot ^= 2) {
        const uint32_t next = row + stride;
        OneRow(row, w, inverse, slot, next);
        row = next;
      }
    }
  }

 private:
  __device__ int Column(int k) const {
    return (k * lanes_.lanes() + lanes_.lane()) * gpu::kOctet;
  }
  __device__ bool Exists(int k) const { return Column(k) < args_.cols; }
  // Bytes from the start of a row of T to octet k.
  __device__ uint32_t Offset(int k) const {
    return static_cast<uint32_t>(Column(k)) * sizeof(T);
  }
  __device__ static const char* RowOf(const void* matrix, uint32_t row,
                                      uint32_t pitch) {
    return static_cast<const char*>(matrix) +
           static_cast<uint64_t>(row) * pitch;
  }
  __device__ static char* RowOf(void* matrix, uint32_t row, uint32_t pitch) {
    return static_cast<char*>(matrix) + static_cast<uint64_t>(row) * pitch;
  }

  __device__ Bits128 LoadWeights(int k) const {
    if (!Exists(k)) return Bits128{};
    return gpu::Load128Constant(static_cast<const char*>(args_.weight) +
                                Offset(k));
  }

  // Fetches a row of x, and of the residual.
  __device__ void Load(uint32_t row) {
    const char* const x = RowOf(args_.x, row, args_.x_pitch);
#pragma unroll
    for (int k = 0; k < kOctets; ++k) {
      x_[k] = Bits128{};
      if (Exists(k)) x_[k] = gpu::Load128(x + Offset(k));
    }
    if constexpr (kResidual) {
      const char* const residual =
          RowOf(args_.residual, row, args_.residual_pitch);
#pragma unroll
      for (int k = 0; k < kOctets; ++k) {
        residual_[k] = Bits128{};
        if (Exists(k)) residual_[k] = gpu::Load128(residual + Offset(k));
      }
    }
  }

  // Normalises the row that was fetched; fetches `next`.
  __device__ void OneRow(uint32_t row, const Bits128 (&w)[kOctets],
                         float inverse, int slot, uint32_t next) {
    if constexpr (kResidual) {
      char* const out =
          RowOf(args_.residual_out, row, args_.residual_out_pitch);
#pragma unroll
      for (int k = 0; k < kOctets; ++k) {
        x_[k] = gpu::Pack<T>(gpu::Map(gpu::Unpack<T>(x_[k]),
                                      gpu::Unpack<T>(residual_[k]),
                                      [](float a, float b) { return a + b; }));
        if (Exists(k)) gpu::Store128(x_[k], out + Offset(k));
      }
    }
    Octet z[kOctets];
    float sums[kOctets];
#pragma unroll
    for (int k = 0; k < kOctets; ++k) {
      z[k] = gpu::Unpack<T>(x_[k]);
      sums[k] = gpu::TreeSum(gpu::Map(z[k], [](float v) { return v * v; }));
    }
    if constexpr (kVariant.many_rows) {
      if (next < args_.rows) Load(next);
    }
    const float mean =
        gpu::Divide(lanes_.Sum(sums, slot), static_cast<float>(args_.cols));
    const float rstd = gpu::Divide(1.0f, gpu::SquareRoot(mean + args_.epsilon));
#pragma unroll
    for (int k = 0; k < kOctets; ++k) {
      Octet factor = gpu::Unpack<T>(kWeightsEachRow ? LoadWeights(k) : w[k]);
      if (args_.weight_plus_one) {
        factor = gpu::Map(factor, [](float v) { return 1.0f + v; });
      }
      z[k] = gpu::Map(z[k], factor,
                      [&](float v, float f) { return (v * rstd) * f; });
    }
    if constexpr (kOutput == LeanOutput::kY) StoreY(row, z);
    if constexpr (kOutput == LeanOutput::kStatic) StoreCodes(row, z, inverse);
    if constexpr (kOutput == LeanOutput::kPerRow) StorePerRow(row, z, slot + 1);
    if constexpr (kOutput == LeanOutput::kPerBlock) StorePerBlock(row, z);
  }

  __device__ void StoreY(uint32_t row, const Octet (&v)[kOctets]) const {
    char* const y = RowOf(args_.out, row, args_.out_pitch);
#pragma unroll
    for (int k = 0; k < kOctets; ++k) {
      if (Exists(k)) gpu::Store128(gpu::Pack<T>(v[k]), y + Offset(k));
    }
  }

  __device__ void StoreCodesOf(char* codes, int k, const Octet& v,
                               float inverse) const {
    Octet scaled = gpu::Map(v, [&](float f) { return f * inverse; });
    if (kOutput != LeanOutput::kStatic && args_.clamp) {
      const float limit = args_.qmax;
      scaled = gpu::Map(scaled, [&](float f) {  // NaN passes
        const float below = f > limit ? limit : f;
        return below < -limit ? -limit : below;
      });
    }
    const gpu::Bits64 bits = gpu::EncodeOctet(args_.code, scaled);
    if (Exists(k)) gpu::Store64(bits, codes + Column(k));
  }
  __device__ void StoreCodes(uint32_t row, const Octet (&v)[kOctets],
                             float inverse) const {
    char* const codes = RowOf(args_.out, row, args_.out_pitch);
#pragma unroll
    for (int k = 0; k < kOctets; ++k) StoreCodesOf(codes, k, v[k], inverse);
  }

  // quant/scale.h's scale of a group.
  __device__ float DynamicScale(float amax) const {
    const float bounded = amax < args_.scale_ub ? amax : args_.scale_ub;
    // NOTE: exact where it matters: a quotient whose remainder underflows is
    // far below min_scale.
    const float scale =
        gpu::QuotientFrom(bounded, args_.qmax, args_.inverse_qmax);
    return scale > args_.min_scale ? scale : args_.min_scale;
  }

  // 1 / scale: at least 2^-26, and seldom huge.
  __device__ static float DynamicInverse(float scale) {
    if (scale < 0x1p100f) return gpu::QuickDivide(1.0f, scale);
    return gpu::Divide(1.0f, scale);
  }

  __device__ void StorePerRow(uint32_t row, const Octet (&v)[kOctets],
                              int slot) {
    float amax = 0.0f;
#pragma unroll
    for (int k = 0; k < kOctets; ++k) {
      amax = gpu::FiniteAbsMax(v[k], gpu::kOctet, amax);
    }
    const float scale = DynamicScale(lanes_.Reduce(amax, slot, gpu::Larger{}));
    if (lanes_.lane() == 0) args_.scales[row * args_.scale_row_stride] = scale;
    StoreCodes(row, v, DynamicInverse(scale));
  }

  __device__ void StorePerBlock(uint32_t row, const Octet (&v)[kOctets]) {
    char* const codes = RowOf(args_.out, row, args_.out_pitch);
    float* const scales = args_.scales + row * args_.scale_row_stride;
    const int block_lanes = 1 << args_.block_shift;
#pragma unroll
    for (int k = 0; k < kOctets; ++k) {
      const float amax = gpu::WaveReduce<kVariant.wave_size>(
          gpu::FiniteAbsMax(v[k], gpu::kOctet, 0.0f), block_lanes,
          gpu::Larger{});
      const float scale = DynamicScale(amax);
      const int octet = k * lanes_.lanes() + lanes_.lane();
      if (Exists(k) && (octet & (block_lanes - 1)) == 0) {
        scales[(octet >> args_.block_shift) * args_.scale_col_stride] = scale;
      }
      StoreCodesOf(codes, k, v[k], DynamicInverse(scale));
    }
  }

  const LeanNormArgs& args_;
  gpu::RowLanes<kVariant.wave_size, kVariant.scope, kVariant.octets> lanes_;
  Bits128 x_[kOctets];
  Bits128 residual_[kOctets];
};

}  // namespace lamina::norm_internal
