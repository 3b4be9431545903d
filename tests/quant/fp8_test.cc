// The constexpr conversions of quant/fp8.h: every code and every 16-bit input
// against tables by an independent implementation and against a search for the
// nearest value. (tests/core/simd_test.cc: vectors equal these conversions.)

#include "lamina/quant/fp8.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "gtest/gtest.h"
#include "lamina/core/dispatch.h"
#include "tests/quant/fp8_golden.h"
#include "tests/support/targets.h"

namespace lamina {
namespace {

using ::lamina::testing::Fp8Golden;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

template <class T>
constexpr int Code(float x) {
  return FromFloat<T>(x).bits;
}

// Known answers, at compile time.
static_assert(Code<F8E4M3Fn>(448.0f) == 0x7e);
static_assert(Code<F8E4M3Fn>(464.0f) == 0x7e);
static_assert(Code<F8E4M3Fn>(466.0f) == 0x7e);
static_assert(Code<F8E4M3Fn>(-1e30f) == 0xfe);
static_assert(Code<F8E4M3Fn>(kInf) == 0x7e);
static_assert(Code<F8E4M3Fn>(kNaN) == 0x7f);
static_assert(Code<F8E4M3Fn>(-kNaN) == 0xff);
static_assert(Code<F8E4M3Fn>(-0.0f) == 0x80);
static_assert(Code<F8E4M3Fn>(0x1p-9f) == 0x01);
static_assert(Code<F8E4M3Fn>(0x1p-10f) == 0x00);   // tie to even
static_assert(Code<F8E4M3Fn>(0x1.8p-9f) == 0x02);  // tie to even
static_assert(Code<F8E4M3Fn>(0x1.fp-7f) == 0x08);  // subnormal to normal
static_assert(Code<F8E5M2>(57344.0f) == 0x7b);
static_assert(Code<F8E5M2>(61441.0f) == 0x7b);
static_assert(Code<F8E5M2>(-kInf) == 0xfb);
static_assert(Code<F8E5M2>(kNaN) == 0x7e);
static_assert(Code<F8E4M3Fnuz>(240.0f) == 0x7f);
static_assert(Code<F8E4M3Fnuz>(250.0f) == 0x7f);
static_assert(Code<F8E4M3Fnuz>(-kInf) == 0xff);
static_assert(Code<F8E4M3Fnuz>(kNaN) == 0x80);
static_assert(Code<F8E4M3Fnuz>(-kNaN) == 0x80);
static_assert(Code<F8E4M3Fnuz>(-0.0f) == 0x00);      // there is no -0
static_assert(Code<F8E4M3Fnuz>(-0x1p-12f) == 0x00);  // rounds to it
static_assert(Code<F8E5M2Fnuz>(1e9f) == 0x7f);
static_assert(Code<F8E5M2Fnuz>(-kNaN) == 0x80);
static_assert(ToFloat(F8E4M3Fn{0x81}) == -0x1p-9f);
static_assert(ToFloat(F8E4M3Fnuz{0x01}) == 0x1p-10f);
static_assert(ToFloat(F8E4M3Fnuz{0x7f}) == 240.0f);
static_assert(ToFloat(F8E5M2{0x7c}) == kInf);
static_assert(ToFloat(F8E5M2Fnuz{0xff}) == -57344.0f);
static_assert(MaxFinite<F8E4M3Fn>() == 448.0f);
static_assert(MaxFinite<F8E5M2>() == MaxFinite(DType::kF8E5M2));
static_assert(MaxFinite<F8E4M3Fnuz>() == MaxFinite(DType::kF8E4M3Fnuz));
static_assert(MaxFinite<F8E5M2Fnuz>() == MaxFinite(DType::kF8E5M2Fnuz));
static_assert(MaxFinite<int8_t>() == MaxFinite(DType::kI8));

static_assert(FromFloat<int8_t>(kNaN) == 0);
static_assert(FromFloat<int8_t>(kInf) == 127);
static_assert(FromFloat<int8_t>(-kInf) == -128);
static_assert(FromFloat<int8_t>(126.5f) == 126);  // tie to even
static_assert(FromFloat<int8_t>(-127.5f) == -128);
static_assert(FromFloat<int8_t>(0.5f) == 0);
static_assert(FromFloat<int8_t>(-1.5f) == -2);

static_assert(Code<F8E8M0>(1.0f) == 127);
static_assert(Code<F8E8M0>(1.0000001f) == 128);  // up, never down
static_assert(Code<F8E8M0>(0.0f) == 0);
static_assert(Code<F8E8M0>(-0.0f) == 0);
static_assert(Code<F8E8M0>(0x1p-127f) == 0);
static_assert(Code<F8E8M0>(0x1.8p-127f) == 1);
static_assert(Code<F8E8M0>(0x1p-126f) == 1);
static_assert(Code<F8E8M0>(0x1.8p127f) == 254);
static_assert(Code<F8E8M0>(kInf) == 254);
static_assert(Code<F8E8M0>(kNaN) == 255);
static_assert(Code<F8E8M0>(-1.0f) == 255);

template <class T>
class Fp8 : public ::testing::Test {};
using Fp8Types = ::testing::Types<Types<F8E4M3Fn>, Types<F8E5M2>,
                                  Types<F8E4M3Fnuz>, Types<F8E5M2Fnuz>>;
TYPED_TEST_SUITE(Fp8, Fp8Types, testing::TypeNames);

template <class Row>
struct First;
template <class T>
struct First<Types<T>> {
  using type = T;
};

template <class T>
void ExpectDecodesAsGolden() {
  for (uint32_t code = 0; code < 256; ++code) {
    const float value = ToFloat(T{static_cast<uint8_t>(code)});
    const uint32_t want = Fp8Golden<T>::kDecoded[code];
    if (want == 0x7fc00000u) {
      EXPECT_TRUE(std::isnan(value)) << code;
    } else {
      EXPECT_EQ(std::bit_cast<uint32_t>(value), want) << code;
    }
  }
}

TYPED_TEST(Fp8, EveryCodeDecodesAsTheGoldenTable) {
  ExpectDecodesAsGolden<typename First<TypeParam>::type>();
}
TEST(F8E8M0, EveryCodeDecodesAsTheGoldenTable) {
  ExpectDecodesAsGolden<F8E8M0>();
}

TYPED_TEST(Fp8, EveryCodeSurvivesARoundTrip) {
  using T = typename First<TypeParam>::type;
  for (uint32_t code = 0; code < 256; ++code) {
    const float value = ToFloat(T{static_cast<uint8_t>(code)});
    const T back = FromFloat<T>(value);
    if (std::isfinite(value)) {
      EXPECT_EQ(back.bits, code);
    } else {
      EXPECT_EQ(std::isnan(ToFloat(back)), std::isnan(value)) << code;
    }
  }
}
TEST(F8E8M0, EveryCodeSurvivesARoundTrip) {
  for (uint32_t code = 0; code < 256; ++code) {
    const F8E8M0 x{static_cast<uint8_t>(code)};
    EXPECT_EQ(FromFloat<F8E8M0>(ToFloat(x)), x);
  }
}

// Nearest finite value by search over the golden table, ties to the even code.
template <class T>
uint8_t NearestCode(double magnitude) {
  // Beyond the table, differences would round to equal doubles.
  magnitude = std::min<double>(magnitude, MaxFinite<T>());
  uint8_t best = 0;
  double best_error = magnitude;  // code 0 is 0
  for (uint32_t code = 1; code < 128; ++code) {
    const double value = std::bit_cast<float>(Fp8Golden<T>::kDecoded[code]);
    if (!std::isfinite(value)) continue;
    const double error = std::fabs(value - magnitude);
    if (error < best_error || (error == best_error && code % 2 == 0)) {
      best = static_cast<uint8_t>(code);
      best_error = error;
    }
  }
  return best;
}

TYPED_TEST(Fp8, EveryFiniteF16AndBf16RoundsToTheNearestValue) {
  using T = typename First<TypeParam>::type;
  constexpr Fp8Format kFormat = Fp8FormatOf<T>::value;
  for (uint32_t i = 0; i < 65536; ++i) {
    for (const float x : {ToFloat(BF16{static_cast<uint16_t>(i)}),
                          ToFloat(F16{static_cast<uint16_t>(i)})}) {
      if (!std::isfinite(x)) continue;
      const uint8_t nearest = NearestCode<T>(std::fabs(x));
      const uint8_t sign = std::signbit(x) ? 0x80 : 0;
      const uint8_t want = kFormat.fnuz && nearest == 0
                               ? uint8_t{0}
                               : static_cast<uint8_t>(nearest | sign);
      ASSERT_EQ(FromFloat<T>(x).bits, want) << std::hexfloat << x;
    }
  }
}

TYPED_TEST(Fp8, NeighboursOfEveryMidpointRoundToTheNearestValue) {
  using T = typename First<TypeParam>::type;
  for (uint32_t code = 0; code < 127; ++code) {
    const double low = std::bit_cast<float>(Fp8Golden<T>::kDecoded[code]);
    const double high = std::bit_cast<float>(Fp8Golden<T>::kDecoded[code + 1]);
    if (!std::isfinite(high)) continue;
    const float middle = static_cast<float>((low + high) / 2);
    for (const float x :
         {std::nextafter(middle, 0.0f), middle, std::nextafter(middle, kInf)}) {
      ASSERT_EQ(FromFloat<T>(x).bits, NearestCode<T>(x)) << std::hexfloat << x;
    }
  }
}

template <class T, class Input>
uint64_t HashOfCodes() {
  uint64_t hash = 0xcbf29ce484222325u;
  for (uint32_t i = 0; i < 65536; ++i) {
    const float x = ToFloat(Input{static_cast<uint16_t>(i)});
    if (std::isnan(x)) continue;
    hash = (hash ^ FromFloat<T>(x).bits) * 0x100000001b3u;
  }
  return hash;
}

TYPED_TEST(Fp8, EveryF16AndBf16EncodesAsTheGolden) {
  using T = typename First<TypeParam>::type;
  EXPECT_EQ((HashOfCodes<T, BF16>()), Fp8Golden<T>::kHashOfBf16Inputs);
  EXPECT_EQ((HashOfCodes<T, F16>()), Fp8Golden<T>::kHashOfF16Inputs);
}

TYPED_TEST(Fp8, EveryNaNGivesTheCanonicalNaN) {
  using T = typename First<TypeParam>::type;
  constexpr Fp8Format kFormat = Fp8FormatOf<T>::value;
  for (uint32_t payload = 1; payload < 0x800000u; payload += 0x1235u) {
    for (const uint32_t sign : {0u, 0x80000000u}) {
      const float nan = std::bit_cast<float>(sign | 0x7f800000u | payload);
      const uint32_t want =
          kFormat.fnuz ? 0x80u : kFormat.nan_code | (sign >> 24);
      ASSERT_EQ(FromFloat<T>(nan).bits, want) << payload;
    }
  }
}

TEST(Int8, EveryValueRoundsToNearestEvenAndSaturates) {
  for (int i = -128; i <= 127; ++i) {
    EXPECT_EQ(FromFloat<int8_t>(static_cast<float>(i)), i);
    const float half = static_cast<float>(i) + 0.5f;
    const double even = std::nearbyint(static_cast<double>(half));
    EXPECT_EQ(FromFloat<int8_t>(half), std::clamp(even, -128.0, 127.0));
    const float below = std::nextafter(half, -kInf);
    const float above = std::nextafter(half, kInf);
    EXPECT_EQ(FromFloat<int8_t>(below), i);
    EXPECT_EQ(FromFloat<int8_t>(above), std::min(i + 1, 127));
  }
}

}  // namespace
}  // namespace lamina
