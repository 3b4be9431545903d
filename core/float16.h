#pragma once

// Conversions between float and the storage types, as overloads and one
// template that quant/fp8.h extends:
//
//   float x = ToFloat(BF16{bits});
//   BF16 y = FromFloat<BF16>(x);
//
// FromFloat rounds to nearest, ties to even. NaN stays NaN (quiet, sign and
// upper payload kept). BF16 and F16 overflow to infinity as IEEE 754 says.

#include <bit>
#include <cstdint>

#include "lamina/core/device/host_device.h"
#include "lamina/core/dtype.h"

namespace lamina {

// Specialised for each storage type: static float To(T), static T From(float).
template <class T>
struct FloatConverter;

template <class T>
LAMINA_HD constexpr float ToFloat(T x) {
  return FloatConverter<T>::To(x);
}

template <class T>
LAMINA_HD constexpr T FromFloat(float x) {
  return FloatConverter<T>::From(x);
}

template <>
struct FloatConverter<float> {
  LAMINA_HD static constexpr float To(float x) { return x; }
  LAMINA_HD static constexpr float From(float x) { return x; }
};

template <>
struct FloatConverter<BF16> {
  LAMINA_HD static constexpr float To(BF16 x) {
    return std::bit_cast<float>(static_cast<uint32_t>(x.bits) << 16);
  }
  LAMINA_HD static constexpr BF16 From(float x) {
    const uint32_t u = std::bit_cast<uint32_t>(x);
    if ((u & 0x7fffffffu) > 0x7f800000u) {
      return {static_cast<uint16_t>((u >> 16) | 0x0040u)};
    }
    return {static_cast<uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16)};
  }
};

template <>
struct FloatConverter<F16> {
  LAMINA_HD static constexpr float To(F16 x) {
    const uint32_t sign = static_cast<uint32_t>(x.bits & 0x8000u) << 16;
    const uint32_t exponent = (x.bits >> 10) & 0x1fu;
    const uint32_t mantissa = x.bits & 0x3ffu;
    if (exponent == 0) {  // zero or subnormal: mantissa * 2^-24
      const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
      return std::bit_cast<float>(std::bit_cast<uint32_t>(magnitude) | sign);
    }
    if (exponent == 31) {  // a NaN comes out quiet
      const uint32_t quiet = mantissa != 0 ? 0x400000u : 0u;
      return std::bit_cast<float>(sign | 0x7f800000u | quiet |
                                  (mantissa << 13));
    }
    return std::bit_cast<float>(sign | ((exponent + 112u) << 23) |
                                (mantissa << 13));
  }
  LAMINA_HD static constexpr F16 From(float x) {
    const uint32_t u = std::bit_cast<uint32_t>(x);
    const uint32_t sign = (u >> 16) & 0x8000u;
    const uint32_t magnitude = u & 0x7fffffffu;
    if (magnitude > 0x7f800000u) {
      return {
          static_cast<uint16_t>(sign | 0x7e00u | ((magnitude >> 13) & 0x3ffu))};
    }
    if (magnitude >= 0x477ff000u) {  // 65520 and above round to infinity
      return {static_cast<uint16_t>(sign | 0x7c00u)};
    }
    if (magnitude < 0x38800000u) {  // below 2^-14: let fp32 addition round
      const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
      return {static_cast<uint16_t>(
          sign | (std::bit_cast<uint32_t>(shifted) - 0x3f000000u))};
    }
    const uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
    return {static_cast<uint16_t>(sign | ((rounded - 0x38000000u) >> 13))};
  }
};

}  // namespace lamina
