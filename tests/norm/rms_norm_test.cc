// RmsNorm: worked examples, equality of fused and unfused quantisation, errors.
// What all norms share is in norm_test.cc.

#include "lamina/norm/rms_norm.h"

#include <limits>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "lamina/core/float16.h"
#include "lamina/norm/rms_norm/rms_norm_policy.h"
#include "lamina/quant/quantize.h"
#include "tests/support/memory.h"
#include "tests/support/missing_backend.h"
#include "tests/support/random.h"
#include "tests/support/targets.h"
#include "tests/support/test_device.h"

namespace lamina {
namespace {

using testing::FirstDifference;

const Stream kStream = testing::TestStream(1);

TEST(RmsNorm, WorkedExample) {
  // All numbers are exact in fp32: the squares of the first row sum to 169.
  const std::vector<float> x = {3, -4, 0, 12, 1, 1, 1, 1};
  const std::vector<float> weight = {1, 2, 3, -1};
  std::vector<float> y(8);
  ASSERT_TRUE(RmsNorm({.x = Matrix(x.data(), 2, 4),
                       .weight = Vector(weight.data(), 4),
                       .epsilon = 21.75f,  // 169 / 4 + 21.75 = 64
                       .y = Matrix(y.data(), 2, 4)},
                      kStream)
                  .ok());
  EXPECT_EQ(y[0], 0.375f);
  EXPECT_EQ(y[1], -1.0f);
  EXPECT_EQ(y[2], 0.0f);
  EXPECT_EQ(y[3], -1.5f);

  // Gemma: 1 + w; the second row is its own rms with epsilon = 0.
  ASSERT_TRUE(RmsNorm({.x = Matrix(x.data(), 2, 4),
                       .weight = Vector(weight.data(), 4),
                       .weight_plus_one = true,
                       .epsilon = 0,
                       .y = Matrix(y.data(), 2, 4)},
                      kStream)
                  .ok());
  EXPECT_EQ(std::vector<float>(y.begin() + 4, y.end()),
            (std::vector<float>{2, 3, 4, 0}));
}

TEST(RmsNorm, TheWeightTypeDecidesOnlyHowTheWeightIsStored) {
  testing::Random random(1);
  constexpr int64_t kRows = 3, kCols = 500;
  const auto x = testing::NormalVector<BF16>(random, kRows * kCols);
  const auto weight = testing::NormalVector<BF16>(random, kCols);
  std::vector<float> weight_f32;
  for (const BF16 w : weight) weight_f32.push_back(ToFloat(w));
  std::vector<BF16> y(kRows * kCols), y_f32(kRows * kCols);
  ASSERT_TRUE(RmsNorm({.x = Matrix(x.data(), kRows, kCols),
                       .weight = Vector(weight.data(), kCols),
                       .y = Matrix(y.data(), kRows, kCols)},
                      kStream)
                  .ok());
  ASSERT_TRUE(RmsNorm({.x = Matrix(x.data(), kRows, kCols),
                       .weight = Vector(weight_f32.data(), kCols),
                       .y = Matrix(y_f32.data(), kRows, kCols)},
                      kStream)
                  .ok());
  EXPECT_EQ(FirstDifference(y, y_f32), -1);
}

template <class Row>
class RmsNormThenQuantize : public ::testing::Test {};
TYPED_TEST_SUITE(RmsNormThenQuantize, testing::TestTypesOf<CodeTable>::type,
                 testing::TypeNames);

template <class Row>
struct CodeOf;
template <class Code>
struct CodeOf<Types<Code>> {
  using type = Code;
};

TYPED_TEST(RmsNormThenQuantize, EqualsTheFusedOne) {
  using Code = typename CodeOf<TypeParam>::type;
  constexpr int64_t kRows = 5, kCols = 1000;
  testing::Random random(2);
  const auto x = testing::NormalVector<BF16>(random, kRows * kCols);
  const auto weight = testing::NormalVector<BF16>(random, kCols);
  const auto x_view = Matrix(x.data(), kRows, kCols);
  const auto weight_view = Vector(weight.data(), kCols);
  std::vector<BF16> y(kRows * kCols);
  for (const int64_t block : {0, 32, 64, 128}) {
    std::vector<Code> codes(kRows * kCols), unfused_codes(kRows * kCols);
    std::vector<float> scales(kRows * 32), unfused_scales(kRows * 32);
    const auto output = [&](std::vector<Code>& c, std::vector<float>& s) {
      return QuantizedOutput{.codes = Matrix(c.data(), kRows, kCols),
                             .scales = block == 0
                                           ? PerRow(s.data())
                                           : PerBlock(s.data(), kCols, block),
                             .dynamic = true,
                             .round_before_quant = true};
    };
    ASSERT_TRUE(RmsNorm({.x = x_view,
                         .weight = weight_view,
                         .quantized = output(codes, scales)},
                        kStream)
                    .ok());
    ASSERT_TRUE(RmsNorm({.x = x_view,
                         .weight = weight_view,
                         .y = Matrix(y.data(), kRows, kCols)},
                        kStream)
                    .ok());
    ASSERT_TRUE(Quantize({.x = Matrix(y.data(), kRows, kCols),
                          .out = output(unfused_codes, unfused_scales)},
                         kStream)
                    .ok());
    EXPECT_EQ(FirstDifference(codes, unfused_codes), -1) << "block " << block;
    EXPECT_EQ(scales, unfused_scales) << "block " << block;
  }
}

TEST(RmsNorm, ZeroRowsNeedNoPointers) {
  EXPECT_TRUE(RmsNorm({.x = {.cols = 64}, .y = {.cols = 64}}, kStream).ok());
  EXPECT_TRUE(
      RmsNorm({.x = {.rows = 8, .cols = 64, .batch = 0}}, kStream).ok());
}

// One argument of a good call is spoilt at a time.
class RmsNormErrors : public ::testing::Test {
 protected:
  RmsNormErrors()
      : args_{.x = Matrix(x_.data(), 4, 64),
              .weight = Vector(weight_.data(), 64),
              .y = Matrix(y_.data(), 4, 64),
              .quantized = {.codes = Matrix(codes_.data(), 4, 64),
                            .scales = PerRow(scales_.data()),
                            .dynamic = true}} {}
  void ExpectInvalid(const std::string& message) const {
    Expect(absl::StatusCode::kInvalidArgument, message);
  }
  void Expect(absl::StatusCode code, const std::string& message) const {
    const absl::Status status = RmsNorm(args_, kStream);
    EXPECT_EQ(status.code(), code);
    EXPECT_EQ(status.message(), message);
  }

  std::vector<float> x_ = std::vector<float>(1024);
  std::vector<float> weight_ = std::vector<float>(256);
  std::vector<float> y_ = std::vector<float>(1024);
  std::vector<F8E4M3Fn> codes_ = std::vector<F8E4M3Fn>(1024);
  std::vector<float> scales_ = std::vector<float>(64);
  RmsNormArgs args_;
};

TEST_F(RmsNormErrors, NoneToStartWith) {
  EXPECT_TRUE(RmsNorm(args_, kStream).ok());
}
TEST_F(RmsNormErrors, NullX) {
  args_.x.data = nullptr;
  ExpectInvalid("RmsNorm: x.data: given null, want a pointer");
}
TEST_F(RmsNormErrors, NoColumns) {
  args_.x.cols = 0;
  ExpectInvalid("RmsNorm: x.cols: given 0, want >= 1");
}
TEST_F(RmsNormErrors, NegativeRows) {
  args_.x.rows = -1;
  ExpectInvalid("RmsNorm: x.rows: given -1, want >= 0");
}
TEST_F(RmsNormErrors, RowStride) {
  args_.x.row_stride = 63;
  ExpectInvalid("RmsNorm: x.row_stride: given 63, want >= 64 (cols)");
}
TEST_F(RmsNormErrors, Epsilon) {
  args_.epsilon = -1e-5f;
  ExpectInvalid("RmsNorm: epsilon: given -1e-05, want a finite number >= 0");
  args_.epsilon = std::numeric_limits<float>::quiet_NaN();
  ExpectInvalid("RmsNorm: epsilon: given nan, want a finite number >= 0");
}
TEST_F(RmsNormErrors, WeightSize) {
  args_.weight.size = 63;
  ExpectInvalid("RmsNorm: weight.size: given 63, want 64");
}
TEST_F(RmsNormErrors, PlusOneWithoutWeight) {
  args_.weight = {};
  args_.weight_plus_one = true;
  ExpectInvalid("RmsNorm: weight: given null, want a vector (weight_plus_one)");
}
TEST_F(RmsNormErrors, Types) {
  args_.weight.dtype = DType::kBF16;
  Expect(absl::StatusCode::kUnimplemented,
         "RmsNorm: x, weight: given f32 x bf16, supported f32 x f32, f16 x "
         "f16, f16 x f32, bf16 x bf16, bf16 x f32");
  args_.weight = {};
  args_.x.dtype = DType::kI8;
  Expect(absl::StatusCode::kUnimplemented,
         "RmsNorm: x, weight: given i8 x i8, supported f32 x f32, f16 x f16, "
         "f16 x f32, bf16 x bf16, bf16 x f32");
}
TEST_F(RmsNormErrors, NoOutput) {
  args_.y = {};
  args_.quantized = {};
  ExpectInvalid("RmsNorm: y: given null, want a matrix (or quantized.codes)");
}
TEST_F(RmsNormErrors, ScalesWithoutCodes) {
  args_.quantized.codes = {};
  ExpectInvalid(
      "RmsNorm: quantized.codes: given null, want a matrix "
      "(quantized.scales is given)");
}
TEST_F(RmsNormErrors, ShapeAndTypeOfY) {
  args_.y.cols = 63;
  ExpectInvalid("RmsNorm: y.cols: given 63, want 64");
  args_.y.cols = 64;
  args_.y.rows = 5;
  ExpectInvalid("RmsNorm: y.rows: given 5, want 4");
  args_.y.rows = 4;
  args_.y.dtype = DType::kBF16;
  ExpectInvalid("RmsNorm: y.dtype: given bf16, want f32");
}
TEST_F(RmsNormErrors, ShapeAndTypeOfCodes) {
  args_.quantized.codes.rows = 3;
  ExpectInvalid("RmsNorm: quantized.codes.rows: given 3, want 4");
  args_.quantized.codes.rows = 4;
  args_.quantized.codes.dtype = DType::kF8E8M0;
  ExpectInvalid(
      "RmsNorm: quantized.codes.dtype: given f8e8m0, want f8e4m3fn, f8e5m2, "
      "f8e4m3fnuz, f8e5m2fnuz or i8");
}
TEST_F(RmsNormErrors, ScaleUpperBound) {
  args_.quantized.scale_ub = 0.0f;
  ExpectInvalid(
      "RmsNorm: quantized.scale_ub: given 0, want a bound on amax, > 0");
}
TEST_F(RmsNormErrors, DynamicScalesThatRowsShare) {
  args_.quantized.scales = PerTensor(scales_.data());
  Expect(absl::StatusCode::kUnimplemented,
         "RmsNorm: quantized.scales.granularity: given dynamic per_tensor; "
         "supported: static per_tensor, per_row, per_block, per_tile; dynamic "
         "per_row, per_block (Quantize has the rest)");
}
TEST_F(RmsNormErrors, Overlap) {
  args_.y = Matrix(x_.data() + 1, 4, 64);
  ExpectInvalid(
      "RmsNorm: y: given memory that overlaps x, want the very view of x (in "
      "place) or other memory");
  args_.y = Matrix(weight_.data(), 4, 64);
  ExpectInvalid(
      "RmsNorm: y: given memory that overlaps weight, want other memory");
  args_.y = Matrix(scales_.data(), 1, 64);
  args_.x.rows = 1;
  args_.quantized.codes.rows = 1;
  ExpectInvalid(
      "RmsNorm: quantized.scales: given memory that overlaps y, want other "
      "memory");
  args_.quantized.dynamic = false;
  ExpectInvalid(
      "RmsNorm: y: given memory that overlaps quantized.scales, want other "
      "memory");
  args_.y = {};
  args_.quantized.codes.data = x_.data();
  ExpectInvalid(
      "RmsNorm: quantized.codes: given memory that overlaps x, want other "
      "memory");
}
TEST_F(RmsNormErrors, Stream) {
  const absl::Status status = RmsNorm(args_, testing::MissingStream());
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(status.message(), testing::NoBackend("RmsNorm: stream"));
}

}  // namespace
}  // namespace lamina
