#pragma once

// An Octet is eight adjacent columns of a row as fp32: what one lane owns. 32
// adjacent lanes own a chunk of 256 columns, so that the tree over an octet
// and then over 32 lanes is the tree of the canonical sum
// (core/canonical_sum.h), whatever the wave size.

#include <cstdint>
#include <type_traits>

#include "lamina/core/canonical_sum.h"
#include "lamina/core/device/intrinsics.cuh"
#include "lamina/core/dtype.h"
#include "lamina/core/float16.h"

namespace lamina::gpu {

inline constexpr int kOctet = 8;
inline constexpr int kChunkLanes = static_cast<int>(kCanonicalChunk) / kOctet;

struct Octet {
  float v[kOctet];
};

// True when octets of T can be moved whole from every row: a pointer and a row
// pitch (both in bytes) that the vector loads can take.
template <class T>
constexpr int kOctetAlignment = sizeof(T) == 1 ? 8 : 16;

// An octet of T as it stands in memory; T is float, F16 or BF16.
template <class T>
struct OctetBits {
  Bits128 part[sizeof(T) / 2];
};

enum class Access {
  kPlain,
  kConstant,   // not written while the kernel runs
  kStreaming,  // read or written once
};

template <Access kAccess>
__device__ inline Bits128 LoadBits128(const void* p) {
  if constexpr (kAccess == Access::kConstant) return Load128Constant(p);
  if constexpr (kAccess == Access::kStreaming) return Load128Streaming(p);
  return Load128(p);
}
template <Access kAccess>
__device__ inline void StoreBits128(const Bits128& bits, void* p) {
  if constexpr (kAccess == Access::kStreaming) {
    Store128Streaming(bits, p);
  } else {
    Store128(bits, p);
  }
}

// Its values, and back with one rounding.
template <class T>
__device__ inline Octet Unpack(const OctetBits<T>& bits) {
  Octet octet;
#pragma unroll
  for (int i = 0; i < kOctet / 2; ++i) {
    float* const pair = octet.v + 2 * i;
    if constexpr (std::is_same_v<T, float>) {
      const uint32_t* const words = bits.part[i / 2].word + i % 2 * 2;
      pair[0] = std::bit_cast<float>(words[0]);
      pair[1] = std::bit_cast<float>(words[1]);
    } else if constexpr (std::is_same_v<T, BF16>) {
      const uint32_t word = bits.part[0].word[i];
      pair[0] = std::bit_cast<float>(word << 16);
      pair[1] = std::bit_cast<float>(word & 0xffff0000u);
    } else {
      UnpackF16(bits.part[0].word[i], pair[0], pair[1]);
    }
  }
  return octet;
}
template <class T>
__device__ inline OctetBits<T> Pack(const Octet& octet) {
  OctetBits<T> bits;
#pragma unroll
  for (int i = 0; i < kOctet / 2; ++i) {
    const float* const pair = octet.v + 2 * i;
    if constexpr (std::is_same_v<T, float>) {
      uint32_t* const words = bits.part[i / 2].word + i % 2 * 2;
      words[0] = std::bit_cast<uint32_t>(pair[0]);
      words[1] = std::bit_cast<uint32_t>(pair[1]);
    } else if constexpr (std::is_same_v<T, BF16>) {
      bits.part[0].word[i] = PackBf16(pair[0], pair[1]);
    } else {
      bits.part[0].word[i] = PackF16(pair[0], pair[1]);
    }
  }
  return bits;
}

// p is aligned to kOctetAlignment<T>.
template <class T, Access kAccess = Access::kPlain>
__device__ inline Octet LoadOctet(const T* p) {
  OctetBits<T> bits;
#pragma unroll
  for (int i = 0; i < static_cast<int>(sizeof(T) / 2); ++i) {
    bits.part[i] =
        LoadBits128<kAccess>(reinterpret_cast<const char*>(p) + 16 * i);
  }
  return Unpack(bits);
}
template <class T, Access kAccess = Access::kPlain>
__device__ inline void StoreOctet(const Octet& octet, T* p) {
  const OctetBits<T> bits = Pack<T>(octet);
#pragma unroll
  for (int i = 0; i < static_cast<int>(sizeof(T) / 2); ++i) {
    StoreBits128<kAccess>(bits.part[i], reinterpret_cast<char*>(p) + 16 * i);
  }
}

// The first `count` columns, from any alignment of one element; the others are
// +0.
template <class T>
__device__ inline Octet LoadOctetUpTo(const T* p, int64_t count) {
  Octet octet = {};
  if constexpr (std::is_same_v<T, float>) {
#pragma unroll
    for (int i = 0; i < kOctet; ++i) {
      if (i < count) octet.v[i] = p[i];
    }
  } else {
    OctetBits<T> bits = {};
#pragma unroll
    for (int i = 0; i < kOctet; ++i) {
      if (i < count) {
        bits.part[0].word[i / 2] |= static_cast<uint32_t>(p[i].bits)
                                    << (i % 2 * 16);
      }
    }
    octet = Unpack(bits);
  }
  return octet;
}

template <class T>
__device__ inline void StoreOctetUpTo(const Octet& octet, T* p, int64_t count) {
  if constexpr (std::is_same_v<T, float>) {
#pragma unroll
    for (int i = 0; i < kOctet; ++i) {
      if (i < count) p[i] = octet.v[i];
    }
  } else {
    const OctetBits<T> bits = Pack<T>(octet);
#pragma unroll
    for (int i = 0; i < kOctet; ++i) {
      if (i < count) {
        p[i].bits =
            static_cast<uint16_t>(bits.part[0].word[i / 2] >> (i % 2 * 16));
      }
    }
  }
}

// Each value rounded to T and back.
template <class T>
__device__ inline Octet RoundTo(const Octet& octet) {
  if constexpr (std::is_same_v<T, float>) {
    return octet;
  } else {
    return Unpack(Pack<T>(octet));
  }
}

// f of each value.
template <class F>
__device__ inline Octet Map(const Octet& octet, F&& f) {
  Octet result;
#pragma unroll
  for (int i = 0; i < kOctet; ++i) result.v[i] = f(octet.v[i]);
  return result;
}
template <class F>
__device__ inline Octet Map(const Octet& a, const Octet& b, F&& f) {
  Octet result;
#pragma unroll
  for (int i = 0; i < kOctet; ++i) result.v[i] = f(a.v[i], b.v[i]);
  return result;
}

// The tree over neighbours.
__device__ inline float TreeSum(const Octet& x) {
  return ((x.v[0] + x.v[1]) + (x.v[2] + x.v[3])) +
         ((x.v[4] + x.v[5]) + (x.v[6] + x.v[7]));
}

}  // namespace lamina::gpu
