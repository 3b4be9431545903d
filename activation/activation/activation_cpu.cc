// y = round_T(act(x)), a span of 1024 columns at a time (row_outputs-inl.h).

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lamina/activation/activation/activation_cpu.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
//
#include <array>

#include "lamina/activation/activation/activation_cpu.h"
#include "lamina/activation/activation/activation_policy.h"
#include "lamina/activation/row_outputs-inl.h"
#include "lamina/core/gate-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lamina {
namespace HWY_NAMESPACE {

template <class T>
HWY_NOINLINE void ComputeRows(const ActivationArgs& args,
                              const Stream& stream) {
  const DF32 d;
  StoreRows<T>(stream, {args.y, args.quantized}, args.x.total_rows(),
               args.x.cols, [&](QuantizedSpan span, float* values) HWY_ATTR {
                 const T* x = args.x.Row<T>(span.row) + span.begin;
                 ForEachVector(
                     d, span.end - span.begin,
                     [&](int64_t i, int64_t n) HWY_ATTR {
                       StoreUpTo(Activate(d, args.kind, LoadUpTo(d, x + i, n)),
                                 d, values + i, n);
                     });
               });
}

void ActivationRows(const ActivationArgs& args, const Stream& stream) {
  Dispatch(ActivationTable{}, std::array{args.x.dtype},
           [&]<class T>(Types<T>) { ComputeRows<T>(args, stream); });
}

}  // namespace HWY_NAMESPACE
}  // namespace lamina
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lamina::activation_internal {

HWY_EXPORT(ActivationRows);

void ActivationCpu(const ActivationArgs& args, const Stream& stream) {
  HWY_DYNAMIC_DISPATCH(ActivationRows)(args, stream);
}

}  // namespace lamina::activation_internal
#endif  // HWY_ONCE
