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

// NOTE: the rounding is chosen at run time, once a vector: a third of the
// instantiations, and the branch is predicted.
template <class Code>
HWY_NOINLINE void StoreSpan(const QuantizedOutput& out, QuantizedSpan span,
                            const float* values, DType round_type) {
  const DF32 d;
  StoreQuantized<Code, float>(d, out, span, [&](int64_t i, int64_t n) HWY_ATTR {
    const VF32 v = LoadUpTo(d, values + (i - span.begin), n);
    if (round_type == DType::kBF16) return RoundTo<BF16>(d, v);
    if (round_type == DType::kF16) return RoundTo<F16>(d, v);
    return v;
  });
}

void StoreQuantizedSpanCpu(const QuantizedOutput& out, QuantizedSpan span,
                           const float* values, DType round_type) {
  Dispatch(CodeTable{}, std::array{out.codes.dtype},
           [&]<class Code>(Types<Code>) {
             StoreSpan<Code>(out, span, values,
                             out.round_before_quant ? round_type : DType::kF32);
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
