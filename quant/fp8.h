#pragma once

// Conversions of the 8-bit floating-point types, bit-exact and constexpr: the
// reference that vector and hardware conversions are tested against.
//
//   finite values and infinities saturate to ±max; NaN stays NaN
//   (e4m3fn 0x7F, e5m2 0x7E, both with the sign; fnuz types 0x80);
//   rounding is to nearest, ties to even.
//
// Formats: OCP 8-bit Floating Point Specification (OFP8), Micikevicius et al.,
// "FP8 Formats for Deep Learning" (2022); fnuz: Noune et al., "8-bit Numerical
// Formats for Deep Neural Networks" (2022).

#include <bit>
#include <cstdint>
#include <type_traits>

#include "lamina/core/device/host_device.h"
#include "lamina/core/dtype.h"
#include "lamina/core/float16.h"

namespace lamina {

// What tells the formats apart. A value is
//   mantissa * 2^(1 - bias - mantissa_bits)                  exponent field 0
//   (2^mantissa_bits + mantissa) * 2^(field - bias - mantissa_bits)  otherwise
struct Fp8Format {
  int mantissa_bits;
  int bias;
  uint8_t max_code;  // largest finite magnitude
  uint8_t nan_code;  // canonical NaN, without the sign for OCP types
  bool fnuz;         // NaN is 0x80, there is no -0
};

template <class T>
struct Fp8FormatOf;
template <>
struct Fp8FormatOf<F8E4M3Fn> {
  static constexpr Fp8Format value{3, 7, 0x7e, 0x7f, false};
};
template <>
struct Fp8FormatOf<F8E5M2> {
  static constexpr Fp8Format value{2, 15, 0x7b, 0x7e, false};
};
template <>
struct Fp8FormatOf<F8E4M3Fnuz> {
  static constexpr Fp8Format value{3, 8, 0x7f, 0x80, true};
};
template <>
struct Fp8FormatOf<F8E5M2Fnuz> {
  static constexpr Fp8Format value{2, 16, 0x7f, 0x80, true};
};

namespace quant_internal {

// 2^exponent for exponents of normal fp32 numbers.
LAMINA_HD constexpr float PowerOfTwo(int exponent) {
  return std::bit_cast<float>(static_cast<uint32_t>(exponent + 127) << 23);
}

LAMINA_HD constexpr float DecodeFp8(uint8_t code, Fp8Format format) {
  const uint32_t magnitude = code & 0x7fu;
  const bool negative = (code & 0x80u) != 0;
  const float nan = std::bit_cast<float>(negative ? 0xffc00000u : 0x7fc00000u);
  if (format.fnuz) {
    if (code == 0x80u) return std::bit_cast<float>(0x7fc00000u);
  } else if (format.max_code == 0x7bu) {  // e5m2 has infinities
    if (magnitude == 0x7cu) {
      return std::bit_cast<float>(negative ? 0xff800000u : 0x7f800000u);
    }
    if (magnitude > 0x7cu) return nan;
  } else if (magnitude == 0x7fu) {
    return nan;
  }
  const uint32_t field = magnitude >> format.mantissa_bits;
  const uint32_t mantissa = magnitude & ((1u << format.mantissa_bits) - 1u);
  const float value =
      field == 0 ? static_cast<float>(mantissa) *
                       PowerOfTwo(1 - format.bias - format.mantissa_bits)
                 : static_cast<float>((1u << format.mantissa_bits) + mantissa) *
                       PowerOfTwo(static_cast<int>(field) - format.bias -
                                  format.mantissa_bits);
  return negative ? -value : value;
}

LAMINA_HD constexpr uint8_t EncodeFp8(float x, Fp8Format format) {
  const uint32_t u = std::bit_cast<uint32_t>(x);
  const uint32_t sign = (u >> 24) & 0x80u;
  const uint32_t magnitude = u & 0x7fffffffu;
  if (magnitude > 0x7f800000u) {
    return static_cast<uint8_t>(format.nan_code | (format.fnuz ? 0u : sign));
  }
  const uint32_t shift = static_cast<uint32_t>(23 - format.mantissa_bits);
  const int smallest_normal = 1 - format.bias;
  uint32_t code = 0;
  if (magnitude < (static_cast<uint32_t>(smallest_normal + 127) << 23)) {
    // Subnormal: an addition in fp32 rounds at the right place.
    const float anchor = PowerOfTwo(smallest_normal + static_cast<int>(shift));
    const float rounded = std::bit_cast<float>(magnitude) + anchor;
    code = std::bit_cast<uint32_t>(rounded) - std::bit_cast<uint32_t>(anchor);
  } else {
    const uint32_t odd = (magnitude >> shift) & 1u;
    const uint32_t rounded = magnitude + ((1u << (shift - 1)) - 1u) + odd;
    code =
        (rounded - (static_cast<uint32_t>(127 - format.bias) << 23)) >> shift;
    if (code > format.max_code) code = format.max_code;
  }
  if (format.fnuz && code == 0) return 0;  // there is no -0
  return static_cast<uint8_t>(code | sign);
}

template <class T>
struct Fp8Converter {
  LAMINA_HD static constexpr float To(T x) {
    return DecodeFp8(x.bits, Fp8FormatOf<T>::value);
  }
  LAMINA_HD static constexpr T From(float x) {
    return T{EncodeFp8(x, Fp8FormatOf<T>::value)};
  }
};

}  // namespace quant_internal

template <>
struct FloatConverter<F8E4M3Fn> : quant_internal::Fp8Converter<F8E4M3Fn> {};
template <>
struct FloatConverter<F8E5M2> : quant_internal::Fp8Converter<F8E5M2> {};
template <>
struct FloatConverter<F8E4M3Fnuz> : quant_internal::Fp8Converter<F8E4M3Fnuz> {};
template <>
struct FloatConverter<F8E5M2Fnuz> : quant_internal::Fp8Converter<F8E5M2Fnuz> {};

// Int8: nearest, ties to even, saturating to [-128, 127]; NaN becomes 0.
template <>
struct FloatConverter<int8_t> {
  LAMINA_HD static constexpr float To(int8_t x) {
    return static_cast<float>(x);
  }
  LAMINA_HD static constexpr int8_t From(float x) {
    if (x != x) return 0;
    if (x >= 127.0f) return 127;
    if (x <= -128.0f) return -128;
    // 1.5 * 2^23: the addition rounds to an integer.
    const float rounded = (x + 0x1.8p23f) - 0x1.8p23f;
    return static_cast<int8_t>(rounded);
  }
};

// A power of two. From rounds *up*, so that amax / scale never exceeds qmax:
// the smallest 2^e >= x, clamped to [2^-127, 2^127] (±0 gives 2^-127, Inf
// 2^127); NaN and x < 0 give NaN (0xFF).
template <>
struct FloatConverter<F8E8M0> {
  LAMINA_HD static constexpr float To(F8E8M0 x) {
    if (x.bits == 0xffu) return std::bit_cast<float>(0x7fc00000u);
    if (x.bits == 0) return 0x1p-127f;
    return std::bit_cast<float>(static_cast<uint32_t>(x.bits) << 23);
  }
  LAMINA_HD static constexpr F8E8M0 From(float x) {
    if (!(x >= 0.0f)) return {0xffu};
    const uint32_t u = std::bit_cast<uint32_t>(x) & 0x7fffffffu;
    if (u <= 0x400000u) return {0};  // 2^-127 and below
    uint32_t exponent = u >> 23;
    if ((u & 0x7fffffu) != 0) ++exponent;
    return {static_cast<uint8_t>(exponent > 254u ? 254u : exponent)};
  }
};

// Largest finite value of a quantised type: 448, 57344, 240, 57344, 127.
template <class T>
constexpr float MaxFinite() {
  if constexpr (std::is_same_v<T, int8_t>) {
    return 127.0f;
  } else {
    return ToFloat(T{Fp8FormatOf<T>::value.max_code});
  }
}
constexpr float MaxFinite(DType type) {
  switch (type) {
    case DType::kF8E4M3Fn:
      return 448.0f;
    case DType::kF8E4M3Fnuz:
      return 240.0f;
    case DType::kF8E5M2:
    case DType::kF8E5M2Fnuz:
      return 57344.0f;
    case DType::kI8:
      return 127.0f;
    default:
      return 0.0f;
  }
}

}  // namespace lamina
