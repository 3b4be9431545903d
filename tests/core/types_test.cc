// Element types, views and typed tables. What is constexpr is checked when
// this file is compiled.

#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <type_traits>

#include "gtest/gtest.h"
#include "lamina/core/canonical_sum.h"
#include "lamina/core/dispatch.h"
#include "lamina/core/dtype.h"
#include "lamina/core/float16.h"
#include "lamina/core/math.h"
#include "lamina/core/views.h"

namespace lamina {
namespace {

// ---- Element types ----------------------------------------------------------

static_assert(BytesFor(DType::kF32, 3) == 12);
static_assert(BytesFor(DType::kBF16, 3) == 6);
static_assert(BytesFor(DType::kF8E4M3Fn, 3) == 3);
static_assert(BytesFor(DType::kI64, 3) == 24);
static_assert(BytesFor(DType::kF4E2M1, 0) == 0);
static_assert(BytesFor(DType::kF4E2M1, 1) == 1);
static_assert(BytesFor(DType::kF4E2M1, 2) == 1);
static_assert(BytesFor(DType::kF4E2M1, 3) == 2);
static_assert(BytesFor(DType::kF4E2M1, int64_t{1} << 40) == int64_t{1} << 39);
static_assert(IsFp8(DType::kF8E4M3Fn) && IsFp8(DType::kF8E5M2Fnuz));
static_assert(!IsFp8(DType::kF8E8M0) && !IsFp8(DType::kI8) &&
              !IsFp8(DType::kBF16));

template <class T>
constexpr bool kIsBits = std::is_trivially_copyable_v<T> &&
                         sizeof(T) * 8 ==
                             static_cast<size_t>(BitsOf(DTypeOf<T>::value));
static_assert(kIsBits<float> && kIsBits<F16> && kIsBits<BF16> &&
              kIsBits<F8E4M3Fn> && kIsBits<F8E5M2> && kIsBits<F8E4M3Fnuz> &&
              kIsBits<F8E5M2Fnuz> && kIsBits<F8E8M0> && kIsBits<int8_t> &&
              kIsBits<int32_t> && kIsBits<int64_t>);

TEST(DType, NamesAreDistinct) {
  std::string all = " ";
  for (int i = 0; i < kNumDTypes; ++i) {
    const std::string name = Name(static_cast<DType>(i));
    EXPECT_NE(name, "invalid");
    EXPECT_EQ(all.find(" " + name + " "), std::string::npos);
    all += name + " ";
  }
  EXPECT_STREQ(Name(static_cast<DType>(kNumDTypes)), "invalid");
}

// Conversions at compile time; every code and every rounding edge is in
// tests/core/simd_test.cc.
static_assert(ToFloat(BF16{0x3fc0}) == 1.5f);
static_assert(FromFloat<BF16>(1.5f) == BF16{0x3fc0});
static_assert(FromFloat<BF16>(0x1.01p0f).bits == 0x3f80);  // tie to even
static_assert(FromFloat<BF16>(0x1.03p0f).bits == 0x3f82);
static_assert(FromFloat<BF16>(3.4e38f).bits == 0x7f80);  // rounds to Inf
static_assert(ToFloat(F16{0x3e00}) == 1.5f);
static_assert(ToFloat(F16{0x0001}) == 0x1p-24f);
static_assert(FromFloat<F16>(65504.0f).bits == 0x7bff);
static_assert(FromFloat<F16>(65519.9f).bits == 0x7bff);
static_assert(FromFloat<F16>(65520.0f).bits == 0x7c00);
static_assert(FromFloat<F16>(0x1p-25f).bits == 0);  // tie to even
static_assert(FromFloat<F16>(0x1.8p-25f).bits == 1);

TEST(Float16, EveryCodeSurvivesARoundTrip) {
  for (uint32_t i = 0; i < 65536; ++i) {
    const F16 half{static_cast<uint16_t>(i)};
    const BF16 bfloat{static_cast<uint16_t>(i)};
    if (std::isnan(ToFloat(half))) {
      EXPECT_EQ(FromFloat<F16>(ToFloat(half)).bits, i | 0x200u);  // quiet
    } else {
      EXPECT_EQ(FromFloat<F16>(ToFloat(half)).bits, i);
    }
    if (std::isnan(ToFloat(bfloat))) {
      EXPECT_EQ(FromFloat<BF16>(ToFloat(bfloat)).bits, i | 0x40u);
    } else {
      EXPECT_EQ(FromFloat<BF16>(ToFloat(bfloat)).bits, i);
    }
  }
}

// ---- Views ------------------------------------------------------------------

static_assert(
    std::is_same_v<decltype(Matrix(static_cast<float*>(nullptr), 1, 1)),
                   MatrixView>);
static_assert(
    std::is_same_v<decltype(Matrix(static_cast<const float*>(nullptr), 1, 1)),
                   ConstMatrixView>);
static_assert(std::is_convertible_v<MatrixView, ConstMatrixView>);
static_assert(!std::is_convertible_v<ConstMatrixView, MatrixView>);
static_assert(std::is_convertible_v<VectorView, ConstVectorView>);
static_assert(!std::is_convertible_v<ConstVectorView, VectorView>);
static_assert(!MatrixView{}.has_value() && !VectorView{}.has_value());

TEST(Views, RowsOfAMatrix) {
  BF16 data[64] = {};
  const MatrixView view = Matrix(data, 4, 10, 12);
  EXPECT_EQ(view.dtype, DType::kBF16);
  EXPECT_EQ(view.total_rows(), 4);
  for (int64_t row = 0; row < 4; ++row) {
    EXPECT_EQ(view.Row<BF16>(row), data + row * 12);
  }
  EXPECT_EQ(Matrix(data, 4, 10).row_stride, 10);
  const ConstMatrixView read_only = view;
  static_assert(std::is_same_v<decltype(read_only.Row<BF16>(0)), const BF16*>);
  EXPECT_EQ(read_only.Row<BF16>(3), data + 36);
}

TEST(Views, RowsOfABatch) {
  float data[256] = {};
  const MatrixView heads = Heads(data, 5, 3, 8);
  EXPECT_EQ(heads.total_rows(), 15);
  for (int64_t row = 0; row < 15; ++row) {
    EXPECT_EQ(heads.Row<float>(row), data + row * 8);
  }
  // [heads, tokens, head_dim]: matrices side by side within a row pitch.
  const MatrixView by_head{.data = data,
                           .rows = 5,
                           .cols = 8,
                           .row_stride = 24,
                           .batch = 3,
                           .batch_stride = 8};
  for (int64_t head = 0; head < 3; ++head) {
    for (int64_t token = 0; token < 5; ++token) {
      EXPECT_EQ(by_head.Row<float>(head * 5 + token),
                data + token * 24 + head * 8);
    }
  }
}

TEST(Views, StridesOfSingletonDimensionsAreNotRead) {
  float data[64] = {};
  constexpr int64_t kGarbage = -(int64_t{1} << 60);
  const MatrixView one_row{.data = data,
                           .rows = 1,
                           .cols = 8,
                           .row_stride = kGarbage,
                           .batch = 3,
                           .batch_stride = 16};
  EXPECT_EQ(one_row.Row<float>(2), data + 32);
  const MatrixView one_matrix{.data = data,
                              .rows = 3,
                              .cols = 8,
                              .row_stride = 16,
                              .batch = 1,
                              .batch_stride = kGarbage};
  EXPECT_EQ(one_matrix.Row<float>(2), data + 32);
}

TEST(Views, OffsetsAre64Bit) {
  const MatrixView view{.data = nullptr,
                        .dtype = DType::kI8,
                        .rows = 5,
                        .cols = 1,
                        .row_stride = int64_t{1} << 40};
  EXPECT_EQ(reinterpret_cast<uintptr_t>(view.Row<int8_t>(3)),
            uintptr_t{3} << 40);
}

// ---- Typed tables -----------------------------------------------------------

using TestTable = Table<Types<float, float>, Types<BF16, F8E4M3Fn>>;

constexpr int Which(DType x, DType y) {
  int which = -1;
  Dispatch(TestTable{}, std::array{x, y}, [&]<class X, class Y>(Types<X, Y>) {
    which = std::is_same_v<X, float> ? 0 : 1;
  });
  return which;
}
static_assert(Which(DType::kF32, DType::kF32) == 0);
static_assert(Which(DType::kBF16, DType::kF8E4M3Fn) == 1);
static_assert(Which(DType::kBF16, DType::kF32) == -1);
static_assert(TestTable::kSize == 2);
static_assert(!Dispatch(Table<>{}, std::array<DType, 1>{DType::kF32},
                        [](auto) {}));

TEST(Table, ListsItsRows) {
  EXPECT_EQ(SupportedRows(TestTable{}), "f32 -> f32, bf16 -> f8e4m3fn");
  EXPECT_EQ(KeyName(std::array{DType::kBF16, DType::kI8}, "_"), "bf16_i8");
  int rows = 0;
  ForEachRow(TestTable{},
             [&]<class Row>(Row) { rows += Row::kKey.size() == 2 ? 1 : 0; });
  EXPECT_EQ(rows, 2);
}

// ---- Arithmetic and the canonical sum ---------------------------------------

static_assert(CeilDiv(0, 4) == 0 && CeilDiv(1, 4) == 1 && CeilDiv(4, 4) == 1 &&
              CeilDiv(5, 4) == 2);
static_assert(RoundUp(0, 256) == 0 && RoundUp(1, 256) == 256 &&
              RoundUp(256, 256) == 256);

static_assert(CanonicalSum(5, [](int64_t i) {
                return static_cast<float>(i);
              }) == 10.0f);
// Pairs first: (2^24 + 1) + (1 + 1) = 2^24 + 2, while a running sum would stay
// at 2^24.
static_assert(CanonicalSum(4, [](int64_t i) {
                return i == 0 ? 0x1p24f : 1.0f;
              }) == 0x1p24f + 2.0f);

}  // namespace
}  // namespace lamina
