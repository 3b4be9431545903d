// Vector conversions and the canonical sum against their scalar models, on
// every SIMD target of this machine.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tests/core/simd_test.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
//
#include "lamina/quant/fp8-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lamina {
namespace HWY_NAMESPACE {

// Conversion of `count` values, whole vectors and a tail.
template <class T>
void ToFloats(const T* in, float* out, int64_t count) {
  const DF32 d;
  ForEachVector(d, count, [&](int64_t i, int64_t n) HWY_ATTR {
    StoreUpTo(LoadUpTo(d, in + i, n), d, out + i, n);
  });
}
template <class T>
void FromFloats(const float* in, T* out, int64_t count) {
  const DF32 d;
  ForEachVector(d, count, [&](int64_t i, int64_t n) HWY_ATTR {
    StoreUpTo(LoadUpTo(d, in + i, n), d, out + i, n);
  });
}

#define LAMINA_TEST_TYPE(T)                                  \
  void ToFloats##T(const T* in, float* out, int64_t count) { \
    ToFloats(in, out, count);                                \
  }                                                          \
  void FromFloats##T(const float* in, T* out, int64_t n) {   \
    FromFloats(in, out, n);                                  \
  }
LAMINA_TEST_TYPE(F16)
LAMINA_TEST_TYPE(BF16)
LAMINA_TEST_TYPE(F8E4M3Fn)
LAMINA_TEST_TYPE(F8E5M2)
LAMINA_TEST_TYPE(F8E4M3Fnuz)
LAMINA_TEST_TYPE(F8E5M2Fnuz)
LAMINA_TEST_TYPE(int8_t)
#undef LAMINA_TEST_TYPE

float SumOf(const float* row, int64_t cols) {
  return RowSum(DF32(), row, cols, [](VF32 v) HWY_ATTR { return v; });
}

}  // namespace HWY_NAMESPACE
}  // namespace lamina
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <bit>
#include <cmath>
#include <functional>
#include <vector>

#include "gtest/gtest.h"
#include "lamina/core/canonical_sum.h"
#include "lamina/core/device.h"
#include "tests/support/random.h"

namespace lamina {

HWY_EXPORT(SumOf);

template <class T>
struct Conversions;
#define LAMINA_TEST_TYPE(T)                                    \
  HWY_EXPORT(ToFloats##T);                                     \
  HWY_EXPORT(FromFloats##T);                                   \
  template <>                                                  \
  struct Conversions<T> {                                      \
    static void To(const T* in, float* out, int64_t count) {   \
      HWY_DYNAMIC_DISPATCH(ToFloats##T)(in, out, count);       \
    }                                                          \
    static void From(const float* in, T* out, int64_t count) { \
      HWY_DYNAMIC_DISPATCH(FromFloats##T)(in, out, count);     \
    }                                                          \
  };
LAMINA_TEST_TYPE(F16)
LAMINA_TEST_TYPE(BF16)
LAMINA_TEST_TYPE(F8E4M3Fn)
LAMINA_TEST_TYPE(F8E5M2)
LAMINA_TEST_TYPE(F8E4M3Fnuz)
LAMINA_TEST_TYPE(F8E5M2Fnuz)
LAMINA_TEST_TYPE(int8_t)
#undef LAMINA_TEST_TYPE

namespace {

void ForEachTarget(const std::function<void()>& body) {
  for (const std::string& target : CpuTargetNames()) {
    ASSERT_TRUE(ForceCpuTarget(target));
    SCOPED_TRACE(target);
    body();
  }
  ForceCpuTarget("");
}

template <class T>
uint32_t BitsOfValue(T value) {
  if constexpr (sizeof(T) == 1) return std::bit_cast<uint8_t>(value);
  if constexpr (sizeof(T) == 2) return std::bit_cast<uint16_t>(value);
  if constexpr (sizeof(T) == 4) return std::bit_cast<uint32_t>(value);
}

template <class T>
class SimdConversion : public ::testing::Test {};
using AllTypes = ::testing::Types<F16, BF16, F8E4M3Fn, F8E5M2, F8E4M3Fnuz,
                                  F8E5M2Fnuz, int8_t>;
TYPED_TEST_SUITE(SimdConversion, AllTypes);

TYPED_TEST(SimdConversion, EveryCodeToFloat) {
  using T = TypeParam;
  constexpr int kCodes = sizeof(T) == 1 ? 256 : 65536;
  std::vector<T> codes(kCodes);
  for (int i = 0; i < kCodes; ++i) {
    if constexpr (sizeof(T) == 1) {
      codes[i] = std::bit_cast<T>(static_cast<uint8_t>(i));
    } else {
      codes[i] = std::bit_cast<T>(static_cast<uint16_t>(i));
    }
  }
  ForEachTarget([&] {
    std::vector<float> values(kCodes);
    Conversions<T>::To(codes.data(), values.data(), kCodes);
    for (int i = 0; i < kCodes; ++i) {
      const float want = ToFloat(codes[i]);
      if (std::isnan(want)) {
        ASSERT_TRUE(std::isnan(values[i])) << "code " << i;
      } else {
        ASSERT_EQ(BitsOfValue(values[i]), BitsOfValue(want)) << "code " << i;
      }
    }
  });
}

TYPED_TEST(SimdConversion, EveryBf16AndF16AndRoundingEdgesFromFloat) {
  using T = TypeParam;
  std::vector<float> inputs;
  for (uint32_t i = 0; i < 65536; ++i) {
    inputs.push_back(ToFloat(BF16{static_cast<uint16_t>(i)}));
    inputs.push_back(ToFloat(F16{static_cast<uint16_t>(i)}));
  }
  // One fp32 step on either side of every point where the rounding changes.
  const size_t coarse = inputs.size();
  for (size_t i = 0; i < coarse; ++i) {
    const uint32_t bits = std::bit_cast<uint32_t>(inputs[i]);
    for (const uint32_t nudge : {1u, 0x7fffu, 0x8000u, 0x8001u, 0xffffffffu}) {
      inputs.push_back(std::bit_cast<float>(bits + nudge));
    }
  }
  inputs.push_back(1.0f);  // an odd count: the tail path runs
  const int64_t count = static_cast<int64_t>(inputs.size());
  ForEachTarget([&] {
    std::vector<T> codes(inputs.size());
    Conversions<T>::From(inputs.data(), codes.data(), count);
    for (int64_t i = 0; i < count; ++i) {
      const T want = FromFloat<T>(inputs[i]);
      if (std::isnan(inputs[i]) && sizeof(T) == 2) {
        ASSERT_TRUE(std::isnan(ToFloat(codes[i])));
        continue;
      }
      ASSERT_EQ(BitsOfValue(codes[i]), BitsOfValue(want))
          << std::hexfloat << inputs[i];
    }
  });
}

TEST(CanonicalSum, EqualsTheScalarModelForEveryLength) {
  testing::Random random(1);
  const std::vector<float> row = testing::NormalVector<float>(random, 2000);
  ForEachTarget([&] {
    for (int64_t cols = 0; cols <= 1100; ++cols) {
      const float want = CanonicalSum(cols, [&](int64_t i) { return row[i]; });
      const float got = HWY_DYNAMIC_DISPATCH(SumOf)(row.data(), cols);
      ASSERT_EQ(BitsOfValue(got), BitsOfValue(want)) << "cols " << cols;
    }
  });
}

}  // namespace
}  // namespace lamina
#endif  // HWY_ONCE
