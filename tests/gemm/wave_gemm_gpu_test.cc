// The kernels of one wave's tensor cores, on the host (SIMT) and on a GPU.
// Where sums are exact, results are those of the scalar model bit for bit.

#include <optional>
#include <vector>

#include "gtest/gtest.h"
#include "lamina/core/device.h"
#include "lamina/gemm/skinny_gemm/wave_gemm_policy.h"
#include "tests/gemm/skinny_gemm_plans.h"

namespace lamina {
namespace {

using gemm_internal::SelectWaveGemmPlan;
using gemm_internal::SkinnyGemmGpuPlan;
using testing::GemmCase;
using testing::GemmSpec;

constexpr auto kTensor = ScaleGranularity::kPerTensor;
constexpr auto kRow = ScaleGranularity::kPerRow;
constexpr auto kBlock = ScaleGranularity::kPerBlock;
constexpr auto kTile = ScaleGranularity::kPerTile;

struct Pair {
  DType w;
  DType x;
};
constexpr Pair kPairs[] = {
    {DType::kBF16, DType::kBF16},         {DType::kF16, DType::kF16},
    {DType::kF8E4M3Fn, DType::kBF16},     {DType::kF8E5M2, DType::kBF16},
    {DType::kF8E4M3Fn, DType::kF16},      {DType::kF8E5M2, DType::kF16},
    {DType::kF8E4M3Fn, DType::kF8E4M3Fn}, {DType::kF8E5M2, DType::kF8E4M3Fn},
    {DType::kF8E4M3Fn, DType::kF8E5M2},   {DType::kF8E5M2, DType::kF8E5M2}};

GemmSpec Spec(const Pair& pair, int64_t m, int64_t n, int64_t k) {
  return {.m = m,
          .n = n,
          .k = k,
          .x = pair.x,
          .w = pair.w,
          .y = DType::kF32,
          .exact = true};
}

SkinnyGemmGpuPlan PlanOf(const GemmSpec& spec) {
  return {.wave = SelectWaveGemmPlan(
              {.m = spec.m, .k = spec.k, .x_type = spec.x, .w_type = spec.w})};
}
void ExpectExact(const GemmSpec& spec) {
  testing::ExpectExact(spec, PlanOf(spec));
}

class WaveGemmGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    if (testing::TestStream().device().backend != Backend::kCuda) {
      GTEST_SKIP() << "no such kernels";
    }
  }
};

// ---- Shapes -----------------------------------------------------------------

TEST_F(WaveGemmGpu, EveryNumberOfRowsOfEveryTypes) {
  for (const Pair& pair : kPairs) {
    for (const int64_t m : {1, 7, 8, 9, 16, 17, 32, 33, 64}) {
      ExpectExact(Spec(pair, m, 37, 272));
    }
  }
}

// Less than a segment to several for each wave, with tails of 16 bytes.
TEST_F(WaveGemmGpu, EveryLengthOfK) {
  for (const Pair& pair : kPairs) {
    for (const int64_t k : {16, 48, 64, 112, 128, 144, 1024, 1040, 2576}) {
      ExpectExact(Spec(pair, k % 5 == 0 ? 40 : 3, 5, k));
    }
  }
}

TEST_F(WaveGemmGpu, EveryNumberOfColumns) {
  for (const Pair& pair : kPairs) {
    for (const int64_t n : {1, 2, 15, 16, 17, 33, 300}) {
      ExpectExact(Spec(pair, n == 33 ? 40 : 5, n, 160));
    }
  }
}

TEST_F(WaveGemmGpu, PaddedRows) {
  for (const Pair& pair : kPairs) {
    GemmSpec spec = Spec(pair, 6, 37, 208);
    spec.pad = 16;
    ExpectExact(spec);
  }
}

// ---- Scales and epilogue ----------------------------------------------------

TEST_F(WaveGemmGpu, EveryGranularityOfScales) {
  const std::optional<ScaleGranularity> none;
  for (const Pair& pair : {Pair{DType::kF8E4M3Fn, DType::kF8E4M3Fn},
                           Pair{DType::kF8E4M3Fn, DType::kF16}}) {
    for (const auto x_scales : {none, std::optional(kTensor),
                                std::optional(kRow), std::optional(kBlock)}) {
      for (const auto w_scales :
           {none, std::optional(kTensor), std::optional(kRow),
            std::optional(kBlock), std::optional(kTile)}) {
        if (x_scales && !IsFp8(pair.x)) continue;
        for (const int64_t m : {3, 20}) {
          GemmSpec spec = Spec(pair, m, 135, 400);
          spec.x_scales = x_scales;
          spec.w_scales = w_scales;
          spec.scale_type = m == 3 ? DType::kF32 : DType::kF8E8M0;
          ExpectExact(spec);
        }
      }
    }
  }
}

TEST_F(WaveGemmGpu, BiasResidualAndGates) {
  for (const Pair& pair : kPairs) {
    // 64: two tiles a block.
    GemmSpec spec = Spec(pair, pair.x == pair.w ? 64 : 20, 82, 144);
    spec.bias = DType::kF32;
    spec.residual = true;
    ExpectExact(spec);
    for (const GateLayout layout :
         {GateLayout::kGateFirst, GateLayout::kGateSecond,
          GateLayout::kInterleaved}) {
      spec.gate = GateSpec{.kind = ActivationKind::kRelu, .layout = layout};
      ExpectExact(spec);
    }
  }
}

// ---- Values -----------------------------------------------------------------

TEST_F(WaveGemmGpu, EveryCodeOfWeights) {
  for (const Pair& pair : kPairs) {
    if (!IsFp8(pair.w)) continue;
    const GemmSpec spec = Spec(pair, 1, 256, 128);
    testing::ExpectEveryCode(spec, PlanOf(spec));
  }
}

TEST_F(WaveGemmGpu, RandomValuesAreCloseToTheSumInDouble) {
  for (const Pair& pair : kPairs) {
    for (const int64_t m : {1, 13, 60}) {
      GemmSpec spec = Spec(pair, m, 20, 1040);
      spec.exact = false;
      testing::ExpectCloseToDouble(spec, PlanOf(spec), 0x1p-20);
    }
  }
}

// The bits of a row depend not on m.
TEST_F(WaveGemmGpu, RowsDoNotDependOnEachOther) {
  for (const Pair& pair : kPairs) {
    GemmSpec spec = Spec(pair, 64, 20, 1040);
    spec.exact = false;
    GemmCase all(spec);
    const std::vector<float> want = testing::RunWithPlan(all, PlanOf(spec));
    for (int64_t m = 1; m <= 64; ++m) {
      if (testing::OnSimt() && m != 3 && m != 16 && m != 17 && m != 33) {
        continue;
      }
      spec.m = m;
      testing::ExpectRowsAlone(all, want, 64 - m, m, PlanOf(spec));
    }
  }
}

TEST_F(WaveGemmGpu, TheSameBitsEveryTime) {
  for (const Pair& pair : kPairs) {
    for (const int64_t m : {8, 64}) {
      GemmSpec spec = Spec(pair, m, 100, 1040);
      spec.exact = false;
      GemmCase test(spec);
      const std::vector<float> want = testing::RunWithPlan(test, PlanOf(spec));
      for (int run = 0; run < (testing::OnSimt() ? 1 : 200); ++run) {
        ASSERT_EQ(testing::RunWithPlan(test, PlanOf(spec)), want);
      }
    }
  }
}

}  // namespace
}  // namespace lamina
