// The row algorithm of the three norms on the CPU: statistics, then
//
//   v_i = ((z_i - mean) * rstd) * w_i + b_i
//
// to y and to the quantised output. One thread takes whole rows. A row is read
// from memory once; the later passes find it in the cache.

#if defined(LAMINA_NORM_NORM_ROW_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LAMINA_NORM_NORM_ROW_INL_H_
#undef LAMINA_NORM_NORM_ROW_INL_H_
#else
#define LAMINA_NORM_NORM_ROW_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "lamina/core/simd-inl.h"
#include "lamina/norm/norm_problem.h"
#include "lamina/norm/quantized_row.h"

HWY_BEFORE_NAMESPACE();
namespace lamina {
namespace HWY_NAMESPACE {

// ---- Statistics -------------------------------------------------------------

// Mean of value(i, n), the vector of columns [i, i + n) whose other lanes are
// +0, in the canonical order. Called once for each vector.
template <class Value>
HWY_INLINE float RowMean(DF32 d, int64_t cols, Value&& value) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  float total = 0.0f;
  for (int64_t begin = 0; begin < cols; begin += kSumChunk) {
    const int64_t count = std::min(kSumChunk, cols - begin);
    total += ChunkSum(d, count, [&](int64_t i) HWY_ATTR {
      return value(begin + i, std::min(lanes, count - i));
    });
  }
  return total / static_cast<float>(cols);
}

// NOTE: a square root and a division, both exactly rounded: an approximate
// reciprocal root would give other bits on every machine.
HWY_INLINE float ReciprocalDeviation(float variance, float epsilon) {
  return 1.0f / std::sqrt(variance + epsilon);
}

// rstd of RmsNorm. load(i, n) gives columns [i, i + n), other lanes +0.
template <class Load>
HWY_INLINE float RmsStatistics(DF32 d, int64_t cols, float epsilon,
                               Load&& load) {
  const float mean_square =
      RowMean(d, cols, [&](int64_t i, int64_t n) HWY_ATTR {
        const VF32 z = load(i, n);
        return hn::Mul(z, z);
      });
  return ReciprocalDeviation(mean_square, epsilon);
}

struct RowStatistics {
  static constexpr bool kCentered = false;
  float mean = 0;
  float rstd;
};
struct CenteredRowStatistics {
  static constexpr bool kCentered = true;
  float mean;
  float rstd;
};

// Mean and rstd of LayerNorm.
template <class Load>
HWY_INLINE CenteredRowStatistics LayerStatistics(DF32 d, int64_t cols,
                                                 float epsilon, Load&& load) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const float mean = RowMean(d, cols, load);
  const VF32 center = hn::Set(d, mean);
  const float variance = RowMean(d, cols, [&](int64_t i, int64_t n) HWY_ATTR {
    VF32 distance = hn::Sub(load(i, n), center);
    if (n < lanes) {
      distance =
          hn::IfThenElseZero(hn::FirstN(d, static_cast<size_t>(n)), distance);
    }
    return hn::Mul(distance, distance);
  });
  return {mean, ReciprocalDeviation(variance, epsilon)};
}

// ---- Values -----------------------------------------------------------------

// A row with its statistics: all that v_i depends on. W is the type of weight
// and bias.
template <class T, class W, class Statistics>
struct NormedRow {
  using Element = T;

  const T* z;
  const W* weight;  // may be null
  const W* bias;    // may be null
  bool weight_plus_one;
  Statistics statistics;

  // Calls store(i, n, v) for vectors covering columns [begin, end).
  template <class Store>
  HWY_INLINE void ForEachValue(DF32 d, int64_t begin, int64_t end,
                               Store&& store) const {
    // NOTE: locals, so that stores through `store` cannot change them.
    const T* const row = z + begin;
    const W* const scale = weight == nullptr ? nullptr : weight + begin;
    const W* const shift = bias == nullptr ? nullptr : bias + begin;
    const bool plus_one = weight_plus_one;
    const VF32 center = hn::Set(d, statistics.mean);
    const VF32 factor = hn::Set(d, statistics.rstd);
    const VF32 one = hn::Set(d, 1.0f);
    ForEachVector(d, end - begin, [&](int64_t i, int64_t n) HWY_ATTR {
      VF32 v = LoadUpTo(d, row + i, n);
      if constexpr (Statistics::kCentered) v = hn::Sub(v, center);
      v = hn::Mul(v, factor);
      if (scale != nullptr) {
        VF32 w = LoadUpTo(d, scale + i, n);
        if (plus_one) w = hn::Add(w, one);
        v = hn::Mul(v, w);
      }
      // A product and a sum, both rounded.
      if (shift != nullptr) v = hn::Add(v, LoadUpTo(d, shift + i, n));
      store(begin + i, n, v);
    });
  }
};

// ---- Quantised output -------------------------------------------------------

// ChunkedRow::fill of a NormedRow.
template <bool kRound, class Row>
HWY_FLATTEN void FillChunk(const void* row, int64_t begin, int64_t end,
                           float* values) {
  const DF32 d;
  static_cast<const Row*>(row)->ForEachValue(
      d, begin, end, [&](int64_t i, int64_t n, VF32 v) HWY_ATTR {
        if constexpr (kRound) v = RoundTo<typename Row::Element>(d, v);
        StoreUpTo(v, d, values + (i - begin), n);
      });
}

// ---- The row ----------------------------------------------------------------

// Writes y and the quantised output of one row, whose values are z.
template <class T, class W, class Statistics>
HWY_INLINE void StoreNormedRow(DF32 d,
                               const norm_internal::NormProblem& problem,
                               int64_t flat_row, const T* z,
                               Statistics statistics) {
  using Row = NormedRow<T, W, Statistics>;
  const int64_t cols = problem.x.cols;
  const Row row{.z = z,
                .weight = static_cast<const W*>(problem.weight.data),
                .bias = static_cast<const W*>(problem.bias.data),
                .weight_plus_one = problem.weight_plus_one,
                .statistics = statistics};
  // NOTE: codes before y: y may be x, which the codes are computed from.
  if (problem.quantized.has_value()) {
    norm_internal::StoreQuantizedRow(
        problem.quantized, flat_row, cols,
        {&row, problem.quantized.round_before_quant ? &FillChunk<true, Row>
                                                    : &FillChunk<false, Row>});
  }
  if (problem.y.has_value()) {
    T* y = problem.y.Row<T>(flat_row);
    row.ForEachValue(d, 0, cols, [&](int64_t i, int64_t n, VF32 v) HWY_ATTR {
      StoreUpTo(v, d, y + i, n);
    });
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace lamina
HWY_AFTER_NAMESPACE();

#endif  // include guard
