// The quantising store over fp32 values in memory, for every SIMD target.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lamina/quant/store_quantized.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
//
#include <array>

#include "lamina/core/dispatch.h"
#include "lamina/quant/store_quantized-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lamina {
namespace HWY_NAMESPACE {

template <class Code>
HWY_NOINLINE void StoreSpan(const QuantizedOutput& out, QuantizedSpan span,
                            const float* values, DType round_type) {
  const DF32 d;
  const auto load = [&](int64_t i, int64_t n) HWY_ATTR {
    return LoadUpTo(d, values + (i - span.begin), n);
  };
  if (!out.round_before_quant || round_type == DType::kF32) {
    StoreQuantized<Code, float>(d, out, span, load);
  } else if (round_type == DType::kBF16) {
    StoreQuantized<Code, BF16>(d, out, span, load);
  } else {
    StoreQuantized<Code, F16>(d, out, span, load);
  }
}

void StoreQuantizedSpanCpu(const QuantizedOutput& out, QuantizedSpan span,
                           const float* values, DType round_type) {
  Dispatch(CodeTable{}, std::array{out.codes.dtype},
           [&]<class Code>(Types<Code>) {
             StoreSpan<Code>(out, span, values, round_type);
           });
}

}  // namespace HWY_NAMESPACE
}  // namespace lamina
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lamina {

HWY_EXPORT(StoreQuantizedSpanCpu);

void StoreQuantizedSpan(const QuantizedOutput& out, QuantizedSpan span,
                        const float* values, DType round_type) {
  HWY_DYNAMIC_DISPATCH(StoreQuantizedSpanCpu)(out, span, values, round_type);
}

}  // namespace lamina
#endif  // HWY_ONCE
