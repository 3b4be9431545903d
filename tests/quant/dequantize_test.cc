#include "lamina/quant/dequantize.h"

#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lamina/quant/dequantize/dequantize_policy.h"
#include "lamina/quant/quantize.h"
#include "tests/quant/guarded_scales.h"
#include "tests/support/memory.h"
#include "tests/support/quantize_reference.h"
#include "tests/support/random.h"
#include "tests/support/sparse_memory.h"
#include "tests/support/targets.h"
#include "tests/support/test_device.h"

namespace lamina {
namespace {

using ::lamina::testing::ElementAsFloat;
using ::lamina::testing::FirstDifference;
using ::lamina::testing::ForEachTarget;
using ::lamina::testing::GuardedMatrix;
using ::lamina::testing::GuardedScales;
using ::lamina::testing::Random;
using ::lamina::testing::RoundToType;
using ::lamina::testing::ScaleLayout;

constexpr auto kPerTensor = ScaleGranularity::kPerTensor;
constexpr auto kPerRow = ScaleGranularity::kPerRow;
constexpr auto kPerBlock = ScaleGranularity::kPerBlock;
constexpr auto kPerTile = ScaleGranularity::kPerTile;

struct Case {
  int64_t rows = 3;
  int64_t cols = 64;
  ScaleLayout scales = {};
  int64_t codes_pitch_extra = 0, y_pitch_extra = 0;
  int64_t codes_offset = 0, y_offset = 0;
  int threads = 1;
  uint64_t seed = 1;
};

// The types that Dequantize is tested with. The tests themselves are no
// templates: fifteen copies of them take half a minute to compile.
struct TestTypes {
  DType code = DType::kF32;
  DType y = DType::kF32;
};
template <class Row>
constexpr TestTypes TypesOf() {
  return {.code = Row::kKey[0], .y = Row::kKey[1]};
}

// Every code occurs; y = round_T(code * scale) in plain C++.
void ExpectEqualsModel(TestTypes types, const Case& c) {
  SCOPED_TRACE(::testing::Message()
               << "[" << c.rows << ", " << c.cols << "] "
               << Name(c.scales.granularity) << " " << c.scales.block_cols
               << " " << Name(c.scales.dtype) << " pitch +"
               << c.codes_pitch_extra << " +" << c.y_pitch_extra << " offset "
               << c.codes_offset << " " << c.y_offset);
  GuardedMatrix codes(types.code, c.rows, c.cols, c.cols + c.codes_pitch_extra,
                      c.codes_offset);
  GuardedMatrix y(types.y, c.rows, c.cols, c.cols + c.y_pitch_extra,
                  c.y_offset);
  Random random(c.seed);
  for (int64_t r = 0; r < c.rows; ++r) {
    for (int64_t i = 0; i < c.cols; ++i) {
      codes.At<uint8_t>(r, i) = static_cast<uint8_t>(random.Integer(0, 255));
    }
  }
  GuardedScales scales(c.scales, c.rows, c.cols);
  scales.FillStatic(0.013f, 3.7f);
  const std::vector<uint8_t> before = codes.Dense<uint8_t>();
  ASSERT_EQ(Dequantize(
                {.codes = codes.view(), .scales = scales.view(), .y = y.view()},
                testing::TestStream(c.threads)),
            absl::OkStatus());
  for (int64_t r = 0; r < c.rows; ++r) {
    for (int64_t i = 0; i < c.cols; ++i) {
      const float product =
          ElementAsFloat(codes.view(), r, i) * LoadScale(scales.view(), r, i);
      const float want = RoundToType(product, types.y);
      const float got = ElementAsFloat(y.view(), r, i);
      if (std::isnan(product)) {
        ASSERT_TRUE(std::isnan(got)) << r << ", " << i;
      } else {
        ASSERT_EQ(std::bit_cast<uint32_t>(got), std::bit_cast<uint32_t>(want))
            << r << ", " << i;
      }
    }
  }
  ASSERT_TRUE(y.GuardsIntact());
  ASSERT_TRUE(codes.GuardsIntact());
  ASSERT_TRUE(scales.matrix().GuardsIntact());
  ASSERT_EQ(FirstDifference(codes.Dense<uint8_t>(), before), -1);
}

std::vector<ScaleLayout> AllLayouts() {
  std::vector<ScaleLayout> layouts;
  for (const DType dtype : {DType::kF32, DType::kF8E8M0}) {
    layouts.push_back({.granularity = kPerTensor, .dtype = dtype});
    layouts.push_back({.granularity = kPerRow, .dtype = dtype, .padding = 1});
    for (const int64_t block : {32, 64, 128}) {
      layouts.push_back({.granularity = kPerBlock,
                         .block_cols = block,
                         .dtype = dtype,
                         .transposed = block == 64,
                         .padding = 3});
    }
    layouts.push_back(
        {.granularity = kPerTile, .block_cols = 128, .dtype = dtype});
  }
  return layouts;
}

template <class Row>
class DequantizeTypes : public ::testing::Test {};
TYPED_TEST_SUITE(
    DequantizeTypes,
    typename testing::TestTypesOf<quant_internal::DequantizeTable>::type,
    testing::TypeNames);

void ExpectTheScalarRule(TestTypes types) {
  uint64_t seed = 0;
  for (const int64_t cols : {1, 7, 33, 64, 111, 129, 257, 769}) {
    for (const ScaleLayout& layout : AllLayouts()) {
      const Case c{.rows = layout.granularity == kPerTile ? 130 : 4,
                   .cols = cols,
                   .scales = layout,
                   .threads = static_cast<int>(seed % 4),
                   .seed = ++seed};
      if (layout.granularity == kPerTile && cols > 129) {
        ExpectEqualsModel(types, c);
      } else {
        ForEachTarget([&] { ExpectEqualsModel(types, c); });
      }
      ASSERT_FALSE(::testing::Test::HasFatalFailure());
    }
  }
}
TYPED_TEST(DequantizeTypes, EqualsTheScalarRule) {
  ExpectTheScalarRule(TypesOf<TypeParam>());
}

void ExpectAnyAlignmentPitchAndSize(TestTypes types) {
  uint64_t step = 0;
  for (const int64_t cols : {1, 7, 8, 64, 111, 500, 1025, 1368, 3420, 5125}) {
    for (const int64_t extra : {int64_t{0}, int64_t{1}, int64_t{8}, cols}) {
      for (const int64_t offset : {0, 1, 2, 3, 4}) {
        ++step;
        if (cols > 600 && step % 7 != 0) continue;
        ASSERT_NO_FATAL_FAILURE(ExpectEqualsModel(
            types, {.rows = 2,
                    .cols = cols,
                    .scales = {.granularity = step % 2 ? kPerRow : kPerBlock,
                               .block_cols = step % 2 ? 0 : 32},
                    .codes_pitch_extra = extra,
                    .y_pitch_extra = step % 3 == 0 ? 1 : extra,
                    .codes_offset = offset,
                    .y_offset = (offset * 2 + 1) % 5,
                    .seed = step}));
      }
    }
  }
}
TYPED_TEST(DequantizeTypes, AnyAlignmentPitchAndSize) {
  ExpectAnyAlignmentPitchAndSize(TypesOf<TypeParam>());
}

void ExpectInverseOfQuantize(TestTypes types) {
  // Values that are codes times a power-of-two scale come back unchanged.
  GuardedMatrix every(types.code, 1, 256);
  std::vector<uint8_t> finite;
  for (int64_t i = 0; i < 256; ++i) {
    every.At<uint8_t>(0, i) = static_cast<uint8_t>(i);
    if (std::isfinite(ElementAsFloat(every.view(), 0, i))) {
      finite.push_back(static_cast<uint8_t>(i));
    }
  }
  const int64_t cols = static_cast<int64_t>(finite.size());
  GuardedMatrix codes(types.code, 1, cols), back(types.code, 1, cols);
  GuardedMatrix y(types.y, 1, cols);
  codes.Fill(finite);
  float scale = 0.25f;
  ASSERT_EQ(
      Dequantize(
          {.codes = codes.view(), .scales = PerTensor(&scale), .y = y.view()},
          testing::TestStream(1)),
      absl::OkStatus());
  ASSERT_EQ(
      Quantize({.x = y.view(),
                .out = {.codes = back.view(), .scales = PerTensor(&scale)}},
               testing::TestStream(1)),
      absl::OkStatus());
  EXPECT_EQ(FirstDifference(back.Dense<uint8_t>(), finite), -1);
}
TYPED_TEST(DequantizeTypes, InvertsQuantizeOnItsOwnValues) {
  ExpectInverseOfQuantize(TypesOf<TypeParam>());
}

TEST(Dequantize, EnoughRowsThatALaneOwnsSeveralOctets) {
  for (const int64_t cols : {5128, 5131}) {
    ExpectEqualsModel({.code = DType::kF8E4M3Fn, .y = DType::kBF16},
                      {.rows = 130,
                       .cols = cols,
                       .scales = {.granularity = kPerBlock, .block_cols = 64}});
  }
}

TEST(Dequantize, RepeatedScalesAndChannelScales) {
  // Stride 0: one row of block scales for all rows.
  const std::vector<F8E4M3Fn> codes(4 * 64, F8E4M3Fn{0x38});  // 1.0
  const std::vector<float> scales = {3.0f, 5.0f};
  std::vector<float> y(4 * 64);
  ASSERT_EQ(Dequantize({.codes = Matrix(codes.data(), 4, 64),
                        .scales = {.data = scales.data(),
                                   .granularity = kPerBlock,
                                   .block_cols = 32,
                                   .row_stride = 0,
                                   .col_stride = 1},
                        .y = Matrix(y.data(), 4, 64)},
                       testing::TestStream(1)),
            absl::OkStatus());
  for (int i = 0; i < 256; ++i) EXPECT_EQ(y[i], i % 64 < 32 ? 3.0f : 5.0f);
  // Repeated along the columns instead.
  const std::vector<float> channels = {1.0f, 2.0f, 3.0f, 4.0f};
  ASSERT_EQ(Dequantize({.codes = Matrix(codes.data(), 4, 64),
                        .scales = {.data = channels.data(),
                                   .granularity = kPerBlock,
                                   .block_cols = 32,
                                   .row_stride = 1,
                                   .col_stride = 0},
                        .y = Matrix(y.data(), 4, 64)},
                       testing::TestStream(1)),
            absl::OkStatus());
  for (int i = 0; i < 256; ++i) EXPECT_EQ(y[i], static_cast<float>(1 + i / 64));
  // Both strides beyond one, with one of them 0.
  ASSERT_EQ(Dequantize({.codes = Matrix(codes.data(), 4, 64),
                        .scales = {.data = channels.data(),
                                   .granularity = kPerBlock,
                                   .block_cols = 32,
                                   .row_stride = 0,
                                   .col_stride = 3},
                        .y = Matrix(y.data(), 4, 64)},
                       testing::TestStream(1)),
            absl::OkStatus());
  for (int i = 0; i < 256; ++i) EXPECT_EQ(y[i], i % 64 < 32 ? 1.0f : 4.0f);
}

TEST(Dequantize, BatchedViews) {
  std::vector<int8_t> codes(2 * 1000);
  for (size_t i = 0; i < codes.size(); ++i) {
    codes[i] = static_cast<int8_t>(i * 7 % 251);
  }
  ConstMatrixView view = Matrix(std::as_const(codes).data(), 3, 50, 60);
  view.batch = 2;
  view.batch_stride = 1000;
  const std::vector<float> scales = {1, 2, 3, 4, 5, 6};
  std::vector<BF16> y(6 * 50);
  MatrixView out = Matrix(y.data(), 3, 50, 100);  // heads interleaved
  out.batch = 2;
  out.batch_stride = 50;
  ASSERT_EQ(
      Dequantize({.codes = view, .scales = PerRow(scales.data()), .y = out},
                 testing::TestStream(2)),
      absl::OkStatus());
  for (int64_t b = 0; b < 2; ++b) {
    for (int64_t r = 0; r < 3; ++r) {
      for (int64_t c = 0; c < 50; ++c) {
        const float want = static_cast<float>(codes[b * 1000 + r * 60 + c]) *
                           static_cast<float>(b * 3 + r + 1);
        ASSERT_EQ(y[b * 50 + r * 100 + c], FromFloat<BF16>(want));
      }
    }
  }
}

TEST(Dequantize, ProductsTooLargeForTheTypeBecomeInfinite) {
  const std::vector<F8E4M3Fn> codes = {{0x7e}, {0xfe}, {0x7f}, {0x00}};
  const float scale = 1000.0f;
  std::vector<F16> y(4);
  ASSERT_EQ(Dequantize({.codes = Matrix(codes.data(), 1, 4),
                        .scales = PerTensor(&scale),
                        .y = Matrix(y.data(), 1, 4)},
                       testing::TestStream(1)),
            absl::OkStatus());
  EXPECT_EQ(y[0].bits, 0x7c00);
  EXPECT_EQ(y[1].bits, 0xfc00);
  EXPECT_TRUE(std::isnan(ToFloat(y[2])));
  EXPECT_EQ(y[3].bits, 0);
}

TEST(Dequantize, OffsetsBeyondTwoToTheThirtyTwoElements) {
  constexpr int64_t kPitch = (int64_t{1} << 31) + 8;
  const testing::SparseMemory memory(3 * (2 * kPitch + 64));  // codes, then y
  if (!memory.ok()) GTEST_SKIP() << "no address space";
  int8_t* codes = memory.as<int8_t>();
  BF16* y = reinterpret_cast<BF16*>(codes + 2 * kPitch + 64);
  for (int64_t r = 0; r < 3; ++r) {
    for (int64_t c = 0; c < 64; ++c) {
      codes[r * kPitch + c] = static_cast<int8_t>(r * 40 + c - 60);
    }
  }
  const float scale = 0.5f;
  ASSERT_EQ(Dequantize({.codes = Matrix(std::as_const(codes), 3, 64, kPitch),
                        .scales = PerTensor(&scale),
                        .y = Matrix(y, 3, 64, kPitch)},
                       testing::TestStream(2)),
            absl::OkStatus());
  for (int64_t r = 0; r < 3; ++r) {
    for (int64_t c = 0; c < 64; ++c) {
      ASSERT_EQ(y[r * kPitch + c],
                FromFloat<BF16>(0.5f * static_cast<float>(r * 40 + c - 60)));
    }
  }
}

TEST(Dequantize, ThreadsAndRowCountsGiveTheSameBits) {
  Random random(3);
  std::vector<F8E5M2> codes(300 * 201);
  for (F8E5M2& code : codes) {
    code.bits = static_cast<uint8_t>(random.Integer(0, 255));
  }
  std::vector<float> scales(300);
  for (float& scale : scales) scale = std::exp2(random.Normal());
  std::vector<F16> first(codes.size());
  for (const int threads : {1, 2, 3, 7, 7}) {
    std::vector<F16> y(codes.size());
    ASSERT_TRUE(
        Dequantize({.codes = Matrix(std::as_const(codes).data(), 300, 201),
                    .scales = PerRow(std::as_const(scales).data()),
                    .y = Matrix(y.data(), 300, 201)},
                   testing::TestStream(threads))
            .ok());
    if (threads == 1) first = y;
    ASSERT_EQ(FirstDifference(y, first), -1);
  }
  for (int64_t r = 0; r < 300; r += 41) {
    std::vector<F16> y(201);
    ASSERT_TRUE(Dequantize({.codes = Matrix(
                                std::as_const(codes).data() + r * 201, 1, 201),
                            .scales = PerRow(std::as_const(scales).data() + r),
                            .y = Matrix(y.data(), 1, 201)},
                           testing::TestStream(1))
                    .ok());
    ASSERT_EQ(std::memcmp(y.data(), &first[r * 201], 201 * sizeof(F16)), 0);
  }
}

TEST(Dequantize, TwoHostThreadsAtOnce) {
  const auto work = [](uint64_t seed) {
    for (int i = 0; i < 20; ++i) {
      ExpectEqualsModel(TypesOf<Types<F8E4M3Fnuz, BF16>>(),
                        {.rows = 100,
                         .cols = 333,
                         .scales = {.granularity = kPerRow},
                         .threads = 2,
                         .seed = seed++});
    }
  };
  std::thread a(work, 100), b(work, 200);
  a.join();
  b.join();
}

TEST(Dequantize, TheExampleOfTheHeader) {
  constexpr int64_t rows = 2, cols = 3;
  std::vector<F8E4M3Fn> codes(rows * cols, F8E4M3Fn{0x38});
  std::vector<float> scales = {2.0f, 3.0f};
  std::vector<float> y(rows * cols);
  absl::Status status = Dequantize({.codes = Matrix(codes.data(), rows, cols),
                                    .scales = PerRow(scales.data()),
                                    .y = Matrix(y.data(), rows, cols)},
                                   testing::TestStream(2));
  EXPECT_EQ(status, absl::OkStatus());
  EXPECT_THAT(y, ::testing::ElementsAre(2, 2, 2, 3, 3, 3));
}

TEST(Dequantize, EmptyMatrices) {
  EXPECT_EQ(Dequantize({.codes = Matrix<const int8_t>(nullptr, 0, 5),
                        .scales = PerTensor<const float>(nullptr),
                        .y = Matrix<float>(nullptr, 0, 5)},
                       testing::TestStream(1)),
            absl::OkStatus());
  EXPECT_EQ(Dequantize({.codes = Matrix<const int8_t>(nullptr, 5, 0),
                        .scales = PerTensor<const float>(nullptr),
                        .y = Matrix<float>(nullptr, 5, 0)},
                       testing::TestStream(1)),
            absl::OkStatus());
}

TEST(Dequantize, ErrorsNameTheArgumentTheGivenAndTheWanted) {
  std::vector<int8_t> codes(64);
  std::vector<float> scales(4), y(64);
  const DequantizeArgs good{.codes = Matrix(std::as_const(codes).data(), 4, 16),
                            .scales = PerRow(std::as_const(scales).data()),
                            .y = Matrix(y.data(), 4, 16)};
  const auto expect = [](const DequantizeArgs& args, absl::StatusCode code,
                         const std::string& message) {
    const absl::Status status = Dequantize(args, testing::TestStream(1));
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_EQ(std::string(status.message()), message);
  };
  constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
  ASSERT_EQ(Dequantize(good, testing::TestStream(1)), absl::OkStatus());
  DequantizeArgs args = good;
  args.codes.data = nullptr;
  expect(args, kInvalid, "Dequantize: codes.data: given null, want a pointer");
  args = good;
  args.y.rows = 3;
  expect(args, kInvalid, "Dequantize: y.rows: given 3, want 4");
  args = good;
  args.scales.data = nullptr;
  expect(args, kInvalid, "Dequantize: scales.data: given null, want a pointer");
  args = good;
  args.scales.dtype = DType::kF16;
  expect(args, kInvalid,
         "Dequantize: scales.dtype: given f16, want f32 or f8e8m0");
  args = good;
  args.scales.granularity = kPerBlock;
  args.scales.block_cols = 48;
  expect(args, kInvalid,
         "Dequantize: scales.block_cols: given 48, want 32, 64 or 128");
  args = good;
  args.y.dtype = DType::kI32;
  expect(args, absl::StatusCode::kUnimplemented,
         "Dequantize: codes -> y: given i8 -> i32; supported: " +
             SupportedRows(quant_internal::DequantizeTable{}));
  args = good;
  args.y.data = codes.data();
  args.y.dtype = DType::kF32;
  args.codes.row_stride = 16;
  args.y.rows = args.codes.rows = 1;
  expect(args, kInvalid,
         "Dequantize: y: given memory that overlaps codes, want other memory");
  args = good;
  args.scales.data = y.data() + 2;
  expect(args, kInvalid,
         "Dequantize: y: given memory that overlaps scales, want other memory");
  const absl::Status gpu =
      Dequantize(good, Stream::Gpu({.backend = Backend::kHip}, nullptr));
  EXPECT_EQ(gpu.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(gpu.message()),
              ::testing::HasSubstr("Dequantize: stream"));
}

}  // namespace
}  // namespace lamina
