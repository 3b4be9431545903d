#include "lamina/persistent/persistent_chain/chain_policy.h"

#include "gtest/gtest.h"

namespace lamina::persistent_internal {
namespace {

using gemm_internal::RingGemmArgs;
using gemm_internal::RingTypes;

constexpr int kBlocks = 132;
constexpr int64_t kSharedBytes = 227 << 10;
constexpr int kStageBytes = 32 << 10;
// Of attention over heads of 128.
constexpr int kWorkBytes = 66 << 10;

// As SkinnyGemm has it, on an H200.
RingGemmArgs Recorded(RingTypes types, int rows, int cols, int k,
                      bool gated = false) {
  const gemm_internal::RingGemmProblem problem = {
      .m = rows, .cols = cols, .k = k, .types = types, .gated = gated};
  const auto plan = gemm_internal::SelectRingGemmPlan(
      problem, {.units = kBlocks, .shared_bytes = kSharedBytes});
  EXPECT_TRUE(plan.has_value());
  gemm_internal::GemmArgs gemm = {
      .m = rows, .n = gated ? 2 * cols : cols, .k = k};
  gemm.epilogue.cols = cols;
  gemm.epilogue.gated = gated;
  return gemm_internal::MakeRingGemmArgs(gemm, *plan);
}

TEST(ChainPolicyTest, KeepsWhatBitsDependOn) {
  for (const RingTypes types : {RingTypes::kF8, RingTypes::kBF16}) {
    for (const int rows : {1, 8, 16, 32}) {
      for (const auto& [cols, k] : {std::pair{6144, 4096},
                                    {4096, 4096},
                                    {28672, 4096},
                                    {4096, 14336},
                                    {10240, 8192},
                                    {57344, 8192},
                                    {96, 512}}) {
        const RingGemmArgs args = Recorded(types, rows, cols, k);
        const auto split = SplitOf(args, kBlocks, kStageBytes);
        ASSERT_TRUE(split.has_value()) << cols << " x " << k;
        EXPECT_EQ(split->shares, args.plan.shares);
        EXPECT_TRUE(split->groups == 1 ||
                    gemm_internal::PartialSums(args.plan) == 1);
        // Every column has its place.
        const int64_t most = CeilDiv(cols, split->blocks);
        EXPECT_GE(int64_t{split->tiles} * split->groups * split->tile_cols,
                  most);
        EXPECT_LE(WeightStageBytes(args, split->tile_cols), kStageBytes);
        EXPECT_LE(split->tiles * split->shares, Consumers(types));
      }
    }
  }
}

TEST(ChainPolicyTest, GatesAndSmallStages) {
  const RingGemmArgs gated = Recorded(RingTypes::kF8, 1, 14336, 4096, true);
  const auto split = SplitOf(gated, kBlocks, 24 << 10);
  ASSERT_TRUE(split.has_value());
  EXPECT_LE(split->tile_cols, 32);
  EXPECT_LE(WeightStageBytes(gated, split->tile_cols), 24 << 10);
  // Partial sums of 47 columns do not fit a smaller stage.
  const RingGemmArgs qkv = Recorded(RingTypes::kF8, 1, 6144, 4096);
  EXPECT_FALSE(SplitOf(qkv, kBlocks, 16 << 10).has_value());
  EXPECT_TRUE(SplitOf(qkv, kBlocks, 24 << 10).has_value());
}

TEST(ChainPolicyTest, LayoutsFitAndDoNotOverlap) {
  for (const RingTypes types :
       {RingTypes::kF8, RingTypes::kBF16, RingTypes::kF8BF16}) {
    for (const int rows : {8, 16, 32}) {
      const ChainVariant variant = {.types = types, .rows = rows};
      if (!HasChainKernel(variant)) continue;
      const auto layout =
          LayoutFor(variant, 24 << 10, kWorkBytes, kSharedBytes);
      ASSERT_TRUE(layout.has_value());
      const int consumers = Consumers(types);
      // A stage has the same users for good.
      EXPECT_EQ(layout->stages % consumers, 0);
      EXPECT_EQ(layout->x_stages % consumers, 0);
      EXPECT_GT(layout->x_stages, 0);
      EXPECT_EQ(layout->work, layout->stages * (24 << 10));
      EXPECT_GE(layout->schedule - layout->work, kWorkBytes);
      EXPECT_GE(layout->schedule - layout->work,
                layout->x_stages * ActivationStageBytes(variant.gemm()) +
                    ExchangeBytes(variant) + ScaleBytes(variant));
      EXPECT_EQ(layout->phasers - layout->schedule,
                kScheduleStages * static_cast<int>(sizeof(Stage)));
      EXPECT_LE(layout->bytes, kSharedBytes);
      EXPECT_EQ(layout->work % kSharedAlignment, 0);
      EXPECT_EQ(layout->phasers % 8, 0);
    }
  }
  EXPECT_FALSE(LayoutFor({}, 24 << 10, 1 << 20, kSharedBytes).has_value());
}

TEST(ChainPolicyTest, Kernels) {
  EXPECT_TRUE(HasChainKernel({.types = RingTypes::kF8, .rows = 32}));
  EXPECT_FALSE(HasChainKernel({.types = RingTypes::kF8, .rows = 64}));
  EXPECT_FALSE(HasChainKernel({.types = RingTypes::kF8BF16, .rows = 16}));
  EXPECT_FALSE(HasChainKernel({.types = RingTypes::kF16}));
}

TEST(ChainPolicyTest, SplitsOfContexts) {
  // A token of 8 KV heads; 8 of them; 32.
  EXPECT_EQ(ContextSlots(8, 8, kBlocks), 8);
  EXPECT_EQ(ContextSlots(64, 8, kBlocks), 2);
  EXPECT_EQ(ContextSlots(256, 8, kBlocks), 1);
  EXPECT_EQ(ContextSlots(8, 1, kBlocks), 1);
  EXPECT_EQ(RowBlocksLog2(2048), 0u);
  EXPECT_EQ(RowBlocksLog2(2049), 1u);
  EXPECT_EQ(RowBlocksLog2(14336), 3u);
}

}  // namespace
}  // namespace lamina::persistent_internal
