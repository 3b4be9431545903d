// y = round_T(code * scale). Rows over threads; within a row, one run of
// columns for each scale. Bytes per element: 1 read, 4 or 2 written.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lamina/quant/dequantize/dequantize_cpu.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
//
#include <array>
#include <cstdint>

#include "lamina/quant/dequantize/dequantize_policy.h"
#include "lamina/quant/fp8-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lamina {
namespace HWY_NAMESPACE {

template <class Code, class Y>
HWY_NOINLINE void DequantizeRows(const DequantizeArgs& args, int64_t row_begin,
                                 int64_t row_end) {
  const DF32 d;
  const int64_t cols = args.codes.cols;
  for (int64_t row = row_begin; row < row_end; ++row) {
    for (int64_t begin = 0, end = 0; begin < cols; begin = end) {
      end = GroupEnd(args.scales, begin, cols);
      const auto scale = hn::Set(d, LoadScale(args.scales, row, begin));
      const Code* codes = args.codes.Row<Code>(row) + begin;
      Y* y = args.y.Row<Y>(row) + begin;
      ForEachVector(d, end - begin, [&](int64_t i, int64_t n) HWY_ATTR {
        StoreUpTo(hn::Mul(LoadUpTo(d, codes + i, n), scale), d, y + i, n);
      });
    }
  }
}

void DequantizeOfType(const DequantizeArgs& args, int64_t row_begin,
                      int64_t row_end) {
  Dispatch(quant_internal::DequantizeTable{},
           std::array{args.codes.dtype, args.y.dtype},
           [&]<class Code, class Y>(Types<Code, Y>) {
             DequantizeRows<Code, Y>(args, row_begin, row_end);
           });
}

}  // namespace HWY_NAMESPACE
}  // namespace lamina
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <algorithm>

#include "lamina/core/parallel.h"

namespace lamina {
namespace quant_internal {

HWY_EXPORT(DequantizeOfType);

void DequantizeCpu(const DequantizeArgs& args, const Stream& stream) {
  // Rows of about 32 Ki elements: some microseconds of work.
  const int64_t grain = std::max<int64_t>(1, 32768 / args.codes.cols);
  ParallelFor(stream, args.codes.total_rows(), grain,
              [&](int64_t begin, int64_t end, int) {
                HWY_DYNAMIC_DISPATCH(DequantizeOfType)(args, begin, end);
              });
}

}  // namespace quant_internal
}  // namespace lamina
#endif  // HWY_ONCE
