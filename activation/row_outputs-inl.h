// The loop of the CPU kernels: rows of fp32 values, computed a span at a time
// into a small buffer, stored as T and quantised.

#if defined(LAMINA_ACTIVATION_ROW_OUTPUTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LAMINA_ACTIVATION_ROW_OUTPUTS_INL_H_
#undef LAMINA_ACTIVATION_ROW_OUTPUTS_INL_H_
#else
#define LAMINA_ACTIVATION_ROW_OUTPUTS_INL_H_
#endif

#include <algorithm>
#include <array>
#include <cstdint>

#include "lamina/activation/row_outputs.h"
#include "lamina/core/dispatch.h"
#include "lamina/core/math.h"
#include "lamina/core/parallel.h"
#include "lamina/quant/store_quantized-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lamina {
namespace HWY_NAMESPACE {

using activation_internal::RowOutputs;

// Columns that are computed at once: whole blocks of any scale.
inline constexpr int64_t kSpanCols = 1024;
// Longest row with a scale of its own that is kept in the buffer (64 KiB of
// stack); a longer one is computed twice.
inline constexpr int64_t kBufferedCols = 16384;
// Elements that are worth a thread.
inline constexpr int64_t kGrain = 8192;

template <class T>
HWY_INLINE void StoreRow(DF32 d, const MatrixView& y, QuantizedSpan span,
                         const float* values) {
  if (!y.has_value()) return;
  T* row = y.Row<T>(span.row) + span.begin;
  ForEachVector(d, span.end - span.begin, [&](int64_t i, int64_t n) HWY_ATTR {
    StoreUpTo(LoadUpTo(d, values + i, n), d, row + i, n);
  });
}

// A dynamic scale for a row that does not fit the buffer: the first pass finds
// it, the second computes the values again and stores. x may be y, so nothing
// but the scale is stored before.
template <class T, class Compute>
HWY_NOINLINE void StoreLongRow(DF32 d, const RowOutputs& out, int64_t row,
                               int64_t cols, Compute&& compute) {
  HWY_ALIGN float values[kSpanCols];
  const QuantizedOutput& quantized = out.quantized;
  const auto for_each_span = [&](auto&& use) HWY_ATTR {
    for (int64_t begin = 0; begin < cols; begin += kSpanCols) {
      const QuantizedSpan span{row, begin, std::min(cols, begin + kSpanCols)};
      compute(span, values);
      use(span, [&](int64_t i, int64_t n) HWY_ATTR {
        const VF32 v = LoadUpTo(d, values + (i - span.begin), n);
        return quantized.round_before_quant ? RoundTo<T>(d, v) : v;
      });
    }
  };
  float amax = 0.0f;
  for_each_span([&](QuantizedSpan span, auto&& value) HWY_ATTR {
    amax = std::max(amax, FiniteAbsMax(d, span.begin, span.end, value));
  });
  const float scale =
      StoreScale(quantized.scales, row, 0, DynamicScale(amax, quantized));
  Dispatch(CodeTable{}, std::array{quantized.codes.dtype},
           [&]<class Code>(Types<Code>) HWY_ATTR {
             Code* codes = quantized.codes.Row<Code>(row);
             for_each_span([&](QuantizedSpan span, auto&& value) HWY_ATTR {
               StoreCodes(d, codes, span.begin, span.end, 1.0f / scale,
                          ResolvedQmax(quantized), value);
               StoreRow<T>(d, out.y, span, values);
             });
           });
}

// compute(span, values) writes the fp32 results of a span to values[0…].
template <class T, class Compute>
HWY_INLINE void StoreRows(const Stream& stream, const RowOutputs& out,
                          int64_t rows, int64_t cols, Compute&& compute) {
  const DF32 d;
  const bool scale_of_row =
      out.quantized.has_value() && out.quantized.dynamic &&
      out.quantized.scales.granularity == ScaleGranularity::kPerRow;
  const auto store = [&](QuantizedSpan span, float* values) HWY_ATTR {
    compute(span, values);
    StoreRow<T>(d, out.y, span, values);
    if (out.quantized.has_value()) {
      StoreQuantizedSpan(out.quantized, span, values, DTypeOf<T>::value);
    }
  };
  if (scale_of_row) {
    const int64_t grain = std::max<int64_t>(1, kGrain / cols);
    ParallelFor(stream, rows, grain,
                [&](int64_t begin, int64_t end, int) HWY_ATTR {
                  HWY_ALIGN float values[kBufferedCols];
                  for (int64_t row = begin; row < end; ++row) {
                    if (cols <= kBufferedCols) {
                      store({row, 0, cols}, values);
                    } else {
                      StoreLongRow<T>(d, out, row, cols, compute);
                    }
                  }
                });
    return;
  }
  const int64_t spans = CeilDiv(cols, kSpanCols);
  const int64_t grain =
      std::max<int64_t>(1, kGrain / std::min(cols, kSpanCols));
  ParallelFor(
      stream, rows * spans, grain,
      [&](int64_t begin, int64_t end, int) HWY_ATTR {
        HWY_ALIGN float values[kSpanCols];
        for (int64_t i = begin; i < end; ++i) {
          const int64_t first = i % spans * kSpanCols;
          store({i / spans, first, std::min(cols, first + kSpanCols)}, values);
        }
      });
}

}  // namespace HWY_NAMESPACE
}  // namespace lamina
HWY_AFTER_NAMESPACE();

#endif  // include guard
