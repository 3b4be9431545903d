#include "lamina/gemm/skinny_gemm/ring_gemm_policy.h"

#include "gtest/gtest.h"

namespace lamina::gemm_internal {
namespace {

constexpr RingArch kH200 = {.units = 132, .shared_bytes = 227 << 10};

// What the kernel relies on.
void ExpectSound(const RingGemmProblem& problem, const RingGemmPlan& plan) {
  const RingGemmLayout layout =
      LayoutOf(plan, problem.gated, RingGemmSteps(plan, problem.k));
  EXPECT_EQ(plan.consumers, plan.tiles * plan.shares);
  EXPECT_LE(plan.consumers, MaxConsumers(plan.variant));
  EXPECT_GT(plan.stages, 0);
  EXPECT_GT(plan.x_stages, 0);
  // A stage has the same users for good.
  EXPECT_EQ(plan.stages % plan.consumers, 0);
  EXPECT_EQ(plan.x_stages % plan.shares, 0);
  // Partial sums are exchanged where the stages have been, those of a cluster
  // elsewhere.
  EXPECT_TRUE(plan.groups == 1 || PartialSums(plan) == 1);
  EXPECT_GE(plan.cluster > 1 ? layout.phasers - layout.exchange : layout.x,
            PartialSums(plan) == 1
                ? 0
                : plan.consumers * 128 * RingSums(plan.variant) * 4);
  if (plan.pairs) {
    EXPECT_LE(plan.tile_cols, kPairRows);
    EXPECT_EQ(layout.segment_bytes, kPairRows * kSegmentBytes);
  }
  EXPECT_EQ(RingGemmSteps(plan, problem.k) % plan.shares, 0);
  EXPECT_LE(plan.tile_cols * RowsOfColumn(problem.gated), kRingTileRows);
  const int64_t block_cols = CeilDiv(problem.cols, Owners(plan));
  EXPECT_GE(int64_t{plan.groups} * plan.tiles * plan.tile_cols, block_cols);
  EXPECT_LE(Owners(plan), problem.cols);
  EXPECT_EQ(plan.blocks % plan.cluster, 0);
  EXPECT_LE(layout.bytes, kH200.shared_bytes);
  // Swizzled stages.
  EXPECT_EQ(layout.stage_bytes % 1024, 0);
  EXPECT_EQ(layout.x % 1024, 0);
  EXPECT_EQ(layout.phasers % 8, 0);
  EXPECT_GE(plan.variant.rows, problem.m);
}

TEST(RingGemmPolicy, EveryPlanIsSound) {
  for (const RingTypes types : {RingTypes::kF8, RingTypes::kBF16,
                                RingTypes::kF16, RingTypes::kF8BF16}) {
    for (const int64_t m : {1, 8, 9, 16, 17, 32, 33, 64}) {
      for (const int64_t cols : {1, 7, 131, 133, 2304, 4096, 16384, 57344}) {
        for (const int64_t k : {1, 16, 511, 512, 513, 4096, 28672}) {
          for (const int flags : {0, 1, 2, 4, 7}) {
            const RingGemmProblem problem = {.m = m,
                                             .cols = cols,
                                             .k = k,
                                             .types = types,
                                             .gated = (flags & 1) != 0,
                                             .block_scales = (flags & 2) != 0,
                                             .overlap = (flags & 4) != 0};
            if (problem.block_scales && WeightBytes(types) == 2) continue;
            SCOPED_TRACE(::testing::Message()
                         << "m " << m << " cols " << cols << " k " << k
                         << " types " << static_cast<int>(types) << " flags "
                         << flags);
            const auto plan = SelectRingGemmPlan(problem, kH200);
            ASSERT_TRUE(plan.has_value());
            ExpectSound(problem, *plan);
          }
        }
      }
    }
  }
}

TEST(RingGemmPolicy, AStageOfXServesAllTilesThatFit) {
  const auto tiles = [](int64_t cols) {
    return SelectRingGemmPlan({.m = 16, .cols = cols, .k = 4096}, kH200)->tiles;
  };
  EXPECT_EQ(tiles(128 * 64), 1);
  EXPECT_EQ(tiles(128 * 64 + 1), 2);
  EXPECT_EQ(tiles(128 * 128 + 1), 4);
  EXPECT_EQ(tiles(128 * 256), 4);
  EXPECT_EQ(tiles(132 * 512), 2);
}

TEST(RingGemmPolicy, LeavesUnitsForTheNextSmallKernel) {
  const RingGemmProblem problem = {.m = 1, .cols = 4096, .k = 4096};
  EXPECT_EQ(SelectRingGemmPlan(problem, kH200)->blocks, 132);
  RingGemmProblem chained = problem;
  chained.overlap = true;
  EXPECT_EQ(SelectRingGemmPlan(chained, kH200)->blocks, 128);
  chained.cols = 57344;
  EXPECT_EQ(SelectRingGemmPlan(chained, kH200)->blocks, 132);
}

TEST(RingGemmPolicy, BoxesWhereStagesAreManyOrSmall) {
  const auto boxes = [](const RingGemmProblem& problem) {
    return SelectRingGemmPlan(problem, kH200)->tensor_copies;
  };
  EXPECT_TRUE(boxes({.m = 8, .cols = 2304, .k = 16384}));
  EXPECT_FALSE(boxes({.m = 8, .cols = 2304, .k = 16384, .gated = true}));
  EXPECT_FALSE(boxes({.m = 8, .cols = 4096, .k = 14336}));
  EXPECT_TRUE(boxes({.m = 8, .cols = 4096, .k = 14336, .overlap = true}));
  EXPECT_FALSE(boxes({.m = 32, .cols = 4096, .k = 14336}));
  EXPECT_TRUE(boxes({.m = 64, .cols = 10240, .k = 8192}));
  EXPECT_FALSE(boxes({.m = 64, .cols = 8192, .k = 28672}));
  EXPECT_FALSE(boxes({.m = 64, .cols = 28672, .k = 4096}));
}

TEST(RingGemmPolicy, ClustersWhereXIsMoreThanW) {
  const auto cluster = [](const RingGemmProblem& problem) {
    return SelectRingGemmPlan(problem, kH200)->cluster;
  };
  EXPECT_EQ(cluster({.m = 64, .cols = 4096, .k = 4096}), 2);
  EXPECT_EQ(cluster({.m = 64, .cols = 4097, .k = 4096}), 1);
  EXPECT_EQ(cluster({.m = 32, .cols = 4096, .k = 4096}), 1);
  EXPECT_EQ(cluster({.m = 64, .cols = 4096, .k = 4096, .gated = true}), 1);
}

// Otherwise its bits would.
TEST(RingGemmPolicy, WhatIsSummedDoesNotDependOnOverlap) {
  for (int64_t cols = 64; cols < 60000; cols += 61) {
    RingGemmProblem problem = {.m = 8, .cols = cols, .k = 512};
    const auto alone = SelectRingGemmPlan(problem, kH200);
    problem.overlap = true;
    const auto chained = SelectRingGemmPlan(problem, kH200);
    ASSERT_EQ(alone->shares, chained->shares) << cols;
    ASSERT_EQ(alone->pairs, chained->pairs) << cols;
    problem.m = 64;
    const int cluster = SelectRingGemmPlan(problem, kH200)->cluster;
    problem.overlap = false;
    ASSERT_EQ(SelectRingGemmPlan(problem, kH200)->cluster, cluster) << cols;
  }
}

TEST(RingGemmPolicy, PairsWhereTilesAreHalfEmpty) {
  const auto pairs = [](const RingGemmProblem& problem) {
    return SelectRingGemmPlan(problem, kH200)->pairs;
  };
  EXPECT_TRUE(pairs({.m = 8, .cols = 4096, .k = 4096}));
  EXPECT_TRUE(pairs({.m = 32, .cols = 2304, .k = 4096}));
  EXPECT_FALSE(pairs({.m = 8, .cols = 4097, .k = 4096}));
  EXPECT_FALSE(pairs({.m = 64, .cols = 4096, .k = 4096}));
  EXPECT_FALSE(pairs({.m = 8, .cols = 4096, .k = 4096, .gated = true}));
  EXPECT_FALSE(pairs({.m = 8, .cols = 4096, .k = 4096, .block_scales = true}));
  EXPECT_FALSE(
      pairs({.m = 8, .cols = 4096, .k = 64, .types = RingTypes::kF8BF16}));
}

TEST(RingGemmPolicy, RefusesWhatTheKernelsDoNotTake) {
  const auto has_plan = [](const RingGemmProblem& problem,
                           const RingArch& arch = kH200) {
    return SelectRingGemmPlan(problem, arch).has_value();
  };
  EXPECT_TRUE(has_plan({.m = 64, .cols = 8, .k = 16}));
  EXPECT_FALSE(has_plan({.m = 65, .cols = 8, .k = 16}));
  EXPECT_FALSE(has_plan({.m = 0, .cols = 8, .k = 16}));
  EXPECT_FALSE(has_plan({.m = 1, .cols = 0, .k = 16}));
  EXPECT_FALSE(has_plan({.m = 1, .cols = 8, .k = 0}));
  EXPECT_FALSE(has_plan({.m = 1, .cols = 8, .k = int64_t{1} << 28}));
  EXPECT_FALSE(has_plan({.m = 64, .cols = 4096, .k = 4096},
                        {.units = 132, .shared_bytes = 48 << 10}));
  // No blocks.
  EXPECT_FALSE(
      MakeRingGemmPlan({.m = 8, .cols = 130, .k = 512}, {.blocks = 0}, kH200)
          .has_value());
  // Groups of tiles that have shares.
  EXPECT_FALSE(MakeRingGemmPlan({.m = 8, .cols = 130, .k = 512},
                                {.blocks = 1, .consumers = 4, .tiles = 2},
                                kH200)
                   .has_value());
}

}  // namespace
}  // namespace lamina::gemm_internal
