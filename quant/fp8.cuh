#pragma once

// Octets of 8-bit codes on a GPU, equal to the conversions of quant/fp8.h (NaN:
// any NaN code). The code type is chosen at run time: the branch is uniform,
// and kernels are compiled once for all types.

#include <bit>
#include <cstdint>
#include <type_traits>

#include "lamina/core/dtype.h"
#include "lamina/core/octet.cuh"
#include "lamina/quant/fp8.h"

namespace lamina::gpu {

namespace fp8_internal {

// FromFloat<T>(x).bits without branches.
template <class T>
__device__ inline uint32_t EncodeFp8(float x) {
  constexpr Fp8Format kFormat = Fp8FormatOf<T>::value;
  constexpr float kMax = quant_internal::DecodeFp8(kFormat.max_code, kFormat);
  constexpr uint32_t kShift = 23 - kFormat.mantissa_bits;
  constexpr int kMinExponent = 1 - kFormat.bias;  // of a normal number
  constexpr float kMinNormal = quant_internal::PowerOfTwo(kMinExponent);
  constexpr float kAnchor =
      quant_internal::PowerOfTwo(kMinExponent + static_cast<int>(kShift));

  const uint32_t bits = std::bit_cast<uint32_t>(x);
  const uint32_t magnitude = bits & 0x7fffffffu;
  const float a = std::bit_cast<float>(magnitude);
  const float bounded = a < kMax ? a : kMax;
  const uint32_t u = std::bit_cast<uint32_t>(bounded);
  const uint32_t normal =
      (u + ((1u << (kShift - 1)) - 1u) + ((u >> kShift) & 1u) -
       (static_cast<uint32_t>(127 - kFormat.bias) << 23)) >>
      kShift;
  // An addition in fp32 rounds at the place of a subnormal.
  const uint32_t subnormal = std::bit_cast<uint32_t>(bounded + kAnchor) -
                             std::bit_cast<uint32_t>(kAnchor);
  const uint32_t code = bounded < kMinNormal ? subnormal : normal;
  const uint32_t sign = kFormat.fnuz && code == 0 ? 0u : (bits >> 24) & 0x80u;
  return magnitude > 0x7f800000u ? kFormat.nan_code : code | sign;
}

__device__ inline uint32_t EncodeInt8(float x) {
  const float low = x > -128.0f ? x : -128.0f;
  const float bounded = low < 127.0f ? low : 127.0f;
  // 1.5 * 2^23: the addition rounds to an integer in the low bits.
  const uint32_t bits = std::bit_cast<uint32_t>(bounded + 0x1.8p23f);
  return x == x ? bits & 0xffu : 0u;
}

template <class T>
__device__ inline uint32_t Encode(float x) {
  if constexpr (std::is_same_v<T, int8_t>) {
    return EncodeInt8(x);
  } else {
    return EncodeFp8<T>(x);
  }
}

// NOTE: e5m2 in software: the hardware's NaN is 0x7f, the rule's 0x7e.
template <class T>
__device__ inline Bits64 EncodeOctet(const Octet& octet) {
  const float(&v)[kOctet] = octet.v;
  if constexpr (std::is_same_v<T, NativeF8>) {
    return {{PackNativeF8(v[0], v[1], v[2], v[3]),
             PackNativeF8(v[4], v[5], v[6], v[7])}};
  } else {
    Bits64 codes = {{0, 0}};
#pragma unroll
    for (int i = 0; i < kOctet; ++i) {
      codes.word[i / 4] |= Encode<T>(v[i]) << (8 * (i % 4));
    }
    return codes;
  }
}

template <class T>
__device__ inline float Decode(uint32_t code) {
  if constexpr (std::is_same_v<T, int8_t>) {
    return static_cast<float>(static_cast<int8_t>(code));
  } else {
    constexpr Fp8Format kFormat = Fp8FormatOf<T>::value;
    constexpr float kScale = quant_internal::PowerOfTwo(127 - kFormat.bias);
    constexpr uint32_t kNan = 0x7fc00000u;
    const uint32_t magnitude = code & 0x7fu;
    const uint32_t sign = (code & 0x80u) << 24;
    // The fields of the code as those of an fp32 number, subnormal if the code
    // is; the product is exact.
    uint32_t bits = std::bit_cast<uint32_t>(
        std::bit_cast<float>(magnitude << (23 - kFormat.mantissa_bits)) *
        kScale);
    if constexpr (kFormat.fnuz) {
      return std::bit_cast<float>(code == 0x80u ? kNan : bits | sign);
    } else {
      if constexpr (std::is_same_v<T, F8E5M2>) {
        if (magnitude == 0x7cu) bits = 0x7f800000u;
      }
      constexpr uint32_t kLargest = std::is_same_v<T, F8E5M2> ? 0x7cu : 0x7eu;
      if (magnitude > kLargest) bits = kNan;
      return std::bit_cast<float>(bits | sign);
    }
  }
}

template <class T>
__device__ inline Octet DecodeOctet(const Bits64& codes) {
  Octet octet;
#pragma unroll
  for (int i = 0; i < kOctet; ++i) {
    octet.v[i] = Decode<T>((codes.word[i / 4] >> (8 * (i % 4))) & 0xffu);
  }
  return octet;
}

}  // namespace fp8_internal

namespace fp8_internal {
// NOTE: one copy for all kernels of a file: inlined, it would be most of their
// code.
[[gnu::noinline]] __device__ inline Bits64 EncodeInSoftware(DType type,
                                                            Octet octet) {
  switch (type) {
    case DType::kF8E4M3Fn:
      return EncodeOctet<F8E4M3Fn>(octet);
    case DType::kF8E5M2:
      return EncodeOctet<F8E5M2>(octet);
    case DType::kF8E4M3Fnuz:
      return EncodeOctet<F8E4M3Fnuz>(octet);
    case DType::kF8E5M2Fnuz:
      return EncodeOctet<F8E5M2Fnuz>(octet);
    default:
      return EncodeOctet<int8_t>(octet);
  }
}
}  // namespace fp8_internal

// The type DeviceInfo::fp8 of the architecture that is compiled for.
using DeviceF8 =
    std::conditional_t<std::is_void_v<NativeF8>, F8E4M3Fn, NativeF8>;

// Four codes of DeviceF8, the first one lowest.
__device__ inline uint32_t EncodeDeviceF8(float a, float b, float c, float d) {
  if constexpr (!std::is_void_v<NativeF8>) {
    return PackNativeF8(a, b, c, d);
  } else {
    using fp8_internal::EncodeFp8;
    return EncodeFp8<DeviceF8>(a) | EncodeFp8<DeviceF8>(b) << 8 |
           EncodeFp8<DeviceF8>(c) << 16 | EncodeFp8<DeviceF8>(d) << 24;
  }
}

// Eight codes of `type` (an FP8 type or kI8), the first one lowest.
template <class Native = NativeF8>
__device__ inline Bits64 EncodeOctet(DType type, const Octet& octet) {
  if constexpr (!std::is_void_v<Native>) {
    if (type == DTypeOf<Native>::value) {
      return fp8_internal::EncodeOctet<Native>(octet);
    }
  }
  return fp8_internal::EncodeInSoftware(type, octet);
}

// The values of eight codes of `type`.
__device__ inline Octet DecodeOctet(DType type, const Bits64& codes) {
  switch (type) {
    case DType::kF8E4M3Fn:
      return fp8_internal::DecodeOctet<F8E4M3Fn>(codes);
    case DType::kF8E5M2:
      return fp8_internal::DecodeOctet<F8E5M2>(codes);
    case DType::kF8E4M3Fnuz:
      return fp8_internal::DecodeOctet<F8E4M3Fnuz>(codes);
    case DType::kF8E5M2Fnuz:
      return fp8_internal::DecodeOctet<F8E5M2Fnuz>(codes);
    default:
      return fp8_internal::DecodeOctet<int8_t>(codes);
  }
}

// The first `count` codes, to any alignment; from any alignment, the others 0.
[[gnu::noinline]] __device__ inline void StoreCodesUpTo(Bits64 codes,
                                                        uint8_t* p, int count) {
#pragma unroll
  for (int i = 0; i < kOctet; ++i) {
    if (i < count) {
      Store8(static_cast<uint8_t>(codes.word[i / 4] >> (8 * (i % 4))), p + i);
    }
  }
}
__device__ inline Bits64 LoadCodesUpTo(const uint8_t* p, int count) {
  Bits64 codes = {{0, 0}};
#pragma unroll
  for (int i = 0; i < kOctet; ++i) {
    if (i < count) {
      codes.word[i / 4] |= static_cast<uint32_t>(p[i]) << (8 * (i % 4));
    }
  }
  return codes;
}

}  // namespace lamina::gpu
