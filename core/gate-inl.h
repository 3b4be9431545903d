// Vector versions of core/gate.h, equal bit for bit.

#if defined(LAMINA_CORE_GATE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LAMINA_CORE_GATE_INL_H_
#undef LAMINA_CORE_GATE_INL_H_
#else
#define LAMINA_CORE_GATE_INL_H_
#endif

#include "lamina/core/elementary-inl.h"
#include "lamina/core/gate.h"

HWY_BEFORE_NAMESPACE();
namespace lamina {
namespace HWY_NAMESPACE {

HWY_INLINE VF32 Activate(DF32 d, ActivationKind kind, VF32 x) {
  switch (kind) {
    case ActivationKind::kSilu:
      return TimesSigmoid(d, x, x);
    case ActivationKind::kGelu:
      return GaussianLinearUnit(d, x);
    case ActivationKind::kGeluTanh: {
      const auto factor =
          FusedMulAdd(hn::Set(d, gate_internal::kGeluTanh3), hn::Mul(x, x),
                      hn::Set(d, gate_internal::kGeluTanh1));
      return TimesSigmoid(d, x, hn::Mul(x, factor));
    }
    case ActivationKind::kRelu:
      return hn::IfThenElse(hn::Lt(x, hn::Zero(d)), hn::Zero(d), x);
    case ActivationKind::kIdentity:
      return x;
  }
  return x;
}

HWY_INLINE VF32 GatedProduct(DF32 d, const GateSpec& spec, VF32 gate, VF32 up) {
  if (!spec.clamped) return hn::Mul(Activate(d, spec.kind, gate), up);
  if (spec.limit != 0.0f) {
    const auto high = hn::Set(d, spec.limit);
    const auto low = hn::Set(d, -spec.limit);
    gate = hn::IfThenElse(hn::Gt(gate, high), high, gate);
    up = hn::IfThenElse(hn::Gt(up, high), high, up);
    up = hn::IfThenElse(hn::Lt(up, low), low, up);
  }
  return hn::Mul(TimesSigmoid(d, gate, hn::Mul(hn::Set(d, spec.alpha), gate)),
                 hn::Add(up, hn::Set(d, spec.up_offset)));
}

}  // namespace HWY_NAMESPACE
}  // namespace lamina
HWY_AFTER_NAMESPACE();

#endif  // include guard
