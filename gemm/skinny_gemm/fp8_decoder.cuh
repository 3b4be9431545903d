#pragma once

// The values of FP8 codes, equal to quant/fp8.h (NaN: any NaN): those of
// NativeF8 by the hardware, those of the other types by one sequence of
// instructions for all of them, five or six a value.
//
//   value = (float whose bits are the magnitude << shift) * scale, with sign
//
// An octet with a NaN or an infinity in it is rare and mended afterwards.

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "lamina/core/device/intrinsics.cuh"
#include "lamina/core/dtype.h"
#include "lamina/core/octet.cuh"
#include "lamina/quant/fp8.cuh"

namespace lamina::gemm_internal {

class Fp8Decoder {
 public:
  __device__ explicit Fp8Decoder(DType type) {
    switch (type) {
      case DType::kF8E4M3Fn:
        Set<F8E4M3Fn>();
        break;
      case DType::kF8E5M2:
        Set<F8E5M2>();
        break;
      case DType::kF8E4M3Fnuz:
        Set<F8E4M3Fnuz>();
        break;
      default:
        Set<F8E5M2Fnuz>();
        break;
    }
  }

  __device__ gpu::Octet operator()(const gpu::Bits64& codes) const {
    gpu::Octet octet;
    if constexpr (!std::is_void_v<gpu::NativeF8>) {
      if (native_) {
        float low[4], high[4];
        gpu::UnpackNativeF8(codes.word[0], low);
        gpu::UnpackNativeF8(codes.word[1], high);
#pragma unroll
        for (int i = 0; i < gpu::kOctet; ++i) {
          octet.v[i] = i < 4 ? low[i % 4] : high[i % 4];
        }
        return octet;
      }
    }
#pragma unroll
    for (int i = 0; i < gpu::kOctet; ++i) {
      const uint32_t word = codes.word[i / 4];
      const uint32_t magnitude = (word >> (8 * (i % 4))) & 0x7fu;
      const uint32_t sign = (word << (24 - 8 * (i % 4))) & 0x80000000u;
      octet.v[i] = std::bit_cast<float>(
          std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude << shift_) *
                                  scale_) |
          sign);
    }
    if (((Special(codes.word[0]) | Special(codes.word[1])) & kSigns) != 0) {
      octet = gpu::Map(octet, [&](float v) { return Mended(v); });
    }
    return octet;
  }

 private:
  static constexpr uint32_t kSigns = 0x80808080u;

  template <class T>
  __device__ void Set() {
    constexpr Fp8Format kFormat = Fp8FormatOf<T>::value;
    native_ = std::is_same_v<T, gpu::NativeF8>;
    shift_ = 23 - kFormat.mantissa_bits;
    scale_ = quant_internal::PowerOfTwo(127 - kFormat.bias);
    fnuz_ = kFormat.fnuz;
    special_ = std::is_same_v<T, F8E5M2> ? 65536.0f : 480.0f;
    infinity_ = std::is_same_v<T, F8E5M2> ? 65536.0f : 0.0f;
    // What lifts a special magnitude to 0x80 and above; fnuz: any but 0.
    step_ = (kFormat.fnuz ? 0x7fu : 0x7fu - kFormat.max_code) * 0x01010101u;
  }

  // The sign bit of each byte that is a NaN or an infinity.
  __device__ uint32_t Special(uint32_t word) const {
    const uint32_t lifted = (word & ~kSigns) + step_;
    return fnuz_ ? word & ~lifted : lifted;
  }

  // The value of a code that was decoded as if all were finite.
  __device__ float Mended(float v) const {
    constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    if (fnuz_) return std::bit_cast<uint32_t>(v) == 0x80000000u ? kNan : v;
    const float magnitude = std::fabs(v);
    if (magnitude < special_) return v;
    return magnitude == infinity_ ? std::copysign(kInfinity, v) : kNan;
  }

  bool native_;
  int shift_;
  float scale_;
  bool fnuz_;
  uint32_t step_;
  float special_;   // what the first code that is not finite is decoded to
  float infinity_;  // likewise infinity; 0: there is none
};

}  // namespace lamina::gemm_internal
