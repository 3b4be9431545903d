#pragma once

// The quantising store of GPU kernels: the rule of quant/scale.h, bit for bit,
// from octets in registers.
//
//   const float scale = StaticScale(out);   // before WaitForPredecessor
//   …
//   StoreQuantizedRow<T>(out, scale, row, values, slot);
//
// Exchanges between lanes: a dynamic scale of a row is one reduction of the
// row (shared memory of `slot`); a dynamic scale of a block of 32, 64 or 128
// columns is one over 4, 8 or 16 adjacent lanes. All lanes must therefore call
// these functions, those of rows and octets past the end too; they store
// nothing.
//
// kWhole: every octet exists whole or not at all (cols % 8 == 0) and
// out.octets. It saves the element-wise code.

#include <cmath>
#include <cstdint>
#include <limits>

#include "lamina/core/octet.cuh"
#include "lamina/core/quick_divide.cuh"
#include "lamina/quant/fp8.cuh"
#include "lamina/quant/quantized_args.h"
#include "lamina/reduce/row_reduce.cuh"
#include "lamina/reduce/wave_reduce.cuh"

namespace lamina::gpu {

__device__ inline float LoadScale(const ScaleArgs& scales, int64_t index) {
  return scales.dtype == DType::kF32
             ? static_cast<const float*>(scales.data)[index]
             : ToFloat(static_cast<const F8E8M0*>(scales.data)[index]);
}

// The static scale of a tensor; 1 for other outputs, where nobody reads it. The
// caller may read it before WaitForPredecessor. It is not divided here, so that
// nothing waits for it before the loads that follow are on their way.
__device__ inline float StaticScale(const QuantizedArgs& out) {
  if (!out.has_value() || out.dynamic ||
      out.scales.granularity != ScaleGranularity::kPerTensor) {
    return 1.0f;
  }
  return LoadScale(out.scales, 0);
}

// The dynamic scale of a group with this amax, as it is stored.
__device__ inline float DynamicScale(const QuantizedArgs& out, float amax) {
  const float bounded = amax < out.scale_ub ? amax : out.scale_ub;
  // NOTE: exact where it matters: a quotient whose remainder underflows is far
  // below min_scale.
  const float scale = QuotientFrom(bounded, out.qmax, out.inverse_qmax);
  const float at_least = scale > out.min_scale ? scale : out.min_scale;
  return out.scales.dtype == DType::kF32 ? at_least
                                         : ToFloat(FromFloat<F8E8M0>(at_least));
}
// 1 / scale of what DynamicScale gave: at least 2^-26, and seldom huge.
__device__ inline float DynamicInverse(float scale) {
  return scale < 0x1p100f ? QuickDivide(1.0f, scale) : Divide(1.0f, scale);
}
__device__ inline void StoreScale(const ScaleArgs& scales, int64_t index,
                                  float scale) {
  if (scales.dtype == DType::kF32) {
    static_cast<float*>(scales.data)[index] = scale;
  } else {
    static_cast<F8E8M0*>(scales.data)[index] = FromFloat<F8E8M0>(scale);
  }
}
// Stores what DynamicScale gave.
// NOTE: as UE8M0 it is a power of two by now: nothing is rounded twice.
__device__ inline void StoreDynamicScale(const QuantizedArgs& out, int64_t row,
                                         int64_t col, float scale) {
  StoreScale(out.scales, out.scales.Index(row, col), scale);
}

struct Larger {
  __device__ float operator()(float a, float b) const { return a > b ? a : b; }
};

namespace store_internal {
[[gnu::noinline]] __device__ inline float FiniteAbsMaxOneByOne(Octet octet,
                                                               int count,
                                                               float amax) {
#pragma unroll
  for (int i = 0; i < kOctet; ++i) {
    const float magnitude = std::fabs(octet.v[i]);
    if (i < count && magnitude <= std::numeric_limits<float>::max() &&
        magnitude > amax) {
      amax = magnitude;
    }
  }
  return amax;
}
}  // namespace store_internal

// max(amax, largest |v| over the finite values of the first `count`).
template <bool kWhole = false>
__device__ inline float FiniteAbsMax(const Octet& octet, int count,
                                     float amax) {
  if (kWhole && count <= 0) return amax;
  if (kWhole || count == kOctet) {
    // fmax ignores NaN; an infinity is rare and sorted out below.
    float largest = amax;
#pragma unroll
    for (int i = 0; i < kOctet; ++i) {
      largest = std::fmax(largest, std::fabs(octet.v[i]));
    }
    if (largest <= std::numeric_limits<float>::max()) return largest;
  }
  return store_internal::FiniteAbsMaxOneByOne(octet, count, amax);
}

// What is quantised: the values, or the values rounded to T.
template <class T>
__device__ inline Octet QuantizedValues(const QuantizedArgs& out,
                                        const Octet& values) {
  return out.round_before_quant ? RoundTo<T>(values) : values;
}

// Codes of the first `count` of QuantizedValues, to p.
template <bool kWhole = false>
__device__ inline void StoreCodes(const QuantizedArgs& out, uint8_t* p,
                                  int count, const Octet& values,
                                  float inverse) {
  if (count <= 0) return;
  Octet scaled = Map(values, [&](float v) { return v * inverse; });
  if (out.clamp) {
    scaled = Map(scaled, [&](float v) {  // NaN passes
      const float below = v > out.qmax ? out.qmax : v;
      return below < -out.qmax ? -out.qmax : below;
    });
  }
  const Bits64 codes = EncodeOctet(out.codes.dtype, scaled);
  if (kWhole || (count == kOctet && out.octets)) {
    Store64(codes, p);
  } else {
    StoreCodesUpTo(codes, p, count);
  }
}
// To (row, col).
template <bool kWhole = false>
__device__ inline void StoreCodes(const QuantizedArgs& out, int64_t row,
                                  int64_t col, int count, const Octet& values,
                                  float inverse) {
  if (count <= 0) return;
  StoreCodes<kWhole>(out, out.codes.Row<uint8_t>(row) + col, count, values,
                     inverse);
}

// Quantises the octet at (row, col) whose first `count` columns exist; 0 or
// less: it only takes part in the exchange. Not for out.scale_of_row() and not
// for dynamic scales that rows share. `lanes`: how many adjacent lanes, a
// power of two, own the adjacent octets of this row; columns that are multiples
// of 8 * lanes belong to the first of them.
template <class T, int kWave, bool kWhole = false>
__device__ inline void StoreQuantizedOctet(const QuantizedArgs& out,
                                           float static_scale, int64_t row,
                                           int64_t col, int count,
                                           const Octet& values,
                                           int lanes = kWave) {
  const Octet v = QuantizedValues<T>(out, values);
  if (out.dynamic) {
    const int block_lanes = 1 << (out.scales.col_shift - 3);
    const float amax =
        WaveReduce<kWave>(FiniteAbsMax<kWhole>(v, count, 0.0f),
                          block_lanes < lanes ? block_lanes : lanes, Larger{});
    const float scale = DynamicScale(out, amax);
    const int64_t in_block = col & ((int64_t{1} << out.scales.col_shift) - 1);
    if (count > 0 && in_block == 0) StoreDynamicScale(out, row, col, scale);
    StoreCodes<kWhole>(out, row, col, count, v, DynamicInverse(scale));
    return;
  }
  float scale = static_scale;
  if (out.scales.granularity != ScaleGranularity::kPerTensor && count > 0) {
    scale = LoadScale(out.scales, out.scales.Index(row, col));
  }
  StoreCodes<kWhole>(out, row, col, count, v, Divide(1.0f, scale));
}

// Quantises a row. Rows past the last row of out.codes take part in exchanges
// and store nothing. `values` past the end of the row do not matter.
template <class T, bool kWhole = false, int kWave, RowScope kScope, int kOctets>
__device__ inline void StoreQuantizedRow(const QuantizedArgs& out,
                                         float static_scale,
                                         RowLanes<kWave, kScope, kOctets>& row,
                                         const Octet (&values)[kOctets],
                                         int slot) {
  const bool exists = row.row() < out.codes.total_rows();
  if (!out.scale_of_row()) {
#pragma unroll
    for (int k = 0; k < kOctets; ++k) {
      StoreQuantizedOctet<T, kWave>(out, static_scale, row.row(), row.Column(k),
                                    exists ? row.Count(k) : 0, values[k],
                                    row.lanes() < kWave ? row.lanes() : kWave);
    }
    return;
  }
  float amax = 0.0f;
#pragma unroll
  for (int k = 0; k < kOctets; ++k) {
    amax = FiniteAbsMax<kWhole>(QuantizedValues<T>(out, values[k]),
                                row.Count(k), amax);
  }
  const float scale = DynamicScale(out, row.Reduce(amax, slot, Larger{}));
  if (!exists) return;
  if (row.lane() == 0) StoreDynamicScale(out, row.row(), 0, scale);
  const float inverse = DynamicInverse(scale);
#pragma unroll
  for (int k = 0; k < kOctets; ++k) {
    StoreCodes<kWhole>(out, row.row(), row.Column(k), row.Count(k),
                       QuantizedValues<T>(out, values[k]), inverse);
  }
}

}  // namespace lamina::gpu
