// The vector vocabulary of the CPU kernels: typed loads and stores through
// fp32, and the canonical row reductions. Included once per Highway target
// (see any *_cpu.cc); everything lives in lamina::HWY_NAMESPACE.
//
// On HWY_SCALAR a vector has one lane and the conversions are the constexpr
// ones, so the same kernel source is also the portable loop.

#if defined(LAMINA_CORE_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LAMINA_CORE_SIMD_INL_H_
#undef LAMINA_CORE_SIMD_INL_H_
#else
#define LAMINA_CORE_SIMD_INL_H_
#endif

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "hwy/highway.h"
#include "lamina/core/canonical_sum.h"
#include "lamina/core/dtype.h"
#include "lamina/core/float16.h"

HWY_BEFORE_NAMESPACE();
namespace lamina {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using DF32 = hn::ScalableTag<float>;
using VF32 = hn::Vec<DF32>;

// NOTE: fused on every target. Highway's MulAdd rounds twice on HWY_SCALAR,
// which would break the equality of targets.
template <class V>
HWY_INLINE V FusedMulAdd(V a, V b, V c) {
#if HWY_TARGET == HWY_SCALAR
  return V(std::fma(a.raw, b.raw, c.raw));
#else
  return hn::MulAdd(a, b, c);
#endif
}

// ---- Loads and stores: T in memory, fp32 in registers, unaligned. ----------
//
// SimdConverter<T> is specialised for each storage type (quant/fp8-inl.h adds
// the 8-bit ones). Store rounds once, to nearest-even, as FromFloat<T>.

#if HWY_TARGET == HWY_SCALAR
template <class T>
struct SimdConverter {
  static HWY_INLINE VF32 Load(DF32 d, const T* p) {
    return hn::Set(d, ToFloat(*p));
  }
  static HWY_INLINE void Store(VF32 v, DF32, T* p) { *p = FromFloat<T>(v.raw); }
};
#else
template <class T>
struct SimdConverter;

template <>
struct SimdConverter<float> {
  static HWY_INLINE VF32 Load(DF32 d, const float* p) {
    return hn::LoadU(d, p);
  }
  static HWY_INLINE void Store(VF32 v, DF32 d, float* p) {
    hn::StoreU(v, d, p);
  }
};

template <>
struct SimdConverter<BF16> {
  static HWY_INLINE VF32 Load(DF32 d, const BF16* p) {
    const hn::Rebind<uint16_t, DF32> d16;
    const hn::RebindToUnsigned<DF32> d32;
    const auto bits = hn::LoadU(d16, reinterpret_cast<const uint16_t*>(p));
    return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(d32, bits)));
  }
  static HWY_INLINE void Store(VF32 v, DF32, BF16* p) {
    const hn::RebindToUnsigned<DF32> d32;
    const hn::Rebind<uint16_t, DF32> d16;
    const auto u = hn::BitCast(d32, v);
    const auto high = hn::ShiftRight<16>(u);
    const auto odd = hn::And(high, hn::Set(d32, 1u));
    const auto rounded =
        hn::ShiftRight<16>(hn::Add(hn::Add(u, hn::Set(d32, 0x7fffu)), odd));
    const auto quiet_nan = hn::Or(high, hn::Set(d32, 0x40u));
    const auto is_nan = hn::RebindMask(d32, hn::IsNaN(v));
    hn::StoreU(hn::TruncateTo(d16, hn::IfThenElse(is_nan, quiet_nan, rounded)),
               d16, reinterpret_cast<uint16_t*>(p));
  }
};

template <>
struct SimdConverter<F16> {
  static HWY_INLINE VF32 Load(DF32 d, const F16* p) {
    const hn::Rebind<uint16_t, DF32> d16;
    const hn::Rebind<hwy::float16_t, DF32> df16;
    const auto bits = hn::LoadU(d16, reinterpret_cast<const uint16_t*>(p));
    return hn::PromoteTo(d, hn::BitCast(df16, bits));
  }
  static HWY_INLINE void Store(VF32 v, DF32, F16* p) {
    const hn::Rebind<hwy::float16_t, DF32> df16;
    const hn::Rebind<uint16_t, DF32> d16;
    hn::StoreU(hn::BitCast(d16, hn::DemoteTo(df16, v)), d16,
               reinterpret_cast<uint16_t*>(p));
  }
};
#endif  // HWY_TARGET == HWY_SCALAR

template <class T>
HWY_INLINE VF32 LoadF32(DF32 d, const T* p) {
  return SimdConverter<T>::Load(d, p);
}
template <class T>
HWY_INLINE void StoreF32(VF32 v, DF32 d, T* p) {
  SimdConverter<T>::Store(v, d, p);
}

// The first `count` < Lanes(d) elements; the other lanes are +0.
// NOTE: with one lane count is 0. GCC does not see that under -fsanitize and
// warns of a copy past the buffer; hence no copy in that case.
template <class T>
HWY_INLINE VF32 LoadNF32(DF32 d, const T* p, size_t count) {
  HWY_ALIGN T buffer[hn::MaxLanes(DF32())] = {};
  if constexpr (hn::MaxLanes(DF32()) > 1) {
    std::memcpy(buffer, p, count * sizeof(T));
  }
  return LoadF32(d, buffer);
}
template <class T>
HWY_INLINE void StoreNF32(VF32 v, DF32 d, T* p, size_t count) {
  HWY_ALIGN T buffer[hn::MaxLanes(DF32())];
  StoreF32(v, d, buffer);
  if constexpr (hn::MaxLanes(DF32()) > 1) {
    std::memcpy(p, buffer, count * sizeof(T));
  }
}

// Rounds fp32 lanes to T and back.
template <class T>
HWY_INLINE VF32 RoundTo(DF32 d, VF32 v) {
  if constexpr (std::is_same_v<T, float>) {
    return v;
  } else {
    HWY_ALIGN T buffer[hn::MaxLanes(DF32())];
    StoreF32(v, d, buffer);
    return LoadF32(d, buffer);
  }
}

// ---- The canonical sum ------------------------------------------------------
//
// Columns are taken in chunks of 256 (kSumChunk). A chunk is summed as a
// balanced binary tree over neighbours in column order, absent columns being
// +0; chunk sums are added to the total in column order, starting from +0.
// No product is fused with an addition. This order does not depend on the
// vector width, so every target and every backend gives the same bits.
// core/canonical_sum.h is the scalar model.

inline constexpr int64_t kSumChunk = kCanonicalChunk;

inline constexpr int kSumLevels = 8;  // of the tree: 2^8 = kSumChunk

// One level of the tree over two vectors, kept in L lanes: with v0, v1, … the
// vectors of one level, log2(L) levels turn L vectors into one whose lane j is
// the sum of the lanes of v_j. One shuffle an addition: lanes that stand right
// in one of the two are blended, the others swapped.
//
// NOTE: a + b and b + a are the same bits, so lanes may be swapped.
template <int kLevel>
HWY_INLINE VF32 AddNeighbours(DF32 d, VF32 a, VF32 b) {
#if HWY_TARGET == HWY_SCALAR
  (void)d;
  return hn::Add(a, b);
#else
  constexpr int kLevels =
      std::countr_zero(static_cast<uint64_t>(hn::MaxLanes(DF32())));
  constexpr int kStep = kLevel % kLevels;
  if constexpr (kStep == 0) {  // neighbouring lanes
    return hn::Add(hn::OddEven(b, a), hn::Shuffle2301(hn::OddEven(a, b)));
  } else if constexpr (kStep == 1) {  // neighbouring pairs
    const hn::RepartitionToWide<DF32> wide;
    const auto a2 = hn::BitCast(wide, a);
    const auto b2 = hn::BitCast(wide, b);
    return hn::Add(hn::BitCast(d, hn::OddEven(b2, a2)),
                   hn::BitCast(d, hn::Shuffle01(hn::OddEven(a2, b2))));
  } else if constexpr (kStep == kLevels - 1) {  // halves
    return hn::Add(hn::ConcatUpperLower(d, b, a),
                   hn::ConcatLowerUpper(d, b, a));
  } else {  // neighbouring blocks of four lanes
    static_assert(kStep == 2, "vectors of more than 16 lanes");
    return hn::Add(hn::OddEvenBlocks(b, a),
                   hn::SwapAdjacentBlocks(hn::OddEvenBlocks(a, b)));
  }
#endif
}

// Levels kLevel and up of the tree over kCount vectors, until one vector is
// left (kLast = 0), or to the sum of its lanes in every lane (kLast =
// kSumLevels): that vector is then folded onto itself.
template <int kLevel, int kCount, int kLast>
HWY_INLINE VF32 SumTree(DF32 d, VF32* sums) {
  if constexpr (kCount > 1) {
    for (int i = 0; i < kCount / 2; ++i) {
      sums[i] = AddNeighbours<kLevel>(d, sums[2 * i], sums[2 * i + 1]);
    }
    return SumTree<kLevel + 1, kCount / 2, kLast>(d, sums);
  } else if constexpr (kLevel < kLast) {
    sums[0] = AddNeighbours<kLevel>(d, sums[0], sums[0]);
    return SumTree<kLevel + 1, 1, kLast>(d, sums);
  } else {
    return sums[0];
  }
}

// Sum of one chunk. load(i) gives the vector of columns [i, i + Lanes) of the
// chunk; it is called once for each i < `count` rounded up to whole vectors, in
// order, and must zero the lanes at or past `count`.
template <class Load>
HWY_INLINE float ChunkSum(DF32 d, int64_t count, Load&& load) {
  constexpr int kLanes = static_cast<int>(hn::MaxLanes(DF32()));
  constexpr int kGroupLevels = 3;
  constexpr int kGroup = 1 << kGroupLevels;  // vectors that fit registers
  constexpr int kGroups = static_cast<int>(kSumChunk) / (kLanes * kGroup);
  static_assert(kGroups >= 1, "a chunk holds whole groups");
  VF32 sums[kGroups];
  for (int group = 0; group < kGroups; ++group) {
    const int64_t begin = group * kGroup * kLanes;
    if (begin >= count) {
      sums[group] = hn::Zero(d);
      continue;
    }
    VF32 vectors[kGroup];
    for (int i = 0; i < kGroup; ++i) {
      // NOTE: the only call of `load`, so that it is inlined.
      const int64_t column = begin + i * kLanes;
      vectors[i] = column < count ? load(column) : hn::Zero(d);
    }
    sums[group] = SumTree<0, kGroup, 0>(d, vectors);
  }
  return hn::GetLane(SumTree<kGroupLevels, kGroups, kSumLevels>(d, sums));
}

// Canonical sum of transform(x) over a row of `cols` elements of type T.
// transform must map +0 to +0.
template <class T, class Transform>
HWY_INLINE float RowSum(DF32 d, const T* row, int64_t cols,
                        Transform&& transform) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  float total = 0.0f;
  for (int64_t begin = 0; begin < cols; begin += kSumChunk) {
    const T* chunk = row + begin;
    const int64_t count = std::min(kSumChunk, cols - begin);
    total += ChunkSum(d, count, [&](int64_t i) HWY_ATTR {
      return transform(
          i + lanes <= count
              ? LoadF32(d, chunk + i)
              : LoadNF32(d, chunk + i, static_cast<size_t>(count - i)));
    });
  }
  return total;
}

// Calls body(i, n) for vectors covering [0, cols): n == Lanes(d) for whole
// vectors, less for the last.
template <class Body>
HWY_INLINE void ForEachVector(DF32 d, int64_t cols, Body&& body) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= cols; i += lanes) body(i, lanes);
  if (i < cols) body(i, cols - i);
}

// LoadF32 or LoadNF32, as n says.
template <class T>
HWY_INLINE VF32 LoadUpTo(DF32 d, const T* p, int64_t n) {
  return n == static_cast<int64_t>(hn::Lanes(d))
             ? LoadF32(d, p)
             : LoadNF32(d, p, static_cast<size_t>(n));
}
template <class T>
HWY_INLINE void StoreUpTo(VF32 v, DF32 d, T* p, int64_t n) {
  if (n == static_cast<int64_t>(hn::Lanes(d))) {
    StoreF32(v, d, p);
  } else {
    StoreNF32(v, d, p, static_cast<size_t>(n));
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace lamina
HWY_AFTER_NAMESPACE();

#endif  // include guard
