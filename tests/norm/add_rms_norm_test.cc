// AddRmsNorm: fused equals unfused, aliasing, errors. What all norms share is
// in norm_test.cc.

#include "lamina/norm/add_rms_norm.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "lamina/norm/add_rms_norm/add_rms_norm_policy.h"
#include "lamina/norm/rms_norm.h"
#include "lamina/quant/quantize.h"
#include "tests/norm/norm_harness.h"
#include "tests/support/memory.h"
#include "tests/support/random.h"
#include "tests/support/targets.h"
#include "tests/support/test_device.h"

namespace lamina {
namespace {

using testing::FirstDifference;

const Stream kStream = testing::TestStream(1);

template <class Row>
struct RowTypes;
template <class T, class W>
struct RowTypes<Types<T, W>> {
  using Element = T;
  using Weight = W;
};

template <class Row>
class AddRmsNormFusion : public ::testing::Test {};
TYPED_TEST_SUITE(AddRmsNormFusion, testing::TestTypesOf<AddRmsNormTable>::type,
                 testing::TypeNames);

// An addition rounded to T, RmsNorm, Quantize: three operators, and one.
TYPED_TEST(AddRmsNormFusion, EqualsAddThenRmsNormThenQuantize) {
  using T = typename RowTypes<TypeParam>::Element;
  using W = typename RowTypes<TypeParam>::Weight;
  constexpr int64_t kRows = 4, kCols = 1029;
  testing::Random random(1);
  const auto x = testing::NormalVector<T>(random, kRows * kCols);
  const auto residual = testing::NormalVector<T>(random, kRows * kCols, 3.0f);
  const auto weight = testing::NormalVector<W>(random, kCols);
  std::vector<T> sum;
  for (size_t i = 0; i < x.size(); ++i) {
    sum.push_back(FromFloat<T>(ToFloat(x[i]) + ToFloat(residual[i])));
  }
  const auto matrix = [](auto& values) {
    return Matrix(values.data(), kRows, kCols);
  };
  for (const bool quantize : {false, true}) {
    std::vector<T> z(sum.size()), y(sum.size()), unfused_y(sum.size());
    std::vector<F8E4M3Fn> codes(sum.size()), unfused_codes(sum.size());
    std::vector<float> scales(kRows), unfused_scales(kRows);
    QuantizedOutput output{.codes = matrix(codes),
                           .scales = PerRow(scales.data()),
                           .dynamic = true,
                           .round_before_quant = true};
    if (!quantize) output = {};
    ASSERT_TRUE(AddRmsNorm({.x = matrix(x),
                            .residual = matrix(residual),
                            .residual_out = matrix(z),
                            .weight = Vector(weight.data(), kCols),
                            .y = matrix(y),
                            .quantized = output},
                           kStream)
                    .ok());
    ASSERT_TRUE(RmsNorm({.x = matrix(sum),
                         .weight = Vector(weight.data(), kCols),
                         .y = matrix(unfused_y)},
                        kStream)
                    .ok());
    EXPECT_EQ(FirstDifference(z, sum), -1);
    EXPECT_EQ(FirstDifference(y, unfused_y), -1);
    if (!quantize) continue;
    ASSERT_TRUE(Quantize({.x = matrix(unfused_y),
                          .out = {.codes = matrix(unfused_codes),
                                  .scales = PerRow(unfused_scales.data()),
                                  .dynamic = true}},
                         kStream)
                    .ok());
    EXPECT_EQ(FirstDifference(codes, unfused_codes), -1);
    EXPECT_EQ(scales, unfused_scales);
  }
}

// Every documented aliasing, on every type, with and without codes.
TYPED_TEST(AddRmsNormFusion, InPlaceEqualsOutOfPlace) {
  using T = typename RowTypes<TypeParam>::Element;
  using W = typename RowTypes<TypeParam>::Weight;
  testing::NormCase c{.op = testing::NormOp::kAddRmsNorm,
                      .type = DTypeOf<T>::value,
                      .weight_type = DTypeOf<W>::value,
                      .rows = 3,
                      .cols = 515,
                      .x_padding = 4,
                      .residual_padding = 9};
  for (const bool quantize : {false, true}) {
    if (quantize) c.quantized = testing::QuantizedCase{};
    testing::NormResult separate, result;
    ASSERT_TRUE(testing::MatchesModel(c, kStream, &separate));
    testing::NormCase in_place = c;
    in_place.residual_out_is_residual = true;
    ASSERT_TRUE(testing::MatchesModel(in_place, kStream, &result));
    EXPECT_EQ(result, separate);
    in_place.y_is_x = true;
    ASSERT_TRUE(testing::MatchesModel(in_place, kStream, &result));
    EXPECT_EQ(result, separate);
    in_place.residual_out_is_residual = false;
    in_place.y_is_x = false;
    in_place.residual_out_is_x = true;
    ASSERT_TRUE(testing::MatchesModel(in_place, kStream, &result));
    EXPECT_EQ(result, separate);
  }
}

TEST(AddRmsNorm, YMayBeTheResidual) {
  testing::Random random(4);
  constexpr int64_t kRows = 3, kCols = 300;
  const auto x = testing::NormalVector<BF16>(random, kRows * kCols);
  auto residual = testing::NormalVector<BF16>(random, kRows * kCols);
  std::vector<BF16> z(x.size()), y(x.size()), z_in_place(x.size());
  ASSERT_TRUE(AddRmsNorm({.x = Matrix(x.data(), kRows, kCols),
                          .residual = Matrix(residual.data(), kRows, kCols),
                          .residual_out = Matrix(z.data(), kRows, kCols),
                          .y = Matrix(y.data(), kRows, kCols)},
                         kStream)
                  .ok());
  ASSERT_TRUE(
      AddRmsNorm({.x = Matrix(x.data(), kRows, kCols),
                  .residual = Matrix(residual.data(), kRows, kCols),
                  .residual_out = Matrix(z_in_place.data(), kRows, kCols),
                  .y = Matrix(residual.data(), kRows, kCols)},
                 kStream)
          .ok());
  EXPECT_EQ(FirstDifference(residual, y), -1);
  EXPECT_EQ(FirstDifference(z_in_place, z), -1);
}

TEST(AddRmsNorm, TheSumOfSquaresIsOfTheRoundedSum) {
  // 256 + 1 rounds to 256 in bf16: y is 1 and not 257 / 256.
  const BF16 x = FromFloat<BF16>(1.0f);
  const BF16 residual = FromFloat<BF16>(256.0f);
  BF16 z{}, y{};
  ASSERT_TRUE(AddRmsNorm({.x = Matrix(&x, 1, 1),
                          .residual = Matrix(&residual, 1, 1),
                          .residual_out = Matrix(&z, 1, 1),
                          .epsilon = 0,
                          .y = Matrix(&y, 1, 1)},
                         kStream)
                  .ok());
  EXPECT_EQ(ToFloat(z), 256.0f);
  EXPECT_EQ(ToFloat(y), 1.0f);
}

TEST(AddRmsNorm, ZeroRowsNeedNoPointers) {
  EXPECT_TRUE(AddRmsNorm({.x = {.cols = 8},
                          .residual = {.cols = 8},
                          .residual_out = {.cols = 8}},
                         kStream)
                  .ok());
}

class AddRmsNormErrors : public ::testing::Test {
 protected:
  AddRmsNormErrors()
      : args_{.x = Matrix(x_.data(), 4, 64),
              .residual = Matrix(residual_.data(), 4, 64),
              .residual_out = Matrix(residual_.data(), 4, 64),
              .weight = Vector(weight_.data(), 64),
              .y = Matrix(y_.data(), 4, 64)} {}
  void ExpectInvalid(const std::string& message) const {
    const absl::Status status = AddRmsNorm(args_, kStream);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(status.message(), message);
  }

  std::vector<float> x_ = std::vector<float>(1024);
  std::vector<float> residual_ = std::vector<float>(1024);
  std::vector<float> weight_ = std::vector<float>(256);
  std::vector<float> y_ = std::vector<float>(1024);
  AddRmsNormArgs args_;
};

TEST_F(AddRmsNormErrors, NoneToStartWith) {
  EXPECT_TRUE(AddRmsNorm(args_, kStream).ok());
}
TEST_F(AddRmsNormErrors, NullResidual) {
  args_.residual.data = nullptr;
  ExpectInvalid("AddRmsNorm: residual.data: given null, want a pointer");
}
TEST_F(AddRmsNormErrors, NullResidualOut) {
  args_.residual_out.data = nullptr;
  ExpectInvalid("AddRmsNorm: residual_out.data: given null, want a pointer");
}
TEST_F(AddRmsNormErrors, ShapesAndTypes) {
  args_.residual.rows = 3;
  ExpectInvalid("AddRmsNorm: residual.rows: given 3, want 4");
  args_.residual.rows = 4;
  args_.residual.dtype = DType::kF16;
  ExpectInvalid("AddRmsNorm: residual.dtype: given f16, want f32");
  args_.residual.dtype = DType::kF32;
  args_.residual_out.cols = 65;
  ExpectInvalid("AddRmsNorm: residual_out.cols: given 65, want 64");
  args_.residual_out.cols = 64;
  args_.residual_out.dtype = DType::kBF16;
  ExpectInvalid("AddRmsNorm: residual_out.dtype: given bf16, want f32");
}
TEST_F(AddRmsNormErrors, Overlap) {
  args_.residual_out = Matrix(residual_.data() + 1, 4, 64);
  ExpectInvalid(
      "AddRmsNorm: residual_out: given memory that overlaps residual, want "
      "the very view of residual (in place) or other memory");
  args_.residual_out = Matrix(x_.data() + 1, 4, 64);
  ExpectInvalid(
      "AddRmsNorm: residual_out: given memory that overlaps x, want the very "
      "view of x (in place) or other memory");
  args_.residual_out = Matrix(weight_.data(), 4, 64);
  ExpectInvalid(
      "AddRmsNorm: residual_out: given memory that overlaps weight, want "
      "other memory");
  args_.residual_out = Matrix(residual_.data(), 4, 64);
  args_.y = Matrix(residual_.data(), 4, 64);
  ExpectInvalid(
      "AddRmsNorm: y: given memory that overlaps residual_out, want other "
      "memory");
  args_.residual_out = Matrix(x_.data(), 4, 64);
  args_.y = Matrix(x_.data(), 4, 64);
  ExpectInvalid(
      "AddRmsNorm: y: given memory that overlaps residual_out, want other "
      "memory");
}

}  // namespace
}  // namespace lamina
