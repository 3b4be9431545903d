// y = round_T(act(gate) * up), gate and up in one row of x.
//
// A span of 1024 columns is computed in fp32 into a buffer in the first-level
// cache, then stored and quantised (row_outputs-inl.h). Spans are shared among
// the threads, so that a single row uses all of them. Bytes for each result:
// 2 sizeof(T) read, sizeof(T) or 1 written; below about 8 threads the
// exponential, not memory, sets the speed.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE \
  "lamina/activation/gated_activation/gated_activation_cpu.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
//
#include <array>

#include "lamina/activation/gated_activation/gated_activation_cpu.h"
#include "lamina/activation/gated_activation/gated_activation_policy.h"
#include "lamina/activation/row_outputs-inl.h"
#include "lamina/core/gate-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lamina {
namespace HWY_NAMESPACE {

struct GateAndUp {
  VF32 gate;
  VF32 up;
};

// n pairs gate0, up0, gate1, up1, … from p.
template <class T>
HWY_INLINE GateAndUp LoadPairs(DF32 d, const T* p, int64_t n) {
#if HWY_TARGET == HWY_SCALAR
  (void)n;
  return {LoadF32(d, p), LoadF32(d, p + 1)};
#else
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t low = std::min(2 * n, lanes);
  const VF32 a = LoadUpTo(d, p, low);
  const VF32 b = LoadUpTo(d, p + low, 2 * n - low);
  return {hn::ConcatEven(d, b, a), hn::ConcatOdd(d, b, a)};
#endif
}

template <class T>
HWY_INLINE void ComputeSpan(DF32 d, const GatedActivationArgs& args,
                            QuantizedSpan span, float* values) {
  const int64_t cols = args.x.cols / 2;
  const T* row = args.x.Row<T>(span.row);
  if (args.gate.layout == GateLayout::kInterleaved) {
    const T* pairs = row + 2 * span.begin;
    ForEachVector(d, span.end - span.begin, [&](int64_t i, int64_t n) HWY_ATTR {
      const GateAndUp v = LoadPairs(d, pairs + 2 * i, n);
      StoreUpTo(GatedProduct(d, args.gate, v.gate, v.up), d, values + i, n);
    });
    return;
  }
  const bool gate_first = args.gate.layout == GateLayout::kGateFirst;
  const T* gate = row + (gate_first ? 0 : cols) + span.begin;
  const T* up = row + (gate_first ? cols : 0) + span.begin;
  ForEachVector(d, span.end - span.begin, [&](int64_t i, int64_t n) HWY_ATTR {
    StoreUpTo(GatedProduct(d, args.gate, LoadUpTo(d, gate + i, n),
                           LoadUpTo(d, up + i, n)),
              d, values + i, n);
  });
}

template <class T>
HWY_NOINLINE void ComputeRows(const GatedActivationArgs& args,
                              const Stream& stream) {
  const DF32 d;
  StoreRows<T>(stream, {args.y, args.quantized}, args.x.total_rows(),
               args.x.cols / 2,
               [&](QuantizedSpan span, float* values)
                   HWY_ATTR { ComputeSpan<T>(d, args, span, values); });
}

void GatedActivationRows(const GatedActivationArgs& args,
                         const Stream& stream) {
  Dispatch(GatedActivationTable{}, std::array{args.x.dtype},
           [&]<class T>(Types<T>) { ComputeRows<T>(args, stream); });
}

}  // namespace HWY_NAMESPACE
}  // namespace lamina
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lamina::activation_internal {

HWY_EXPORT(GatedActivationRows);

void GatedActivationCpu(const GatedActivationArgs& args, const Stream& stream) {
  HWY_DYNAMIC_DISPATCH(GatedActivationRows)(args, stream);
}

}  // namespace lamina::activation_internal
#endif  // HWY_ONCE
