// Vector loads and stores of the 8-bit types: specialisations of SimdConverter
// (core/simd-inl.h). Equal to ToFloat and FromFloat of quant/fp8.h for every
// input.

#if defined(LAMINA_QUANT_FP8_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LAMINA_QUANT_FP8_INL_H_
#undef LAMINA_QUANT_FP8_INL_H_
#else
#define LAMINA_QUANT_FP8_INL_H_
#endif

#include <cstdint>

#include "lamina/core/simd-inl.h"
#include "lamina/quant/fp8.h"

HWY_BEFORE_NAMESPACE();
namespace lamina {
namespace HWY_NAMESPACE {

#if HWY_TARGET == HWY_SCALAR
// core/simd-inl.h's generic LoadF32 and StoreF32 already use the constexpr
// conversions.
#else

// Codes in the low bytes of 32-bit lanes to fp32.
template <class T>
HWY_INLINE VF32 DecodeFp8(DF32 d, hn::Vec<hn::RebindToUnsigned<DF32>> codes) {
  constexpr Fp8Format kFormat = Fp8FormatOf<T>::value;
  const hn::RebindToUnsigned<DF32> d32;
  const auto magnitude = hn::And(codes, hn::Set(d32, 0x7fu));
  const auto sign = hn::ShiftLeft<24>(hn::And(codes, hn::Set(d32, 0x80u)));
  // Exponent and mantissa fields moved to where fp32 has them give the value
  // times 2^(bias - 127), subnormals included; the product restores it.
  const auto scaled =
      hn::BitCast(d, hn::ShiftLeft<23 - kFormat.mantissa_bits>(magnitude));
  const auto value = hn::Mul(
      scaled, hn::Set(d, quant_internal::PowerOfTwo(127 - kFormat.bias)));
  auto bits = hn::Or(hn::BitCast(d32, value), sign);
  const auto nan = hn::Set(d32, 0x7fc00000u);
  if constexpr (kFormat.fnuz) {
    bits = hn::IfThenElse(hn::Eq(codes, hn::Set(d32, 0x80u)), nan, bits);
  } else if constexpr (kFormat.max_code == 0x7b) {
    bits = hn::IfThenElse(hn::Eq(magnitude, hn::Set(d32, 0x7cu)),
                          hn::Or(sign, hn::Set(d32, 0x7f800000u)), bits);
    bits = hn::IfThenElse(hn::Gt(magnitude, hn::Set(d32, 0x7cu)),
                          hn::Or(sign, nan), bits);
  } else {
    bits = hn::IfThenElse(hn::Eq(magnitude, hn::Set(d32, 0x7fu)),
                          hn::Or(sign, nan), bits);
  }
  return hn::BitCast(d, bits);
}

template <class T>
HWY_INLINE hn::Vec<hn::RebindToUnsigned<DF32>> EncodeFp8(DF32 d, VF32 v) {
  constexpr Fp8Format kFormat = Fp8FormatOf<T>::value;
  constexpr int kShift = 23 - kFormat.mantissa_bits;
  constexpr int kSmallestNormal = 1 - kFormat.bias;
  const hn::RebindToUnsigned<DF32> d32;
  const auto u = hn::BitCast(d32, v);
  const auto sign = hn::And(hn::ShiftRight<24>(u), hn::Set(d32, 0x80u));
  const auto magnitude = hn::And(u, hn::Set(d32, 0x7fffffffu));

  const auto anchor =
      hn::Set(d, quant_internal::PowerOfTwo(kSmallestNormal + kShift));
  const auto subnormal =
      hn::Sub(hn::BitCast(d32, hn::Add(hn::BitCast(d, magnitude), anchor)),
              hn::BitCast(d32, anchor));

  const auto odd = hn::And(hn::ShiftRight<kShift>(magnitude), hn::Set(d32, 1u));
  const auto rounded =
      hn::Add(hn::Add(magnitude, hn::Set(d32, (1u << (kShift - 1)) - 1u)), odd);
  const auto normal = hn::Min(
      hn::ShiftRight<kShift>(hn::Sub(
          rounded,
          hn::Set(d32, static_cast<uint32_t>(127 - kFormat.bias) << 23))),
      hn::Set(d32, static_cast<uint32_t>(kFormat.max_code)));

  const auto is_subnormal =
      hn::Lt(magnitude,
             hn::Set(d32, static_cast<uint32_t>(kSmallestNormal + 127) << 23));
  const auto code = hn::IfThenElse(is_subnormal, subnormal, normal);
  const auto is_nan = hn::Gt(magnitude, hn::Set(d32, 0x7f800000u));
  const auto nan = hn::Set(d32, static_cast<uint32_t>(kFormat.nan_code));
  if constexpr (kFormat.fnuz) {
    const auto nonzero = hn::Ne(code, hn::Zero(d32));
    const auto with_sign = hn::IfThenElse(nonzero, hn::Or(code, sign), code);
    return hn::IfThenElse(is_nan, nan, with_sign);
  } else {
    return hn::Or(hn::IfThenElse(is_nan, nan, code), sign);
  }
}

template <class T>
struct Fp8SimdConverter {
  static HWY_INLINE VF32 Load(DF32 d, const T* p) {
    const hn::Rebind<uint8_t, DF32> d8;
    const hn::RebindToUnsigned<DF32> d32;
    return DecodeFp8<T>(
        d,
        hn::PromoteTo(d32, hn::LoadU(d8, reinterpret_cast<const uint8_t*>(p))));
  }
  static HWY_INLINE void Store(VF32 v, DF32 d, T* p) {
    const hn::Rebind<uint8_t, DF32> d8;
    hn::StoreU(hn::TruncateTo(d8, EncodeFp8<T>(d, v)), d8,
               reinterpret_cast<uint8_t*>(p));
  }
};
template <>
struct SimdConverter<F8E4M3Fn> : Fp8SimdConverter<F8E4M3Fn> {};
template <>
struct SimdConverter<F8E5M2> : Fp8SimdConverter<F8E5M2> {};
template <>
struct SimdConverter<F8E4M3Fnuz> : Fp8SimdConverter<F8E4M3Fnuz> {};
template <>
struct SimdConverter<F8E5M2Fnuz> : Fp8SimdConverter<F8E5M2Fnuz> {};

template <>
struct SimdConverter<int8_t> {
  static HWY_INLINE VF32 Load(DF32 d, const int8_t* p) {
    const hn::Rebind<int8_t, DF32> d8;
    const hn::RebindToSigned<DF32> d32;
    return hn::ConvertTo(d, hn::PromoteTo(d32, hn::LoadU(d8, p)));
  }
  static HWY_INLINE void Store(VF32 v, DF32 d, int8_t* p) {
    const hn::Rebind<int8_t, DF32> d8;
    const auto finite = hn::IfThenElseZero(hn::Eq(v, v), v);
    const auto clamped =
        hn::Min(hn::Max(finite, hn::Set(d, -128.0f)), hn::Set(d, 127.0f));
    hn::StoreU(hn::DemoteTo(d8, hn::NearestInt(clamped)), d8, p);
  }
};

#endif  // HWY_TARGET == HWY_SCALAR

}  // namespace HWY_NAMESPACE
}  // namespace lamina
HWY_AFTER_NAMESPACE();

#endif  // include guard
