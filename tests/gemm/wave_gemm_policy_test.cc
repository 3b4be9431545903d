// When the kernels of one wave's tensor cores are used.

#include "lamina/gemm/skinny_gemm/wave_gemm_policy.h"

#include "gtest/gtest.h"

namespace lamina::gemm_internal {
namespace {

constexpr std::optional<WaveGemmPlan> With(int64_t m, int64_t k) {
  return SelectWaveGemmPlan(
      {.m = m, .k = k, .x_type = DType::kF16, .w_type = DType::kF8E4M3Fn});
}

static_assert(With(1, 4096)->variant.rows == 8);
static_assert(With(9, 4096)->variant.rows == 16);
static_assert(With(33, 4096)->variant.rows == 64);

TEST(WaveGemmPolicy, TakesRowsOf16Bytes) {
  EXPECT_TRUE(With(1, 16));
  EXPECT_FALSE(With(1, 24));
  EXPECT_FALSE(With(1, 0));
  EXPECT_FALSE(With(0, 16));
  EXPECT_FALSE(With(65, 16));
  EXPECT_TRUE(SelectWaveGemmPlan(
      {.m = 1, .k = 24, .x_type = DType::kF16, .w_type = DType::kF16}));
}

TEST(WaveGemmPolicy, IsForFewWeights) {
  const auto prefers = [](int64_t m, int64_t n, int64_t k, DType w, DType x) {
    return PrefersWaveGemm({.m = m, .k = k, .x_type = x, .w_type = w}, n);
  };
  constexpr DType kF8 = DType::kF8E4M3Fn;
  EXPECT_TRUE(prefers(16, 2048, 2048, kF8, DType::kBF16));
  EXPECT_FALSE(prefers(17, 2048, 2048, kF8, DType::kBF16));
  EXPECT_FALSE(prefers(16, 4096, 2048, kF8, DType::kBF16));
  EXPECT_TRUE(prefers(1, 960, 576, DType::kBF16, DType::kBF16));
  EXPECT_FALSE(prefers(1, 3072, 576, DType::kBF16, DType::kBF16));
  EXPECT_FALSE(prefers(1, 960, 576, kF8, kF8));
}

TEST(WaveGemmPolicy, PairsOfTypes) {
  EXPECT_EQ(WaveTypesOf(DType::kBF16, DType::kBF16), WaveTypes::kBF16);
  EXPECT_EQ(WaveTypesOf(DType::kF8E5M2, DType::kF8E4M3Fn), WaveTypes::kF8);
  EXPECT_EQ(WaveTypesOf(DType::kF8E5M2, DType::kF16), WaveTypes::kF8F16);
  EXPECT_FALSE(WaveTypesOf(DType::kBF16, DType::kF16));
  EXPECT_FALSE(WaveTypesOf(DType::kBF16, DType::kF8E4M3Fn));
  EXPECT_FALSE(WaveTypesOf(DType::kF8E4M3Fnuz, DType::kBF16));
  EXPECT_FALSE(WaveTypesOf(DType::kF8E4M3Fn, DType::kF32));
}

}  // namespace
}  // namespace lamina::gemm_internal
