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
template <class W>
struct StreamDecoder {
  static constexpr float kFactor = 1.0f;
  static HWY_INLINE Slots Decode(DF32 d, const W* p) {
    return DecodeExact(d, p);
  }
};

#if HWY_TARGET <= HWY_AVX2
static_assert(kSlotVectors == 1 || kSlotVectors == 2, "8 or 16 lanes");

// An FP8 code with its exponent field where fp16 has it is an fp16 number:
// e5m2 itself, e4m3 times a power of two, subnormals included. Then the
// hardware's fp16 conversion does the rest.
template <class V>  // of 16 int16_t
HWY_INLINE Slots PromoteHalves(DF32 d, V v) {
  const hn::FixedTag<hwy::float16_t, 16> d16;
  const auto halves = hn::BitCast(d16, v);
  Slots slots;
  if constexpr (kSlotVectors == 1) {
    slots.v[0] = hn::PromoteTo(d, halves);
  } else {
    slots.v[0] = hn::PromoteTo(d, hn::LowerHalf(halves));
    slots.v[1] = hn::PromoteTo(d, hn::UpperHalf(hn::Half<decltype(d16)>(),
                                                halves));
  }
  return slots;
}

template <>
struct StreamDecoder<F8E4M3Fn> {
  static constexpr float kFactor = 256.0f;  // 2^(15 - 7)
  static HWY_INLINE Slots Decode(DF32 d, const F8E4M3Fn* p) {
    const hn::FixedTag<int16_t, 16> d16;
    const hn::FixedTag<int8_t, 16> d8;
    const auto codes =
        hn::PromoteTo(d16, hn::LoadU(d8, reinterpret_cast<const int8_t*>(p)));
    const auto bits = hn::And(hn::ShiftLeft<7>(codes),
                              hn::Set(d16, static_cast<int16_t>(0xbf80)));
    // All ones is an fp16 NaN.
    const auto top = hn::Set(d16, int16_t{0x3f80});
    const auto is_nan = hn::Eq(hn::And(bits, top), top);
    return PromoteHalves(d, hn::Or(bits, hn::VecFromMask(d16, is_nan)));
  }
};

template <>
struct StreamDecoder<F8E4M3Fnuz> {
  static constexpr float kFactor = 128.0f;  // 2^(15 - 8)
  static HWY_INLINE Slots Decode(DF32 d, const F8E4M3Fnuz* p) {
    const hn::FixedTag<int16_t, 16> d16;
    const hn::FixedTag<int8_t, 16> d8;
    const auto codes =
        hn::PromoteTo(d16, hn::LoadU(d8, reinterpret_cast<const int8_t*>(p)));
    const auto bits = hn::And(hn::ShiftLeft<7>(codes),
                              hn::Set(d16, static_cast<int16_t>(0xbf80)));
    const auto is_nan = hn::Eq(codes, hn::Set(d16, int16_t{-128}));
    return PromoteHalves(d, hn::Or(bits, hn::VecFromMask(d16, is_nan)));
  }
};

template <>
struct StreamDecoder<F8E5M2> {
  static constexpr float kFactor = 1.0f;
  static HWY_INLINE Slots Decode(DF32 d, const F8E5M2* p) {
    const hn::FixedTag<int16_t, 16> d16;
    const hn::FixedTag<int8_t, 16> d8;
    return PromoteHalves(
        d, hn::ShiftLeft<8>(hn::PromoteTo(
               d16, hn::LoadU(d8, reinterpret_cast<const int8_t*>(p)))));
  }
};
#endif  // HWY_TARGET <= HWY_AVX2

// The last `count` < 16 columns of a row, the rest +0.
template <class W>
HWY_INLINE void CopyTail(const W* p, int64_t count, W* tail) {
  std::fill(std::copy_n(p, count, tail), tail + gemm_internal::kSlots, W());
}

}  // namespace HWY_NAMESPACE
}  // namespace lamina
HWY_AFTER_NAMESPACE();

#endif  // include guard
