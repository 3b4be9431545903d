#include "lamina/quant/convert_fp8_dialect.h"

#include <array>
#include <bit>
#include <cmath>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lamina/quant/convert_fp8_dialect/convert_fp8_dialect_policy.h"
#include "lamina/quant/dequantize.h"
#include "lamina/quant/quantize.h"
#include "tests/quant/fp8_golden.h"
#include "tests/quant/guarded_scales.h"
#include "tests/support/memory.h"
#include "tests/support/random.h"
#include "tests/support/targets.h"
#include "tests/support/test_device.h"

namespace lamina {
namespace {

using ::lamina::testing::FirstDifference;
using ::lamina::testing::ForEachTarget;
using ::lamina::testing::Fp8Golden;
using ::lamina::testing::GuardedMatrix;
using ::lamina::testing::GuardedScales;
using ::lamina::testing::Random;
using ::lamina::testing::ScaleLayout;

constexpr auto kPerTensor = ScaleGranularity::kPerTensor;
constexpr auto kPerRow = ScaleGranularity::kPerRow;
constexpr auto kPerBlock = ScaleGranularity::kPerBlock;
constexpr auto kPerTile = ScaleGranularity::kPerTile;

template <class From, class To>
constexpr int Converted(int code) {
  return ConvertFp8Code(static_cast<uint8_t>(code), Fp8FormatOf<From>::value,
                        Fp8FormatOf<To>::value);
}

// The table of the header, at compile time.
static_assert(Converted<F8E4M3Fn, F8E4M3Fnuz>(0x7e) == 0x7e);
static_assert(Converted<F8E4M3Fn, F8E4M3Fnuz>(0x7f) == 0x80);
static_assert(Converted<F8E4M3Fn, F8E4M3Fnuz>(0xff) == 0x80);
static_assert(Converted<F8E4M3Fn, F8E4M3Fnuz>(0x80) == 0x00);
static_assert(Converted<F8E5M2, F8E5M2Fnuz>(0x7b) == 0x7b);
static_assert(Converted<F8E5M2, F8E5M2Fnuz>(0x7c) == 0x80);
static_assert(Converted<F8E5M2, F8E5M2Fnuz>(0xfc) == 0x80);
static_assert(Converted<F8E5M2, F8E5M2Fnuz>(0xff) == 0x80);
static_assert(Converted<F8E4M3Fnuz, F8E4M3Fn>(0x7f) == 0x7e);
static_assert(Converted<F8E4M3Fnuz, F8E4M3Fn>(0xff) == 0xfe);
static_assert(Converted<F8E4M3Fnuz, F8E4M3Fn>(0x80) == 0x7f);
static_assert(Converted<F8E5M2Fnuz, F8E5M2>(0x7c) == 0x7b);
static_assert(Converted<F8E5M2Fnuz, F8E5M2>(0xff) == 0xfb);
static_assert(Converted<F8E5M2Fnuz, F8E5M2>(0x80) == 0x7e);

template <class Row>
struct Pair;
template <class F, class T>
struct Pair<Types<F, T>> {
  using From = F;
  using To = T;
};

template <class T>
double Golden(int code) {
  return std::bit_cast<float>(Fp8Golden<T>::kDecoded[code]);
}

template <class T>
std::vector<T> AllCodes() {
  std::vector<T> codes(256);
  for (int i = 0; i < 256; ++i) codes[i].bits = static_cast<uint8_t>(i);
  return codes;
}

template <class Row>
class ConvertTypes : public ::testing::Test {};
TYPED_TEST_SUITE(
    ConvertTypes,
    typename testing::TestTypesOf<quant_internal::ConvertFp8DialectTable>::type,
    testing::TypeNames);

TYPED_TEST(ConvertTypes, CodeTimesScaleIsPreservedForAll256Codes) {
  using From = typename Pair<TypeParam>::From;
  using To = typename Pair<TypeParam>::To;
  const std::vector<From> codes = AllCodes<From>();
  ForEachTarget([&] {
    std::vector<To> out(256);
    const float scale = 3.0f;
    float out_scale = 0;
    ASSERT_EQ(ConvertFp8Dialect({.codes = Matrix(codes.data(), 1, 256),
                                 .scales = PerTensor(&scale),
                                 .out_codes = Matrix(out.data(), 1, 256),
                                 .out_scales = PerTensor(&out_scale)},
                                testing::TestStream(1)),
              absl::OkStatus());
    constexpr bool kSame = std::is_same_v<From, To>;
    constexpr bool kToFnuz = Fp8FormatOf<To>::value.fnuz;
    ASSERT_EQ(out_scale, kSame ? 3.0f : kToFnuz ? 6.0f : 1.5f);
    const double limit = Golden<To>(Fp8FormatOf<To>::value.max_code);
    int exact = 0;
    for (int i = 0; i < 256; ++i) {
      const double real = Golden<From>(i) * scale;
      const double got = Golden<To>(out[i].bits) * out_scale;
      if (kSame) {
        ASSERT_EQ(out[i].bits, i);
      } else if (std::isnan(real) || std::isinf(real)) {
        ASSERT_TRUE(std::isnan(got)) << i;
      } else if (std::fabs(real) > limit * out_scale) {
        ASSERT_EQ(got, std::copysign(limit * out_scale, real)) << i;
      } else {
        ASSERT_EQ(got, real) << i;
        ++exact;
      }
      ASSERT_EQ(out[i].bits, (Converted<From, To>(i)));
    }
    // All but NaN, Inf and what lies beyond the fn maximum.
    if (!kSame) {
      const bool e4m3 = Fp8FormatOf<From>::value.mantissa_bits == 3;
      ASSERT_EQ(exact, kToFnuz ? (e4m3 ? 254 : 248) : (e4m3 ? 253 : 247));
    }
  });
}

TYPED_TEST(ConvertTypes, AnySizeAlignmentAndPitchInAndOutOfPlace) {
  using From = typename Pair<TypeParam>::From;
  using To = typename Pair<TypeParam>::To;
  Random random(1);
  uint64_t step = 0;
  for (const int64_t cols : {1, 7, 8, 15, 16, 31, 33, 64, 111, 500, 1025}) {
    for (const int64_t extra : {int64_t{0}, int64_t{1}, int64_t{8}, cols}) {
      const int64_t offset = static_cast<int64_t>(step % 5);
      GuardedMatrix codes(DTypeOf<From>::value, 5, cols, cols + extra, offset);
      for (int64_t r = 0; r < 5; ++r) {
        for (int64_t c = 0; c < cols; ++c) {
          codes.At<uint8_t>(r, c) =
              static_cast<uint8_t>(random.Integer(0, 255));
        }
      }
      std::vector<uint8_t> want = codes.Dense<uint8_t>();
      const std::vector<uint8_t> before = want;
      for (uint8_t& code : want) {
        code = static_cast<uint8_t>(Converted<From, To>(code));
      }
      const int threads = static_cast<int>(step++ % 4);
      ForEachTarget([&] {
        GuardedMatrix out(DTypeOf<To>::value, 5, cols, 2 * cols, offset / 2);
        ASSERT_EQ(ConvertFp8Dialect({.codes = codes.view(),
                                     .scales = {},
                                     .out_codes = out.view(),
                                     .out_scales = {}},
                                    testing::TestStream(threads)),
                  absl::OkStatus());
        ASSERT_EQ(out.Dense<uint8_t>(), want);
        ASSERT_TRUE(out.GuardsIntact());
        ASSERT_EQ(codes.Dense<uint8_t>(), before);
        ASSERT_TRUE(codes.GuardsIntact());
      });
      MatrixView in_place = codes.view();
      in_place.dtype = DTypeOf<To>::value;
      ASSERT_EQ(ConvertFp8Dialect({.codes = codes.view(),
                                   .scales = {},
                                   .out_codes = in_place,
                                   .out_scales = {}},
                                  testing::TestStream(threads)),
                absl::OkStatus());
      ASSERT_EQ(codes.Dense<uint8_t>(), want);
      ASSERT_TRUE(codes.GuardsIntact());
    }
  }
}

TYPED_TEST(ConvertTypes, ScalesOfEveryGranularityAndLayout) {
  using From = typename Pair<TypeParam>::From;
  using To = typename Pair<TypeParam>::To;
  const float factor =
      Fp8DialectScaleFactor(Fp8FormatOf<From>::value, Fp8FormatOf<To>::value);
  constexpr int64_t kRows = 140, kCols = 200;
  const std::vector<From> codes(kRows * kCols, From{0x31});
  std::vector<To> out(codes.size());
  for (const DType dtype : {DType::kF32, DType::kF8E8M0}) {
    for (const ScaleGranularity granularity :
         {kPerTensor, kPerRow, kPerBlock, kPerTile}) {
      for (const bool transposed : {false, true}) {
        ScaleLayout layout{.granularity = granularity,
                           .block_cols = granularity >= kPerBlock ? 128 : 0,
                           .dtype = dtype,
                           .transposed = transposed,
                           .padding = 2};
        GuardedScales scales(layout, kRows, kCols);
        layout.padding = 5;  // other strides out of place
        GuardedScales out_scales(layout, kRows, kCols);
        scales.FillStatic(0.3f, 1.7f);
        std::vector<float> want = scales.Values();
        for (float& scale : want) scale *= factor;
        ASSERT_EQ(
            ConvertFp8Dialect({.codes = Matrix(codes.data(), kRows, kCols),
                               .scales = scales.view(),
                               .out_codes = Matrix(out.data(), kRows, kCols),
                               .out_scales = out_scales.view()},
                              testing::TestStream(2)),
            absl::OkStatus());
        ASSERT_EQ(out_scales.Values(), want);
        ASSERT_TRUE(out_scales.matrix().GuardsIntact());
        // In place.
        ASSERT_EQ(
            ConvertFp8Dialect({.codes = Matrix(codes.data(), kRows, kCols),
                               .scales = scales.view(),
                               .out_codes = Matrix(out.data(), kRows, kCols),
                               .out_scales = scales.view()},
                              testing::TestStream(2)),
            absl::OkStatus());
        ASSERT_EQ(scales.Values(), want);
        ASSERT_TRUE(scales.matrix().GuardsIntact());
      }
    }
  }
}

TEST(ConvertFp8Dialect, ConvertingToTheTypeThatItHasChangesNothing) {
  // A weight sync that normalises "to fnuz" again and again: the scale must
  // not double each time.
  std::vector<uint8_t> bytes = {0x00, 0x38, 0x80, 0x7f, 0xff, 0x7e};
  float scale = 1.5f;
  MatrixView fn = Matrix(reinterpret_cast<F8E4M3Fn*>(bytes.data()), 1, 6);
  MatrixView fnuz = fn;
  fnuz.dtype = DType::kF8E4M3Fnuz;
  const auto convert = [&](const MatrixView& from) {
    return ConvertFp8Dialect({.codes = from,
                              .scales = PerTensor(&scale),
                              .out_codes = fnuz,
                              .out_scales = PerTensor(&scale)},
                             testing::TestStream(1));
  };
  ASSERT_EQ(convert(fn), absl::OkStatus());
  const std::vector<uint8_t> converted = {0x00, 0x38, 0x00, 0x80, 0x80, 0x7e};
  EXPECT_EQ(bytes, converted);
  EXPECT_EQ(scale, 3.0f);
  for (int i = 0; i < 2; ++i) {
    ASSERT_EQ(convert(fnuz), absl::OkStatus());
    EXPECT_EQ(bytes, converted);
    EXPECT_EQ(scale, 3.0f);
  }
}

TEST(ConvertFp8Dialect, ThereAndBackChangesOnlyWhatTheHeaderSays) {
  for (int i = 0; i < 256; ++i) {
    const int e4m3 =
        Converted<F8E4M3Fnuz, F8E4M3Fn>(Converted<F8E4M3Fn, F8E4M3Fnuz>(i));
    const int e5m2 =
        Converted<F8E5M2Fnuz, F8E5M2>(Converted<F8E5M2, F8E5M2Fnuz>(i));
    const bool e4m3_nan = (i & 0x7f) == 0x7f;
    const bool e5m2_special = (i & 0x7f) >= 0x7c;
    EXPECT_EQ(e4m3, i == 0x80 ? 0 : e4m3_nan ? 0x7f : i);
    EXPECT_EQ(e5m2, i == 0x80 ? 0 : e5m2_special ? 0x7e : i);
  }
}

TEST(ConvertFp8Dialect, ConvertedWeightsDequantizeToTheSameBits) {
  Random random(4);
  const std::vector<BF16> w = testing::NormalVector<BF16>(random, 64 * 256);
  std::vector<F8E4M3Fn> fn(w.size());
  std::vector<F8E4M3Fnuz> fnuz(w.size());
  std::vector<float> scales(64), fnuz_scales(64);
  std::vector<float> from_fn(w.size()), from_fnuz(w.size());
  ASSERT_TRUE(Quantize({.x = Matrix(w.data(), 64, 256),
                        .out = {.codes = Matrix(fn.data(), 64, 256),
                                .scales = PerRow(scales.data()),
                                .dynamic = true}},
                       testing::TestStream(1))
                  .ok());
  ASSERT_TRUE(
      ConvertFp8Dialect({.codes = Matrix(std::as_const(fn).data(), 64, 256),
                         .scales = PerRow(std::as_const(scales).data()),
                         .out_codes = Matrix(fnuz.data(), 64, 256),
                         .out_scales = PerRow(fnuz_scales.data())},
                        testing::TestStream(1))
          .ok());
  ASSERT_TRUE(Dequantize({.codes = Matrix(std::as_const(fn).data(), 64, 256),
                          .scales = PerRow(std::as_const(scales).data()),
                          .y = Matrix(from_fn.data(), 64, 256)},
                         testing::TestStream(1))
                  .ok());
  ASSERT_TRUE(Dequantize({.codes = Matrix(std::as_const(fnuz).data(), 64, 256),
                          .scales = PerRow(std::as_const(fnuz_scales).data()),
                          .y = Matrix(from_fnuz.data(), 64, 256)},
                         testing::TestStream(1))
                  .ok());
  for (size_t i = 0; i < w.size(); ++i) ASSERT_EQ(from_fn[i], from_fnuz[i]);
}

TEST(ConvertFp8Dialect, BatchedViewsAndManyRowsOverThreads) {
  std::vector<F8E4M3Fn> codes(20 * 2000, F8E4M3Fn{0x80});
  std::vector<F8E4M3Fnuz> out(codes.size(), F8E4M3Fnuz{0x55});
  ConstMatrixView in = Matrix(std::as_const(codes).data(), 300, 50, 60);
  in.batch = 2;
  in.batch_stride = 20000;
  MatrixView to = Matrix(out.data(), 300, 50, 60);
  to.batch = 2;
  to.batch_stride = 20000;
  for (const int threads : {1, 2, 3, 7}) {
    std::fill(out.begin(), out.end(), F8E4M3Fnuz{0x55});
    ASSERT_EQ(
        ConvertFp8Dialect(
            {.codes = in, .scales = {}, .out_codes = to, .out_scales = {}},
            testing::TestStream(threads)),
        absl::OkStatus());
    for (int64_t i = 0; i < 40000; ++i) {
      const int64_t local = i % 20000;
      const bool inside = local < 300 * 60 && local % 60 < 50;
      ASSERT_EQ(out[i].bits, inside ? 0x00 : 0x55) << i;
    }
  }
}

TEST(ConvertFp8Dialect, TheExampleOfTheHeader) {
  constexpr int64_t rows = 2, cols = 3;
  std::vector<F8E4M3Fn> fn(rows * cols, F8E4M3Fn{0x38});
  std::vector<F8E4M3Fnuz> fnuz(rows * cols);
  float scale = 1.0f, fnuz_scale = 0.0f;
  absl::Status status =
      ConvertFp8Dialect({.codes = Matrix(fn.data(), rows, cols),
                         .scales = PerTensor(&scale),
                         .out_codes = Matrix(fnuz.data(), rows, cols),
                         .out_scales = PerTensor(&fnuz_scale)},
                        testing::TestStream(2));
  EXPECT_EQ(status, absl::OkStatus());
  EXPECT_EQ(fnuz_scale, 2.0f);
}

TEST(ConvertFp8Dialect, EmptyMatrices) {
  EXPECT_EQ(ConvertFp8Dialect({.codes = Matrix<const F8E5M2>(nullptr, 0, 8),
                               .scales = {},
                               .out_codes = Matrix<F8E5M2Fnuz>(nullptr, 0, 8),
                               .out_scales = {}},
                              testing::TestStream(1)),
            absl::OkStatus());
}

TEST(ConvertFp8Dialect, ErrorsNameTheArgumentTheGivenAndTheWanted) {
  std::vector<F8E4M3Fn> codes(64);
  std::vector<F8E4M3Fnuz> out(64);
  std::vector<float> scales(16), out_scales(8);
  const ConvertFp8DialectArgs good{
      .codes = Matrix(std::as_const(codes).data(), 4, 16),
      .scales = PerRow(std::as_const(scales).data()),
      .out_codes = Matrix(out.data(), 4, 16),
      .out_scales = PerRow(out_scales.data())};
  const auto expect = [](const ConvertFp8DialectArgs& args,
                         absl::StatusCode code, const std::string& message) {
    const absl::Status status = ConvertFp8Dialect(args, testing::TestStream(1));
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_EQ(std::string(status.message()), message);
  };
  constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
  ASSERT_EQ(ConvertFp8Dialect(good, testing::TestStream(1)), absl::OkStatus());
  ConvertFp8DialectArgs args = good;
  args.codes.data = nullptr;
  expect(args, kInvalid,
         "ConvertFp8Dialect: codes.data: given null, want a pointer");
  args = good;
  args.out_codes.cols = 15;
  expect(args, kInvalid,
         "ConvertFp8Dialect: out_codes.cols: given 15, want 16");
  args = good;
  args.out_codes.dtype = DType::kF8E5M2;
  expect(args, absl::StatusCode::kUnimplemented,
         "ConvertFp8Dialect: codes -> out_codes: given f8e4m3fn -> f8e5m2; "
         "supported: " +
             SupportedRows(quant_internal::ConvertFp8DialectTable{}));
  args = good;
  args.out_scales.data = nullptr;
  expect(args, kInvalid,
         "ConvertFp8Dialect: out_scales.data: given null, want a pointer "
         "(scales is given)");
  args = good;
  args.scales.data = nullptr;
  expect(args, kInvalid,
         "ConvertFp8Dialect: out_scales.data: given a pointer, want null "
         "(scales is not given)");
  args = good;
  args.out_scales.dtype = DType::kF8E8M0;
  expect(args, kInvalid,
         "ConvertFp8Dialect: out_scales.dtype: given f8e8m0, want f32");
  args = good;
  args.out_scales.granularity = kPerTensor;
  expect(args, kInvalid,
         "ConvertFp8Dialect: out_scales.granularity: given per_tensor, want "
         "per_row (scales.granularity)");
  args = good;
  args.scales = PerBlock(std::as_const(scales).data(), 16, 32);
  args.out_scales = PerBlock(out_scales.data(), 16, 64);
  expect(args, kInvalid,
         "ConvertFp8Dialect: out_scales.block_cols: given 64, want 32 "
         "(scales.block_cols)");
  args = good;
  args.out_scales = PerRow(scales.data() + 1);
  expect(args, kInvalid,
         "ConvertFp8Dialect: out_scales: given memory that overlaps scales, "
         "want the very view of scales (in place) or other memory");
  args = good;
  args.out_codes.data = codes.data() + 1;
  expect(args, kInvalid,
         "ConvertFp8Dialect: out_codes: given memory that overlaps codes, want "
         "the very view of codes (in place) or other memory");
  args = good;
  args.out_scales.data = out.data();
  expect(args, kInvalid,
         "ConvertFp8Dialect: out_scales: given memory that overlaps out_codes, "
         "want other memory");
  args = good;
  args.out_codes.data = scales.data();
  expect(args, kInvalid,
         "ConvertFp8Dialect: out_codes: given memory that overlaps scales, "
         "want other memory");
}

}  // namespace
}  // namespace lamina
