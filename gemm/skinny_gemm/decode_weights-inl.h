// Sixteen weights at a time from memory to fp32 vectors.

#if defined(LAMINA_GEMM_DECODE_WEIGHTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LAMINA_GEMM_DECODE_WEIGHTS_INL_H_
#undef LAMINA_GEMM_DECODE_WEIGHTS_INL_H_
#else
#define LAMINA_GEMM_DECODE_WEIGHTS_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "lamina/gemm/skinny_gemm/skinny_gemm_policy.h"
#include "lamina/quant/fp8-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lamina {
namespace HWY_NAMESPACE {

static_assert(hn::MaxLanes(DF32()) <= gemm_internal::kSlots,
              "wider vectors need their own slot layout");
inline constexpr int kSlotVectors =
    static_cast<int>(gemm_internal::kSlots / hn::MaxLanes(DF32()));

// Columns k … k + 15 of a weight row.
struct Slots {
  VF32 v[kSlotVectors];
};

template <class W>
HWY_INLINE Slots DecodeExact(DF32 d, const W* p) {
  Slots slots;
  for (int i = 0; i < kSlotVectors; ++i) {
    slots.v[i] = LoadF32(d, p + i * static_cast<int>(hn::MaxLanes(d)));
  }
  return slots;
}

// StreamDecoder<W>::Decode gives the weights divided by kFactor, a power of
// two that the stream path multiplies x by: the products are the same, exactly.
// A type with kFindsNaN decodes NaN codes to numbers, and FindNaN tells whether
// there were any: one test for a row is cheaper than a patch for each weight
// (e4m3fn from memory: 10 %; Zen 3, 2026-11-30).
template <class W>
struct StreamDecoder {
  static constexpr float kFactor = 1.0f;
  static constexpr bool kFindsNaN = false;
  static HWY_INLINE Slots Decode(DF32 d, const W* p) {
    return DecodeExact(d, p);
  }
};

#if HWY_TARGET <= HWY_AVX2
static_assert(kSlotVectors == 1 || kSlotVectors == 2, "8 or 16 lanes");

// Sixteen codes as the high bits of fp16 numbers, sign and magnitude apart: an
// FP8 code whose exponent field stands where fp16 has it *is* an fp16 number,
// e4m3 divided by a power of two, subnormals included. The hardware's fp16
// conversion does the rest.
template <int kShift, int kMask>
HWY_INLINE Slots DecodeAsF16(DF32 d, const void* p) {
  const hn::FixedTag<int16_t, 16> d16;
  const hn::FixedTag<int8_t, 16> d8;
  const hn::FixedTag<hwy::float16_t, 16> df16;
  const auto codes =
      hn::PromoteTo(d16, hn::LoadU(d8, static_cast<const int8_t*>(p)));
  const auto halves =
      hn::BitCast(df16, hn::And(hn::ShiftLeft<kShift>(codes),
                                hn::Set(d16, static_cast<int16_t>(kMask))));
  // A template, because only one branch compiles for a target.
  const auto promote = [&](const auto& v) HWY_ATTR {
    Slots slots;
    if constexpr (kSlotVectors == 1) {
      slots.v[0] = hn::PromoteTo(d, v);
    } else {
      slots.v[0] = hn::PromoteTo(d, hn::LowerHalf(v));
      slots.v[kSlotVectors - 1] =
          hn::PromoteTo(d, hn::UpperHalf(hn::Half<decltype(df16)>(), v));
    }
    return slots;
  };
  return promote(halves);
}

template <>
struct StreamDecoder<F8E4M3Fn> {
  static constexpr float kFactor = 256.0f;  // 2^(15 - 7)
  static constexpr bool kFindsNaN = true;
  static HWY_INLINE Slots Decode(DF32 d, const F8E4M3Fn* p) {
    return DecodeAsF16<7, 0xbf80>(d, p);
  }
  // 0x7f is the largest signed byte, 0xff the largest unsigned one.
  static HWY_INLINE bool FindNaN(const F8E4M3Fn* p, int64_t count) {
    const hn::ScalableTag<uint8_t> du;
    const hn::RebindToSigned<decltype(du)> di;
    auto largest = hn::Zero(di);
    auto largest_unsigned = hn::Zero(du);
    const int64_t lanes = static_cast<int64_t>(hn::Lanes(du));
    int64_t i = 0;
    for (; i + lanes <= count; i += lanes) {
      const auto codes = hn::LoadU(du, reinterpret_cast<const uint8_t*>(p + i));
      largest = hn::Max(largest, hn::BitCast(di, codes));
      largest_unsigned = hn::Max(largest_unsigned, codes);
    }
    bool found =
        !hn::AllFalse(di, hn::Eq(largest, hn::Set(di, int8_t{0x7f}))) ||
        !hn::AllFalse(du, hn::Eq(largest_unsigned, hn::Set(du, uint8_t{0xff})));
    for (; i < count; ++i) found |= (p[i].bits & 0x7f) == 0x7f;
    return found;
  }
};

template <>
struct StreamDecoder<F8E4M3Fnuz> {
  static constexpr float kFactor = 128.0f;  // 2^(15 - 8)
  static constexpr bool kFindsNaN = true;
  static HWY_INLINE Slots Decode(DF32 d, const F8E4M3Fnuz* p) {
    return DecodeAsF16<7, 0xbf80>(d, p);
  }
  // 0x80 is the smallest signed byte.
  static HWY_INLINE bool FindNaN(const F8E4M3Fnuz* p, int64_t count) {
    const hn::ScalableTag<int8_t> d;
    auto smallest = hn::Zero(d);
    const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
    int64_t i = 0;
    for (; i + lanes <= count; i += lanes) {
      smallest = hn::Min(smallest,
                         hn::LoadU(d, reinterpret_cast<const int8_t*>(p + i)));
    }
    bool found = !hn::AllFalse(d, hn::Eq(smallest, hn::Set(d, int8_t{-128})));
    for (; i < count; ++i) found |= p[i].bits == 0x80;
    return found;
  }
};

template <>
struct StreamDecoder<F8E5M2> {
  static constexpr float kFactor = 1.0f;
  static constexpr bool kFindsNaN = false;  // fp16 has the same NaN codes
  static HWY_INLINE Slots Decode(DF32 d, const F8E5M2* p) {
    return DecodeAsF16<8, 0xff00>(d, p);
  }
};
#endif  // HWY_TARGET <= HWY_AVX2

}  // namespace HWY_NAMESPACE
}  // namespace lamina
HWY_AFTER_NAMESPACE();

#endif  // include guard
