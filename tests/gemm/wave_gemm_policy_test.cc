// When the kernels of one wave's tensor cores are used.

#include "lamina/gemm/skinny_gemm/wave_gemm_policy.h"

#include "gtest/gtest.h"

namespace lamina::gemm_internal {
namespace {

constexpr WaveGemmProblem kProblem = {.m = 1,
                                      .n = 4096,
                                      .k = 4096,
                                      .x_type = DType::kF16,
                                      .w_type = DType::kF8E4M3Fn};
constexpr std::optional<WaveGemmPlan> With(int64_t m, int64_t n, int64_t k) {
  WaveGemmProblem problem = kProblem;
  problem.m = m;
  problem.n = n;
  problem.k = k;
  return SelectWaveGemmPlan(problem, 132);
}

static_assert(With(1, 4096, 4096)->variant.rows == 8);
static_assert(With(9, 4096, 4096)->variant.rows == 16);
static_assert(With(33, 4096, 4096)->variant.rows == 64);
static_assert(With(64, 2048, 4096)->variant.tiles == 1);
static_assert(With(64, 28672, 4096)->variant.tiles == 2);

TEST(WaveGemmPolicy, TakesRowsOf16Bytes) {
  EXPECT_TRUE(With(1, 1, 16));
  EXPECT_FALSE(With(1, 1, 24));
  EXPECT_FALSE(With(1, 1, 0));
  EXPECT_FALSE(With(0, 1, 16));
  EXPECT_FALSE(With(65, 1, 16));
  EXPECT_TRUE(SelectWaveGemmPlan(
      {.m = 1, .n = 1, .k = 24, .x_type = DType::kF16, .w_type = DType::kF16},
      1));
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
