// The table of quant/convert_fp8_dialect.h on vectors of bytes, rows over
// threads; scales one by one. Bytes per element: 1 read, 1 written.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE \
  "lamina/quant/convert_fp8_dialect/convert_fp8_dialect_cpu.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
//
#include <cstdint>

#include "lamina/core/simd-inl.h"
#include "lamina/quant/convert_fp8_dialect/convert_fp8_dialect_policy.h"

HWY_BEFORE_NAMESPACE();
namespace lamina {
namespace HWY_NAMESPACE {

// Equal to ConvertFp8Code for every code.
template <class D8, class V8 = hn::Vec<D8>>
HWY_INLINE V8 ConvertCodes(D8 d, V8 codes, Fp8Format from, Fp8Format to) {
  const auto sign_bit = hn::Set(d, uint8_t{0x80});
  const auto magnitude = hn::AndNot(sign_bit, codes);
  const auto minus_zero = hn::Eq(codes, sign_bit);  // or fnuz NaN
  const auto nan = hn::Set(d, to.nan_code);
  if (to.fnuz) {
    const auto special = hn::Gt(magnitude, hn::Set(d, from.max_code));
    return hn::IfThenElse(special, nan, hn::IfThenZeroElse(minus_zero, codes));
  }
  const auto sign = hn::And(codes, sign_bit);
  const auto saturated =
      hn::Or(sign, hn::Min(magnitude, hn::Set(d, to.max_code)));
  return hn::IfThenElse(minus_zero, nan, saturated);
}

void ConvertRow(const uint8_t* codes, uint8_t* out, int64_t cols,
                const quant_internal::Fp8FormatPair& formats) {
  const hn::ScalableTag<uint8_t> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= cols; i += lanes) {
    hn::StoreU(
        ConvertCodes(d, hn::LoadU(d, codes + i), formats.from, formats.to), d,
        out + i);
  }
  for (; i < cols; ++i) {
    out[i] = ConvertFp8Code(codes[i], formats.from, formats.to);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace lamina
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <algorithm>
#include <cstring>

#include "lamina/core/math.h"
#include "lamina/core/parallel.h"

namespace lamina {
namespace quant_internal {

HWY_EXPORT(ConvertRow);

namespace {

// A handful of scales at most for each row of codes, on the calling thread.
void ConvertScales(const ConvertFp8DialectArgs& args, float factor) {
  const ConstScaleView& in = args.scales;
  const int64_t rows = args.codes.total_rows();
  const int64_t cols = args.codes.cols;
  const bool tile = in.granularity == ScaleGranularity::kPerTile;
  const int64_t row_step = in.granularity == ScaleGranularity::kPerTensor ? rows
                           : tile ? in.block_rows
                                  : 1;
  for (int64_t row = 0; row < rows; row += row_step) {
    for (int64_t col = 0; col < cols; col = GroupEnd(in, col, cols)) {
      StoreScale(args.out_scales, row, col, LoadScale(in, row, col) * factor);
    }
  }
}

}  // namespace

void ConvertFp8DialectCpu(const ConvertFp8DialectArgs& args,
                          const Stream& stream) {
  const Fp8FormatPair formats = FormatsOf(args);
  const bool copy = formats.from.fnuz == formats.to.fnuz;
  const int64_t cols = args.codes.cols;
  const int64_t grain = std::max<int64_t>(1, 131072 / cols);
  ParallelFor(stream, args.codes.total_rows(), grain,
              [&](int64_t begin, int64_t end, int) {
                for (int64_t row = begin; row < end; ++row) {
                  const auto* in = args.codes.Row<uint8_t>(row);
                  auto* out = args.out_codes.Row<uint8_t>(row);
                  if (copy) {
                    std::memmove(out, in, static_cast<size_t>(cols));
                  } else {
                    HWY_DYNAMIC_DISPATCH(ConvertRow)(in, out, cols, formats);
                  }
                }
              });
  if (args.scales.has_value()) {
    ConvertScales(args, Fp8DialectScaleFactor(formats.from, formats.to));
  }
}

}  // namespace quant_internal
}  // namespace lamina
#endif  // HWY_ONCE
