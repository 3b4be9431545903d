// LayerNorm: worked examples, two passes, errors. What all norms share is in
// norm_test.cc.

#include "lamina/norm/layer_norm.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/random.h"
#include "tests/support/test_device.h"

namespace lamina {
namespace {

const Stream kStream = testing::TestStream(1);

TEST(LayerNorm, WorkedExample) {
  // Mean 5, distances -3, -1, 1, 3: variance 5, + 11 = 16.
  const std::vector<float> x = {2, 4, 6, 8};
  const std::vector<float> weight = {4, 4, 8, 1};
  const std::vector<float> bias = {0, 1, -1, 0.5f};
  std::vector<float> y(4);
  ASSERT_TRUE(LayerNorm({.x = Matrix(x.data(), 1, 4),
                         .weight = Vector(weight.data(), 4),
                         .bias = Vector(bias.data(), 4),
                         .epsilon = 11,
                         .y = Matrix(y.data(), 1, 4)},
                        kStream)
                  .ok());
  EXPECT_EQ(y, (std::vector<float>{-3, 0, 1, 1.25f}));
}

TEST(LayerNorm, ABiasNeedsNoWeight) {
  const std::vector<float> x = {2, 4, 6, 8};
  const std::vector<float> bias = {0, 1, -1, 0.5f};
  std::vector<float> y(4);
  ASSERT_TRUE(LayerNorm({.x = Matrix(x.data(), 1, 4),
                         .bias = Vector(bias.data(), 4),
                         .epsilon = 11,
                         .y = Matrix(y.data(), 1, 4)},
                        kStream)
                  .ok());
  EXPECT_EQ(y, (std::vector<float>{-0.75f, 0.75f, -0.75f, 1.25f}));
}

TEST(LayerNorm, ALargeMeanCostsNoAccuracy) {
  // The one-pass formula E[x^2] - mean^2 has nothing left of this variance.
  constexpr int64_t kCols = 1024;
  std::vector<float> x;
  for (int64_t i = 0; i < kCols; ++i) x.push_back(i % 2 == 0 ? 8191 : 8193);
  std::vector<float> y(kCols);
  ASSERT_TRUE(LayerNorm({.x = Matrix(x.data(), 1, kCols),
                         .epsilon = 0,
                         .y = Matrix(y.data(), 1, kCols)},
                        kStream)
                  .ok());
  for (int64_t i = 0; i < kCols; ++i) {
    ASSERT_EQ(y[static_cast<size_t>(i)], i % 2 == 0 ? -1.0f : 1.0f);
  }
}

TEST(LayerNorm, AConstantRowGivesTheBias) {
  constexpr int64_t kCols = 77;
  const std::vector<float> x(kCols, 0.625f);
  testing::Random random(1);
  const auto bias = testing::NormalVector<float>(random, kCols);
  const auto weight = testing::NormalVector<float>(random, kCols);
  std::vector<float> y(kCols);
  ASSERT_TRUE(LayerNorm({.x = Matrix(x.data(), 1, kCols),
                         .weight = Vector(weight.data(), kCols),
                         .bias = Vector(bias.data(), kCols),
                         .y = Matrix(y.data(), 1, kCols)},
                        kStream)
                  .ok());
  EXPECT_EQ(y, bias);
}

TEST(LayerNorm, Errors) {
  std::vector<float> x(64), weight(64), bias(64), y(64);
  LayerNormArgs args{.x = Matrix(x.data(), 1, 64),
                     .weight = Vector(weight.data(), 64),
                     .bias = Vector(bias.data(), 64),
                     .y = Matrix(y.data(), 1, 64)};
  const auto expect = [&](const LayerNormArgs& wrong, absl::StatusCode code,
                          const std::string& message) {
    const absl::Status status = LayerNorm(wrong, kStream);
    EXPECT_EQ(status.code(), code);
    EXPECT_EQ(status.message(), message);
  };
  constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
  EXPECT_TRUE(LayerNorm(args, kStream).ok());
  LayerNormArgs wrong = args;
  wrong.bias.size = 65;
  expect(wrong, kInvalid, "LayerNorm: bias.size: given 65, want 64");
  wrong = args;
  wrong.bias.dtype = DType::kF16;
  expect(wrong, kInvalid, "LayerNorm: bias.dtype: given f16, want f32");
  wrong.weight = {};
  expect(wrong, absl::StatusCode::kUnimplemented,
         "LayerNorm: x, weight: given f32 x f16, supported f32 x f32, f16 x "
         "f16, f16 x f32, bf16 x bf16, bf16 x f32");
  wrong = args;
  wrong.y = Matrix(bias.data(), 1, 64);
  expect(wrong, kInvalid,
         "LayerNorm: y: given memory that overlaps bias, want other memory");
  wrong = args;
  wrong.y = {};
  expect(wrong, kInvalid,
         "LayerNorm: y: given null, want a matrix (or quantized.codes)");
}

}  // namespace
}  // namespace lamina
