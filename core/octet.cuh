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

// The eight values of 16 bytes of F16 or BF16, and back with one rounding.
template <class T>
__device__ inline Octet Unpack(const Bits128& bits) {
  Octet octet;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if constexpr (std::is_same_v<T, BF16>) {
      octet.v[2 * i] = std::bit_cast<float>(bits.word[i] << 16);
      octet.v[2 * i + 1] = std::bit_cast<float>(bits.word[i] & 0xffff0000u);
    } else {
      UnpackF16(bits.word[i], octet.v[2 * i], octet.v[2 * i + 1]);
    }
  }
  return octet;
}
template <class T>
__device__ inline Bits128 Pack(const Octet& octet) {
  Bits128 bits;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if constexpr (std::is_same_v<T, BF16>) {
      bits.word[i] = PackBf16(octet.v[2 * i], octet.v[2 * i + 1]);
    } else {
      bits.word[i] = PackF16(octet.v[2 * i], octet.v[2 * i + 1]);
    }
  }
  return bits;
}

enum class Access {
  kPlain,
  kConstant,   // not written while the kernel runs
  kStreaming,  // read or written once
};

// The octet at p, which is aligned to kOctetAlignment<T>; T is float, F16 or
// BF16.
template <class T, Access kAccess = Access::kPlain>
__device__ inline Octet LoadOctet(const T* p) {
  const auto load = [](const void* from) {
    if constexpr (kAccess == Access::kConstant) return Load128Constant(from);
    if constexpr (kAccess == Access::kStreaming) return Load128Streaming(from);
    if constexpr (kAccess == Access::kPlain) return Load128(from);
  };
  Octet octet;
  if constexpr (std::is_same_v<T, float>) {
    const Bits128 low = load(p);
    const Bits128 high = load(p + 4);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      octet.v[i] = std::bit_cast<float>(low.word[i]);
      octet.v[4 + i] = std::bit_cast<float>(high.word[i]);
    }
  } else {
    octet = Unpack<T>(load(p));
  }
  return octet;
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
    Bits128 bits = {};
#pragma unroll
    for (int i = 0; i < kOctet; ++i) {
      if (i < count) {
        bits.word[i / 2] |= static_cast<uint32_t>(p[i].bits) << (i % 2 * 16);
      }
    }
    octet = Unpack<T>(bits);
  }
  return octet;
}

template <class T, Access kAccess = Access::kPlain>
__device__ inline void StoreOctet(const Octet& octet, T* p) {
  const auto store = [](const Bits128& bits, void* to) {
    if constexpr (kAccess == Access::kStreaming) {
      Store128Streaming(bits, to);
    } else {
      Store128(bits, to);
    }
  };
  if constexpr (std::is_same_v<T, float>) {
    Bits128 low, high;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      low.word[i] = std::bit_cast<uint32_t>(octet.v[i]);
      high.word[i] = std::bit_cast<uint32_t>(octet.v[4 + i]);
    }
    store(low, p);
    store(high, p + 4);
  } else {
    store(Pack<T>(octet), p);
  }
}

template <class T>
__device__ inline void StoreOctetUpTo(const Octet& octet, T* p, int64_t count) {
  if constexpr (std::is_same_v<T, float>) {
#pragma unroll
    for (int i = 0; i < kOctet; ++i) {
      if (i < count) p[i] = octet.v[i];
    }
  } else {
    const Bits128 bits = Pack<T>(octet);
#pragma unroll
    for (int i = 0; i < kOctet; ++i) {
      if (i < count) {
        p[i].bits = static_cast<uint16_t>(bits.word[i / 2] >> (i % 2 * 16));
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
    return Unpack<T>(Pack<T>(octet));
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
