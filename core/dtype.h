#pragma once

// Element types: the run-time name (DType), the storage type of each
// (float, F16, BF16, F8…), and sizes. Holds no conversions: those of the
// 16-bit types are in core/float16.h, those of the 8-bit types in quant/fp8.h.

#include <cstdint>

#include "lamina/core/device/host_device.h"

namespace lamina {

enum class DType : uint8_t {
  kF32,
  kF16,
  kBF16,
  kF8E4M3Fn,    // OCP: bias 7, max 448, no Inf, NaN = S.1111.111
  kF8E5M2,      // OCP: bias 15, max 57344, Inf, NaN
  kF8E4M3Fnuz,  // bias 8, max 240, no Inf, no -0, NaN = 0x80
  kF8E5M2Fnuz,  // bias 16, max 57344, no Inf, no -0, NaN = 0x80
  kF8E8M0,      // a power of two, 2^(code - 127), NaN = 0xFF: scales only
  kI8,
  kI32,
  kI64,
  kF4E2M1,  // two to a byte, low nibble first
};
inline constexpr int kNumDTypes = 12;

// Storage types: bits and nothing else.
struct F16 {
  uint16_t bits = 0;
  friend constexpr bool operator==(F16, F16) = default;
};
struct BF16 {
  uint16_t bits = 0;
  friend constexpr bool operator==(BF16, BF16) = default;
};
struct F8E4M3Fn {
  uint8_t bits = 0;
  friend constexpr bool operator==(F8E4M3Fn, F8E4M3Fn) = default;
};
struct F8E5M2 {
  uint8_t bits = 0;
  friend constexpr bool operator==(F8E5M2, F8E5M2) = default;
};
struct F8E4M3Fnuz {
  uint8_t bits = 0;
  friend constexpr bool operator==(F8E4M3Fnuz, F8E4M3Fnuz) = default;
};
struct F8E5M2Fnuz {
  uint8_t bits = 0;
  friend constexpr bool operator==(F8E5M2Fnuz, F8E5M2Fnuz) = default;
};
struct F8E8M0 {
  uint8_t bits = 0;
  friend constexpr bool operator==(F8E8M0, F8E8M0) = default;
};

LAMINA_HD constexpr int BitsOf(DType type) {
  switch (type) {
    case DType::kF32:
    case DType::kI32:
      return 32;
    case DType::kF16:
    case DType::kBF16:
      return 16;
    case DType::kI64:
      return 64;
    case DType::kF4E2M1:
      return 4;
    default:
      return 8;
  }
}

// Bytes that `count` consecutive elements take, the last byte filled up.
LAMINA_HD constexpr int64_t BytesFor(DType type, int64_t count) {
  const int bits = BitsOf(type);
  return bits >= 8 ? count * (bits / 8) : (count * bits + 7) / 8;
}

// True for the four FP8 element types (not for the scale type F8E8M0).
LAMINA_HD constexpr bool IsFp8(DType type) {
  return type >= DType::kF8E4M3Fn && type <= DType::kF8E5M2Fnuz;
}

// Short lower-case name: "bf16", "f8e4m3fn", …
constexpr const char* Name(DType type) {
  switch (type) {
    case DType::kF32:
      return "f32";
    case DType::kF16:
      return "f16";
    case DType::kBF16:
      return "bf16";
    case DType::kF8E4M3Fn:
      return "f8e4m3fn";
    case DType::kF8E5M2:
      return "f8e5m2";
    case DType::kF8E4M3Fnuz:
      return "f8e4m3fnuz";
    case DType::kF8E5M2Fnuz:
      return "f8e5m2fnuz";
    case DType::kF8E8M0:
      return "f8e8m0";
    case DType::kI8:
      return "i8";
    case DType::kI32:
      return "i32";
    case DType::kI64:
      return "i64";
    case DType::kF4E2M1:
      return "f4e2m1";
  }
  return "invalid";
}

// DTypeOf<T>::value is the DType of a storage type.
template <class T>
struct DTypeOf;
template <>
struct DTypeOf<float> {
  static constexpr DType value = DType::kF32;
};
template <>
struct DTypeOf<F16> {
  static constexpr DType value = DType::kF16;
};
template <>
struct DTypeOf<BF16> {
  static constexpr DType value = DType::kBF16;
};
template <>
struct DTypeOf<F8E4M3Fn> {
  static constexpr DType value = DType::kF8E4M3Fn;
};
template <>
struct DTypeOf<F8E5M2> {
  static constexpr DType value = DType::kF8E5M2;
};
template <>
struct DTypeOf<F8E4M3Fnuz> {
  static constexpr DType value = DType::kF8E4M3Fnuz;
};
template <>
struct DTypeOf<F8E5M2Fnuz> {
  static constexpr DType value = DType::kF8E5M2Fnuz;
};
template <>
struct DTypeOf<F8E8M0> {
  static constexpr DType value = DType::kF8E8M0;
};
template <>
struct DTypeOf<int8_t> {
  static constexpr DType value = DType::kI8;
};
template <>
struct DTypeOf<int32_t> {
  static constexpr DType value = DType::kI32;
};
template <>
struct DTypeOf<int64_t> {
  static constexpr DType value = DType::kI64;
};

}  // namespace lamina
