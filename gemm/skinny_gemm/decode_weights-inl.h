// Sixteen weights at a time from memory to fp32 vectors.

#if defined(LAMINA_GEMM_DECODE_WEIGHTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LAMINA_GEMM_DECODE_WEIGHTS_INL_H_
#undef LAMINA_GEMM_DECODE_WEIGHTS_INL_H_
#else
#define LAMINA_GEMM_DECODE_WEIGHTS_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "lamina/gemm/skinny_gemm/skinny_gemm_cpu.h"
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

// The search of a decoder that makes NaN of NaN codes.
struct NoNaNSearch {
  template <class W>
  HWY_INLINE void AddLine(const W*) {}
  template <class W>
  HWY_INLINE void AddSlots(const W*) {}
  HWY_INLINE bool Found() const { return false; }
};

// Decodes on the stream path: Decode gives weights times a power of two, for x
// times kXFactor; their dots are the true ones divided by kDotFactor.
//
//   kDeinterleaved  vector 0 holds the even and vector 1 the odd columns
//   NaNSearch       finds NaN codes, if they decode to numbers
template <class W>
struct StreamDecoder {
  static constexpr float kXFactor = 1.0f;
  static constexpr float kDotFactor = 1.0f;
  static constexpr bool kDeinterleaved = false;
  using NaNSearch = NoNaNSearch;
  static HWY_INLINE Slots Decode(DF32 d, const W* p) {
    return DecodeExact(d, p);
  }
};

#if HWY_TARGET <= HWY_AVX2
static_assert(kSlotVectors == 1 || kSlotVectors == 2, "8 or 16 lanes");

// Whether any of the codes it was shown is a NaN: in fnuz types 0x80, the
// smallest signed byte; in e4m3fn 0x7f, the largest signed, and 0xff, the
// largest unsigned byte.
template <class W>
class CodeNaNSearch {
 public:
  HWY_INLINE CodeNaNSearch()
      : extreme_(hn::Zero(DI8())), largest_(hn::Zero(DU8())) {}
  // 64 codes.
  HWY_INLINE void AddLine(const W* codes) {
    for (size_t i = 0; i < 64; i += hn::Lanes(DU8())) {
      Add(hn::LoadU(DU8(), reinterpret_cast<const uint8_t*>(codes + i)));
    }
  }
  // 16 codes.
  HWY_INLINE void AddSlots(const W* codes) {
    Add(hn::LoadDup128(DU8(), reinterpret_cast<const uint8_t*>(codes)));
  }
  HWY_INLINE bool Found() const {
    const DI8 d;
    bool found = !hn::AllFalse(
        d, hn::Eq(extreme_, hn::Set(d, kFnuz ? int8_t{-128} : int8_t{127})));
    if constexpr (!kFnuz) {
      found |=
          !hn::AllFalse(DU8(), hn::Eq(largest_, hn::Set(DU8(), uint8_t{0xff})));
    }
    return found;
  }

 private:
  static constexpr bool kFnuz = Fp8FormatOf<W>::value.fnuz;
  using DU8 = hn::ScalableTag<uint8_t>;
  using DI8 = hn::RebindToSigned<DU8>;

  HWY_INLINE void Add(hn::Vec<DU8> codes) {
    const auto with_sign = hn::BitCast(DI8(), codes);
    if constexpr (kFnuz) {
      extreme_ = hn::Min(extreme_, with_sign);
    } else {
      extreme_ = hn::Max(extreme_, with_sign);
      largest_ = hn::Max(largest_, codes);
    }
  }

  hn::Vec<DI8> extreme_;
  hn::Vec<DU8> largest_;
};

// An FP8 code with its fields where fp32 has them is the weight times
// 2^(bias - 127); a subnormal code gives a subnormal number, which fused
// multiply-adds take as it is. Two shifts and two masks for 16 weights. (From
// the caches, two threads, GB/s of codes: 30 with the search for NaN codes
// inside the loop and 21 with a search by itself; by way of the hardware's fp16
// conversion 20 and 16; EPYC 7003, 576 columns, 2026-11-30.)
//
// NOTE: exact for x in the window [kSmallestX, kLargestX) alone. There every x
// is a multiple of 2^-110, so that the products and sums are multiples of
// 2^-149, scaled or not: none is rounded because it is subnormal. None
// overflows. So scaled sums are the rule's sums times a power of two.
template <class W>
struct ShiftDecoder {
  static constexpr Fp8Format kFormat = Fp8FormatOf<W>::value;
  static constexpr float kXFactor = 0x1p90f;
  static constexpr float kDotFactor =
      quant_internal::PowerOfTwo(127 - kFormat.bias - 90);
  static_assert(gemm_internal::kSmallestX * 0x1p-23f * kXFactor >=
                    quant_internal::PowerOfTwo(126 + kFormat.mantissa_bits -
                                               149),
                "a scaled sum would lose bits");
  static constexpr bool kDeinterleaved = kSlotVectors == 2;
  using NaNSearch = CodeNaNSearch<W>;

  static HWY_INLINE Slots Decode(DF32 d, const W* p) {
    const hn::FixedTag<int8_t, 16> d8;
    return Split<kSlotVectors>(
        d, hn::LoadU(d8, reinterpret_cast<const int8_t*>(p)));
  }

 private:
  // A template in the vector too: only one branch compiles for a target.
  template <int kVectors, class V>
  static HWY_INLINE Slots Split(DF32 d, V raw) {
    const hn::RebindToSigned<DF32> d32;
    Slots slots;
    if constexpr (kVectors == 1) {
      constexpr int kShift = 23 - kFormat.mantissa_bits;
      const auto codes = hn::ShiftLeft<kShift>(hn::PromoteTo(d32, raw));
      slots.v[0] = hn::BitCast(
          d, hn::And(codes, hn::Set(d32, static_cast<int32_t>(
                                             0x80000000u | 0x7fu << kShift))));
    } else {
      constexpr int kShift = 7 - kFormat.mantissa_bits;
      const hn::FixedTag<int16_t, 16> d16;
      const auto codes = hn::ShiftLeft<kShift>(hn::PromoteTo(d16, raw));
      const auto pairs = hn::BitCast(
          d32, hn::And(codes, hn::Set(d16, static_cast<int16_t>(
                                               0x8000u | 0x7fu << kShift))));
      slots.v[0] = hn::BitCast(d, hn::ShiftLeft<16>(pairs));
      slots.v[kVectors - 1] =
          hn::BitCast(d, hn::And(pairs, hn::Set(d32, -0x10000)));
    }
    return slots;
  }
};

template <>
struct StreamDecoder<F8E4M3Fn> : ShiftDecoder<F8E4M3Fn> {};
template <>
struct StreamDecoder<F8E4M3Fnuz> : ShiftDecoder<F8E4M3Fnuz> {};
template <>
struct StreamDecoder<F8E5M2Fnuz> : ShiftDecoder<F8E5M2Fnuz> {};

// An e5m2 code is the high byte of an fp16 number, NaN and infinities too.
template <>
struct StreamDecoder<F8E5M2> {
  static constexpr float kXFactor = 1.0f;
  static constexpr float kDotFactor = 1.0f;
  static constexpr bool kDeinterleaved = false;
  using NaNSearch = NoNaNSearch;

  static HWY_INLINE Slots Decode(DF32 d, const F8E5M2* p) {
    const hn::FixedTag<uint8_t, 16> d8;
    return Promote<kSlotVectors>(
        d, hn::LoadU(d8, reinterpret_cast<const uint8_t*>(p)));
  }

 private:
  template <int kVectors, class V>
  static HWY_INLINE Slots Promote(DF32 d, V raw) {
    const hn::FixedTag<uint16_t, 16> d16;
    const hn::FixedTag<hwy::float16_t, 16> df16;
    const auto halves =
        hn::BitCast(df16, hn::ShiftLeft<8>(hn::PromoteTo(d16, raw)));
    Slots slots;
    if constexpr (kVectors == 1) {
      slots.v[0] = hn::PromoteTo(d, halves);
    } else {
      const hn::Half<decltype(df16)> dhalf;
      slots.v[0] = hn::PromoteTo(d, hn::LowerHalf(dhalf, halves));
      slots.v[kVectors - 1] = hn::PromoteTo(d, hn::UpperHalf(dhalf, halves));
    }
    return slots;
  }
};

#endif  // HWY_TARGET <= HWY_AVX2

}  // namespace HWY_NAMESPACE
}  // namespace lamina
HWY_AFTER_NAMESPACE();

#endif  // include guard
