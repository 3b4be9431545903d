// The tree that adds the 16 slots of an output (see skinny_gemm.h).

#if defined(LAMINA_GEMM_ADD_SLOTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LAMINA_GEMM_ADD_SLOTS_INL_H_
#undef LAMINA_GEMM_ADD_SLOTS_INL_H_
#else
#define LAMINA_GEMM_ADD_SLOTS_INL_H_
#endif

#include <cstdint>

#include "lamina/core/simd-inl.h"
#include "lamina/gemm/skinny_gemm/skinny_gemm_policy.h"

HWY_BEFORE_NAMESPACE();
namespace lamina {
namespace HWY_NAMESPACE {

// sums[i] = the tree over slots[16 * i …] for i < count.
inline void AddSlots(const float* HWY_RESTRICT slots, int64_t count,
                     float* HWY_RESTRICT sums) {
  int64_t i = 0;
#if HWY_TARGET != HWY_SCALAR
  const hn::FixedTag<float, 4> d;
  const hn::RepartitionToWide<decltype(d)> d64;
  // Slots s, s + 8, s + 4, s + 12 meet in lane s.
  const auto quarter = [&](int64_t output) HWY_ATTR {
    const float* p = slots + output * gemm_internal::kSlots;
    return hn::Add(hn::Add(hn::Load(d, p), hn::Load(d, p + 8)),
                   hn::Add(hn::Load(d, p + 4), hn::Load(d, p + 12)));
  };
  for (; i + 4 <= count; i += 4) {
    // Transpose, so that the last two levels add whole vectors.
    const auto a = quarter(i);
    const auto b = quarter(i + 1);
    const auto c = quarter(i + 2);
    const auto e = quarter(i + 3);
    const auto ab_low = hn::BitCast(d64, hn::InterleaveLower(d, a, b));
    const auto ab_high = hn::BitCast(d64, hn::InterleaveUpper(d, a, b));
    const auto ce_low = hn::BitCast(d64, hn::InterleaveLower(d, c, e));
    const auto ce_high = hn::BitCast(d64, hn::InterleaveUpper(d, c, e));
    const auto s0 = hn::BitCast(d, hn::InterleaveLower(d64, ab_low, ce_low));
    const auto s1 = hn::BitCast(d, hn::InterleaveUpper(d64, ab_low, ce_low));
    const auto s2 = hn::BitCast(d, hn::InterleaveLower(d64, ab_high, ce_high));
    const auto s3 = hn::BitCast(d, hn::InterleaveUpper(d64, ab_high, ce_high));
    hn::StoreU(hn::Add(hn::Add(s0, s2), hn::Add(s1, s3)), d, sums + i);
  }
#endif
  for (; i < count; ++i) {
    float tree[gemm_internal::kSlots / 2];
    const float* p = slots + i * gemm_internal::kSlots;
    for (int s = 0; s < 8; ++s) tree[s] = p[s] + p[s + 8];
    for (int width = 4; width > 0; width /= 2) {
      for (int s = 0; s < width; ++s) tree[s] += tree[s + width];
    }
    sums[i] = tree[0];
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace lamina
HWY_AFTER_NAMESPACE();

#endif  // include guard
