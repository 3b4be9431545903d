// The ring kernels of SkinnyGemm, on the host (SIMT) and on a GPU that has
// them, with the plans that the policy takes and others. Where sums are exact,
// results are those of the scalar model bit for bit.

#include <optional>
#include <vector>

#include "gtest/gtest.h"
#include "lamina/core/device.h"
#include "lamina/gemm/skinny_gemm/ring_gemm.h"
#include "tests/gemm/skinny_gemm_plans.h"

namespace lamina {
namespace {

using gemm_internal::RingGemmChoice;
using gemm_internal::RingTypes;
using gemm_internal::SelectRingGemmChoice;
using gemm_internal::SkinnyGemmGpuPlan;
using testing::GemmCase;
using testing::GemmSpec;

constexpr auto kTensor = ScaleGranularity::kPerTensor;
constexpr auto kRow = ScaleGranularity::kPerRow;
constexpr auto kBlock = ScaleGranularity::kPerBlock;
constexpr auto kTile = ScaleGranularity::kPerTile;

struct Types2 {
  DType w;
  DType x;
};
constexpr Types2 kF8 = {DType::kF8E4M3Fn, DType::kF8E4M3Fn};
constexpr Types2 kBF16 = {DType::kBF16, DType::kBF16};
constexpr Types2 kF16 = {DType::kF16, DType::kF16};
constexpr Types2 kF8BF16 = {DType::kF8E4M3Fn, DType::kBF16};
constexpr Types2 kTypes[] = {kF8, kBF16, kF16, kF8BF16};

GemmSpec Spec(const Types2& types, int64_t m, int64_t n, int64_t k) {
  return {.m = m,
          .n = n,
          .k = k,
          .x = types.x,
          .w = types.w,
          .y = DType::kF32,
          .exact = true};
}

class RingGemmGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    const DeviceInfo& device = Device();
    if (device.device.backend != Backend::kCuda ||
        (device.arch != "sm_90" && device.arch != "simt")) {
      GTEST_SKIP() << device.arch << " has no ring kernels";
    }
  }
  static const DeviceInfo& Device() {
    return GetDeviceInfo(testing::TestStream().device());
  }
};

// The policy's choice.
RingGemmChoice ChoiceFor(const GemmSpec& spec) {
  const auto has_blocks = [](const std::optional<ScaleGranularity>& scales) {
    return scales && (*scales == kBlock || *scales == kTile);
  };
  const DeviceInfo& device = GetDeviceInfo(testing::TestStream().device());
  return SelectRingGemmChoice(
      {.m = spec.m,
       .cols = spec.out_cols(),
       .k = spec.k,
       .types = spec.w != spec.x         ? RingTypes::kF8BF16
                : spec.w == DType::kBF16 ? RingTypes::kBF16
                : spec.w == DType::kF16  ? RingTypes::kF16
                                         : RingTypes::kF8,
       .gated = spec.gate.has_value(),
       .block_scales = has_blocks(spec.x_scales) || has_blocks(spec.w_scales)},
      {.units = device.num_units, .shared_bytes = device.shared_memory_bytes});
}

// What to run: `choice`, or the policy's.
SkinnyGemmGpuPlan PlanOf(
    const GemmSpec& spec,
    const std::optional<RingGemmChoice>& choice = std::nullopt) {
  return {.ring = choice.value_or(ChoiceFor(spec))};
}
void ExpectExact(const GemmSpec& spec,
                 const std::optional<RingGemmChoice>& choice = std::nullopt) {
  testing::ExpectExact(spec, PlanOf(spec, choice));
}

// ---- Shapes -----------------------------------------------------------------

TEST_F(RingGemmGpu, EveryBandOfRowsOfEveryTypes) {
  for (const Types2& types : kTypes) {
    for (const int64_t m : {1, 7, 8, 9, 16, 17, 32, 33, 64}) {
      ExpectExact(Spec(types, m, 45, 272));
    }
  }
}

// Less than a segment to several stages, with tails of 16 bytes and more.
TEST_F(RingGemmGpu, EveryLengthOfK) {
  for (const Types2& types : kTypes) {
    for (const int64_t k : {16, 112, 128, 144, 512, 528, 1040, 2576}) {
      ExpectExact(Spec(types, k % 5 == 0 ? 40 : 3, 5, k));
    }
  }
}

TEST_F(RingGemmGpu, EveryNumberOfColumns) {
  for (const Types2& types : kTypes) {
    for (const int64_t n : {1, 2, 15, 17, 257, 1030}) {
      ExpectExact(Spec(types, 5, n, 160));
    }
  }
}

TEST_F(RingGemmGpu, PaddedRows) {
  for (const Types2& types : kTypes) {
    GemmSpec spec = Spec(types, 6, 37, 208);
    spec.pad = 16;
    ExpectExact(spec);
  }
}

// ---- Plans ------------------------------------------------------------------

TEST_F(RingGemmGpu, EveryChoice) {
  for (const Types2& types : kTypes) {
    for (const int64_t m : {4, 64}) {
      for (const int consumers : {2, 4}) {
        if (consumers == 4 && types.w != types.x && m > 16) continue;
        for (const int tiles : {1, 2, 4}) {
          if (tiles > consumers) continue;
          // Shares of K have one group of tiles.
          const int64_t groups = tiles == consumers ? 2 : 1;
          const int64_t n = 64 * tiles * groups - 6;
          // Stages as few as there can be, so that rings go round.
          ExpectExact(Spec(types, m, n, 1296),
                      RingGemmChoice{
                          .blocks = 1, .consumers = consumers, .tiles = tiles});
          ExpectExact(Spec(types, m, n, 1296),
                      RingGemmChoice{.blocks = 3,
                                     .consumers = consumers,
                                     .tiles = tiles,
                                     .tensor_copies = true});
          ExpectExact(Spec(types, m, n, 1296),
                      RingGemmChoice{.blocks = 2,
                                     .consumers = consumers,
                                     .tiles = tiles,
                                     .ring_bytes = 96 << 10,
                                     .x_ring_bytes = 40 << 10});
        }
      }
    }
  }
}

// Shares of K, rows left out, columns past a tile: where results go straight
// from the sums.
TEST_F(RingGemmGpu, RoundsToY) {
  for (const Types2& types : kTypes) {
    for (const DType y : {DType::kF16, DType::kBF16}) {
      for (const int64_t m : {5, 16, 27, 64}) {
        for (const int tiles : {1, 2, 4}) {
          const int consumers = types.w != types.x ? 2 : 4;
          if (tiles > consumers) continue;
          GemmSpec spec = Spec(types, m, 60 * tiles, 144);
          spec.y = y;
          spec.w_scales = IsFp8(types.w) ? std::optional(kRow) : std::nullopt;
          spec.x_scales = IsFp8(types.x) ? std::optional(kRow) : std::nullopt;
          ExpectExact(spec,
                      RingGemmChoice{
                          .blocks = 3, .consumers = consumers, .tiles = tiles});
        }
      }
    }
  }
}

// Two blocks have columns together and half of K each.
TEST_F(RingGemmGpu, Clusters) {
  for (const Types2& types : kTypes) {
    for (const int64_t m : {33, 64}) {
      for (const int64_t k : {16, 272, 1296, 2064}) {
        for (const int tiles : {1, 2}) {
          for (const bool boxes : {false, true}) {
            for (const DType y : {DType::kF32, DType::kBF16}) {
              GemmSpec spec = Spec(types, m, 60 * tiles + 3, k);
              spec.y = y;
              spec.residual = boxes;
              ExpectExact(spec, RingGemmChoice{.blocks = 5,
                                               .cluster = 2,
                                               .consumers = 2,
                                               .tiles = tiles,
                                               .tensor_copies = boxes});
            }
          }
        }
      }
    }
  }
}

// ---- Scales -----------------------------------------------------------------

TEST_F(RingGemmGpu, EveryGranularityOfScales) {
  const std::optional<ScaleGranularity> none;
  for (const Types2& types : {kF8, kF8BF16}) {
    for (const auto x_scales : {none, std::optional(kTensor),
                                std::optional(kRow), std::optional(kBlock)}) {
      for (const auto w_scales :
           {none, std::optional(kTensor), std::optional(kRow),
            std::optional(kBlock), std::optional(kTile)}) {
        if (x_scales && !IsFp8(types.x)) continue;
        for (const int64_t m : {3, 20, 50}) {
          GemmSpec spec = Spec(types, m, 135, 400);
          spec.x_scales = x_scales;
          spec.w_scales = w_scales;
          spec.scale_type = m == 3 ? DType::kF32 : DType::kF8E8M0;
          ExpectExact(spec);
        }
      }
    }
  }
}

// More scales of x than a block keeps.
TEST_F(RingGemmGpu, ScalesOfLongRows) {
  GemmSpec spec = Spec(kF8, 33, 3, 16640);
  spec.x_scales = kBlock;
  spec.w_scales = kTile;
  // One row that is summed by two blocks, and one by one.
  for (const int cluster : {1, 2}) {
    ExpectExact(
        spec, RingGemmChoice{.blocks = 2, .cluster = cluster, .consumers = 2});
  }
}

// ---- Epilogue ---------------------------------------------------------------

TEST_F(RingGemmGpu, BiasAndResidual) {
  for (const Types2& types : kTypes) {
    GemmSpec spec = Spec(types, 11, 77, 144);
    spec.bias = DType::kF32;
    spec.residual = true;
    ExpectExact(spec);
  }
}

TEST_F(RingGemmGpu, GatesInEveryLayout) {
  for (const Types2& types : kTypes) {
    for (const GateLayout layout :
         {GateLayout::kGateFirst, GateLayout::kGateSecond,
          GateLayout::kInterleaved}) {
      for (const int64_t n : {2, 66, 630}) {
        GemmSpec spec = Spec(types, 9, n, 144);
        spec.gate = GateSpec{.kind = ActivationKind::kRelu, .layout = layout};
        spec.bias = DType::kF32;
        ExpectExact(spec);
        ExpectExact(spec,
                    RingGemmChoice{.blocks = 2, .consumers = 2, .tiles = 2});
      }
    }
  }
}

// ---- Values -----------------------------------------------------------------

TEST_F(RingGemmGpu, EveryCodeOfWeights) {
  for (const Types2& types : {kF8, kF8BF16}) {
    const GemmSpec spec = Spec(types, 1, 256, 128);
    testing::ExpectEveryCode(spec, PlanOf(spec));
  }
}

// FP8 sums have 14 bits over 128 of K.
TEST_F(RingGemmGpu, RandomValuesAreCloseToTheSumInDouble) {
  for (const Types2& types : kTypes) {
    for (const int64_t m : {1, 13, 30, 60}) {
      GemmSpec spec = Spec(types, m, 20, 1040);
      spec.exact = false;
      testing::ExpectCloseToDouble(
          spec, PlanOf(spec), types.x == DType::kF8E4M3Fn ? 0x1p-12 : 0x1p-20);
    }
  }
}

// The bits of a row depend on m only through its band, and not on its place.
TEST_F(RingGemmGpu, RowsDoNotDependOnEachOther) {
  for (const Types2& types : kTypes) {
    for (const int64_t band : {8, 16, 32, 64}) {
      GemmSpec spec = Spec(types, band, 20, 1040);
      spec.exact = false;
      GemmCase all(spec);
      const std::vector<float> want = testing::RunWithPlan(all, PlanOf(spec));
      for (int64_t m = band / 2 + 1; m < band; ++m) {
        if (testing::OnSimt() && m > band / 2 + 1) continue;
        spec.m = m;
        testing::ExpectRowsAlone(all, want, band - m, m, PlanOf(spec));
      }
    }
  }
}

TEST_F(RingGemmGpu, TheSameBitsEveryTime) {
  for (const Types2& types : kTypes) {
    for (const int64_t m : {8, 64}) {
      GemmSpec spec = Spec(types, m, 300, 1040);
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
