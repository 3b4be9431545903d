#include "lamina/norm/quantized_row.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lamina/norm/quantized_row.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
//
#include <algorithm>
#include <array>
#include <cstdint>

#include "lamina/core/dispatch.h"
#include "lamina/quant/store_quantized-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lamina {
namespace HWY_NAMESPACE {

HWY_FLATTEN void StoreNormQuantizedRow(const QuantizedOutput& out,
                                       int64_t flat_row, int64_t cols,
                                       norm_internal::ChunkedRow row) {
  constexpr int64_t kChunk = norm_internal::ChunkedRow::kChunk;
  const DF32 d;
  HWY_ALIGN float values[kChunk];
  int64_t filled = -1;
  const auto load = [&](int64_t i, int64_t n) HWY_ATTR {
    const int64_t begin = i - i % kChunk;
    if (begin != filled) {
      row.fill(row.row, begin, std::min(begin + kChunk, cols), values);
      filled = begin;
    }
    return LoadUpTo(d, values + (i - begin), n);
  };
  const QuantizedSpan span{.row = flat_row, .begin = 0, .end = cols};
  Dispatch(CodeTable{}, std::array{out.codes.dtype},
           [&]<class Code>(Types<Code>) HWY_ATTR {
             // float: the chunk is rounded already if it should be.
             StoreQuantized<Code, float>(d, out, span, load);
           });
}

}  // namespace HWY_NAMESPACE
}  // namespace lamina
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lamina {

HWY_EXPORT(StoreNormQuantizedRow);

namespace norm_internal {

void StoreQuantizedRow(const QuantizedOutput& out, int64_t flat_row,
                       int64_t cols, ChunkedRow row) {
  HWY_DYNAMIC_DISPATCH(StoreNormQuantizedRow)(out, flat_row, cols, row);
}

}  // namespace norm_internal
}  // namespace lamina
#endif  // HWY_ONCE
