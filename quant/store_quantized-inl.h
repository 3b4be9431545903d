// The quantising store of the CPU kernels: fp32 values of one row to codes
// and, when dynamic, scales. The rule is in quant/scale.h.
//
//   Dispatch(CodeTable{}, std::array{out.codes.dtype},
//            [&]<class Code>(Types<Code>) {
//     for (row …) {
//       StoreQuantized<Code, T>(d, out, {.row = row, .end = cols},
//                               [&](int64_t i, int64_t n) HWY_ATTR {
//         return hn::Mul(LoadUpTo(d, x + i, n), inverse_rms);
//       });
//     }
//   });
//
// Operators whose values are in memory, or dear to compute, call the plain
// function of quant/store_quantized.h instead.

#if defined(LAMINA_QUANT_STORE_QUANTIZED_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LAMINA_QUANT_STORE_QUANTIZED_INL_H_
#undef LAMINA_QUANT_STORE_QUANTIZED_INL_H_
#else
#define LAMINA_QUANT_STORE_QUANTIZED_INL_H_
#endif

#include <cstdint>
#include <limits>
#include <type_traits>

#include "lamina/core/simd-inl.h"
#include "lamina/quant/fp8-inl.h"
#include "lamina/quant/scale.h"
#include "lamina/quant/store_quantized.h"

HWY_BEFORE_NAMESPACE();
namespace lamina {
namespace HWY_NAMESPACE {

// Largest |value(i, n)| over the finite elements of columns [begin, end), or 0.
// value(i, n) gives the vector of columns [i, i + n); its other lanes are
// ignored. A maximum does not depend on the order.
template <class Value>
HWY_INLINE float FiniteAbsMax(DF32 d, int64_t begin, int64_t end,
                              Value&& value) {
  const auto largest = hn::Set(d, std::numeric_limits<float>::max());
  auto amax = hn::Zero(d);
  ForEachVector(d, end - begin, [&](int64_t i, int64_t n) HWY_ATTR {
    const auto magnitude = hn::Abs(value(begin + i, n));
    const auto counts = hn::And(hn::Le(magnitude, largest),
                                hn::FirstN(d, static_cast<size_t>(n)));
    amax = hn::Max(amax, hn::IfThenElseZero(counts, magnitude));
  });
  return hn::GetLane(hn::MaxOfLanes(d, amax));
}

// codes[i] = convert(clamp(value(begin + i, n) * inverse, ±limit)); NaN passes
// the clamp.
template <class Code, class Value>
HWY_INLINE void StoreCodes(DF32 d, Code* codes, int64_t begin, int64_t end,
                           float inverse, float limit, Value&& value) {
  const auto factor = hn::Set(d, inverse);
  const auto high = hn::Set(d, limit);
  const auto low = hn::Set(d, -limit);
  ForEachVector(d, end - begin, [&](int64_t i, int64_t n) HWY_ATTR {
    const auto scaled = hn::Mul(value(begin + i, n), factor);
    const auto below = hn::IfThenElse(hn::Gt(scaled, high), high, scaled);
    const auto clamped = hn::IfThenElse(hn::Lt(below, low), low, below);
    StoreUpTo(clamped, d, codes + begin + i, n);
  });
}

// Writes columns [span.begin, span.end) of flat row span.row of `out`. Code is
// the type of out.codes; T is the operator's type, used when
// out.round_before_quant. value(i, n) gives the fp32 vector of columns
// [i, i + n), n <= Lanes(d); its other lanes are ignored. It is called once
// for each vector with static scales, twice with dynamic ones.
//
// With dynamic scales the span must hold whole groups: the row, or whole
// blocks. Dynamic scales that rows share are not for this function.
template <class Code, class T, class Value>
HWY_INLINE void StoreQuantized(DF32 d, const QuantizedOutput& out,
                               QuantizedSpan span, Value&& value) {
  Code* codes = out.codes.Row<Code>(span.row);
  const bool round = out.round_before_quant;
  const auto rounded = [&](int64_t i, int64_t n) HWY_ATTR {
    const VF32 v = value(i, n);
    if constexpr (std::is_same_v<T, float>) {
      return v;
    } else {
      return round ? RoundTo<T>(d, v) : v;
    }
  };
  const float limit =
      out.dynamic ? ResolvedQmax(out) : std::numeric_limits<float>::infinity();
  // Blocks start at multiples of block_cols, wherever the span starts.
  for (int64_t begin = span.begin, end = 0; begin < span.end; begin = end) {
    end = GroupEnd(out.scales, begin, span.end);
    const float scale =
        out.dynamic ? StoreScale(out.scales, span.row, begin,
                                 DynamicScale(
                                     FiniteAbsMax(d, begin, end, rounded), out))
                    : LoadScale(out.scales, span.row, begin);
    StoreCodes(d, codes, begin, end, 1.0f / scale, limit, rounded);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace lamina
HWY_AFTER_NAMESPACE();

#endif  // include guard
