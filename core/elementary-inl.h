// Vector versions of core/elementary.h: the same operations in the same order,
// hence the same bits. The comments are there.

#if defined(LAMINA_CORE_ELEMENTARY_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LAMINA_CORE_ELEMENTARY_INL_H_
#undef LAMINA_CORE_ELEMENTARY_INL_H_
#else
#define LAMINA_CORE_ELEMENTARY_INL_H_
#endif

#include <cstdint>

#include "lamina/core/elementary.h"
#include "lamina/core/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lamina {
namespace HWY_NAMESPACE {

// The parts of exp(x): p * power[0] * power[1].
struct ExpParts {
  VF32 p;
  VF32 power[2];
};

// |x| <= kExpLimit, or NaN.
HWY_INLINE ExpParts SplitExp(DF32 d, VF32 x) {
  namespace e = elementary;
  const hn::RebindToSigned<DF32> di;
  const auto round = hn::Set(d, e::kRound);
  const auto shifted = FusedMulAdd(x, hn::Set(d, e::kLog2E), round);
  const auto n = hn::Sub(shifted, round);
  auto r = FusedMulAdd(n, hn::Set(d, -e::kLn2High), x);
  r = FusedMulAdd(n, hn::Set(d, -e::kLn2Low), r);
  auto q = hn::Set(d, e::kExp[4]);
  for (int i = 3; i >= 0; --i) q = FusedMulAdd(q, r, hn::Set(d, e::kExp[i]));
  const auto exponent =
      hn::Sub(hn::BitCast(di, shifted), hn::BitCast(di, round));
  const auto half = hn::ShiftRight<1>(exponent);
  const auto bias = hn::Set(di, 127);
  const auto power = [&](auto exp2) HWY_ATTR {
    return hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(exp2, bias)));
  };
  return {hn::Add(hn::Set(d, 1.0f), FusedMulAdd(q, hn::Mul(r, r), r)),
          {power(half), power(hn::Sub(exponent, half))}};
}

HWY_INLINE VF32 ClampedToExpLimit(DF32 d, VF32 x) {
  const auto low = hn::Set(d, -elementary::kExpLimit);
  const auto high = hn::Set(d, elementary::kExpLimit);
  x = hn::IfThenElse(hn::Lt(x, low), low, x);
  return hn::IfThenElse(hn::Gt(x, high), high, x);
}

HWY_INLINE VF32 ScaledExp(DF32 d, VF32 x, VF32 factor) {
  const ExpParts e = SplitExp(d, ClampedToExpLimit(d, x));
  return hn::Mul(hn::Mul(hn::Mul(factor, e.p), e.power[0]), e.power[1]);
}

HWY_INLINE VF32 Exp(DF32 d, VF32 x) {
  const ExpParts e = SplitExp(d, ClampedToExpLimit(d, x));
  return hn::Mul(hn::Mul(e.p, e.power[0]), e.power[1]);
}

HWY_INLINE VF32 TimesSigmoid(DF32 d, VF32 x, VF32 v) {
  const auto limit = hn::Set(d, elementary::kExpLimit);
  const auto sign = hn::SignBit(d);
  const auto one = hn::Set(d, 1.0f);
  x = hn::IfThenElse(hn::Lt(v, hn::Neg(limit)), hn::And(x, sign), x);
  const auto magnitude = hn::AndNot(sign, v);
  const auto clamped =
      hn::IfThenElse(hn::Gt(magnitude, limit), limit, magnitude);
  const ExpParts parts = SplitExp(d, hn::Xor(clamped, sign));
  const auto e = hn::Mul(hn::Mul(parts.p, parts.power[0]), parts.power[1]);
  const auto scaled =
      hn::Mul(hn::Mul(hn::Mul(x, parts.p), parts.power[0]), parts.power[1]);
  const auto numerator = hn::IfThenElse(hn::Lt(v, hn::Zero(d)), scaled, x);
  return hn::Div(numerator, hn::Add(one, e));
}

HWY_INLINE VF32 Sigmoid(DF32 d, VF32 x) {
  return TimesSigmoid(d, hn::Set(d, 1.0f), x);
}

HWY_INLINE VF32 GaussianLinearUnit(DF32 d, VF32 x) {
  namespace e = elementary;
  const auto sign = hn::SignBit(d);
  const auto limit = hn::Set(d, e::kTailLimit);
  const auto four = hn::Set(d, 4.0f);
  auto a = hn::AndNot(sign, x);
  a = hn::IfThenElse(hn::Gt(a, limit), limit, a);
  const auto t = hn::Div(hn::Sub(a, four), hn::Add(a, four));
  auto m = hn::Set(d, e::kTail[10]);
  for (int i = 9; i >= 0; --i) m = FusedMulAdd(m, t, hn::Set(d, e::kTail[i]));
  const auto h = hn::Mul(hn::Set(d, 0.5f), a);
  const auto s = hn::Mul(a, h);
  const auto s_low = FusedMulAdd(a, h, hn::Xor(s, sign));
  const auto scale = hn::Mul(a, m);
  const auto tail = ScaledExp(d, hn::Xor(s, sign),
                              FusedMulAdd(hn::Xor(s_low, sign), scale, scale));
  return hn::IfThenElse(hn::Lt(x, hn::Zero(d)), hn::Xor(tail, sign),
                        hn::Sub(x, tail));
}

}  // namespace HWY_NAMESPACE
}  // namespace lamina
HWY_AFTER_NAMESPACE();

#endif  // include guard
