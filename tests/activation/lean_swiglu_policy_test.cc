// Which lean kernel takes which rows: plans cover their rows, fit the machine
// and name kernels that were compiled.

#include "lamina/activation/lean_swiglu_policy.h"

#include <algorithm>
#include <iterator>

#include "gtest/gtest.h"

namespace lamina::activation_internal {
namespace {

constexpr gpu::RowArch kH200{
    .units = 132, .wave_size = 32, .max_cluster_blocks = 8};
constexpr gpu::RowArch kNoClusters{
    .units = 108, .wave_size = 32, .max_cluster_blocks = 1};
constexpr gpu::RowArch kWave64{
    .units = 304, .wave_size = 64, .max_cluster_blocks = 1};
constexpr gpu::RowArch kSimt{
    .units = 16, .wave_size = 32, .max_cluster_blocks = 8};

constexpr LeanOutput kOutputs[] = {LeanOutput::kY, LeanOutput::kStatic,
                                   LeanOutput::kPerRow, LeanOutput::kPerBlock};

constexpr LeanSwiGluPlan PlanOf(LeanOutput output, int64_t rows, int64_t cols,
                                const gpu::RowArch& arch = kH200) {
  return SelectLeanSwiGluPlan(output, rows, cols, arch)
      .value_or(LeanSwiGluPlan{});
}

TEST(LeanSwiGluPolicy, PlansAreSound) {
  for (const gpu::RowArch& arch : {kH200, kNoClusters, kWave64, kSimt}) {
    for (const LeanOutput output : kOutputs) {
      for (const int64_t rows :
           {1,  2,  3,   8,   11,  12,   16,   31,   32,     33,      64,
            98, 99, 100, 128, 500, 1000, 2048, 8192, 100000, 10000000}) {
        for (int64_t cols = 256; cols < 100000;
             cols += cols < 20000 ? 8 : 808) {
          const auto plan = SelectLeanSwiGluPlan(output, rows, cols, arch);
          if (!plan.has_value()) {
            ASSERT_EQ(output, LeanOutput::kPerRow) << rows << " " << cols;
            // Too long, or more blocks than one launch takes.
            ASSERT_TRUE(cols > (arch.max_cluster_blocks > 1 ? 65536 : 8192) ||
                        rows > gpu::MaxBlocks(1024) / arch.max_cluster_blocks)
                << rows << " " << cols;
            continue;
          }
          const LeanSwiGluVariant& variant = plan->variant;
          ASSERT_NE(std::find(std::begin(kLeanSwiGluVariants),
                              std::end(kLeanSwiGluVariants), variant),
                    std::end(kLeanSwiGluVariants))
              << rows << " " << cols;
          ASSERT_GT(plan->lanes, 0);
          ASSERT_LE(plan->lanes, MaxLanes(variant));
          ASSERT_EQ(plan->lanes % arch.wave_size, 0);
          ASSERT_GE(int64_t{plan->lanes} * variant.columns * variant.pieces
                        << plan->blocks_log2,
                    cols);
          ASSERT_GT(plan->row_groups, 0);
          ASSERT_LE(plan->row_groups, rows);
          if (!variant.many_rows) {
            ASSERT_EQ(plan->row_groups, rows);
          }
          ASSERT_LE(plan->blocks(), gpu::MaxBlocks(plan->lanes));
          if (output == LeanOutput::kPerRow) {
            ASSERT_LE(plan->row_blocks(), arch.max_cluster_blocks);
            ASSERT_EQ(variant.scope == gpu::RowScope::kCluster,
                      plan->row_blocks() > 1);
          }
        }
      }
    }
  }
}

TEST(LeanSwiGluPolicy, DecodeSizes) {
  for (const LeanOutput output :
       {LeanOutput::kY, LeanOutput::kStatic, LeanOutput::kPerBlock}) {
    for (const int64_t rows : {1, 16, 32}) {
      const LeanSwiGluPlan plan = PlanOf(output, rows, 14336);
      EXPECT_EQ(plan.variant.columns, 4);
      EXPECT_FALSE(plan.variant.many_rows);
      EXPECT_EQ(plan.lanes, 128);  // half of the last block's waves leave
      EXPECT_EQ(plan.blocks(), rows * 32);
    }
    EXPECT_EQ(PlanOf(output, 128, 14336).variant.columns, 8);
    EXPECT_FALSE(PlanOf(output, 128, 14336).variant.many_rows);
    EXPECT_EQ(PlanOf(output, 128, 14336).lanes, 224);
    EXPECT_TRUE(PlanOf(output, 8192, 14336).variant.many_rows);
    EXPECT_EQ(PlanOf(output, 8192, 14336).blocks(), 82 * 8);
  }
}

TEST(LeanSwiGluPolicy, AScaleARow) {
  const LeanSwiGluPlan one = PlanOf(LeanOutput::kPerRow, 1, 14336);
  EXPECT_EQ(one.variant.columns, 4);
  EXPECT_EQ(one.row_blocks(), 8);
  EXPECT_EQ(one.lanes, 448);
  EXPECT_EQ(PlanOf(LeanOutput::kPerRow, 64, 14336).variant.columns, 4);
  EXPECT_EQ(PlanOf(LeanOutput::kPerRow, 90, 14336).row_blocks(), 4);
  const LeanSwiGluPlan many = PlanOf(LeanOutput::kPerRow, 2048, 14336);
  EXPECT_TRUE(many.variant.many_rows);
  EXPECT_EQ(many.variant.pieces, 2);
  EXPECT_EQ(many.lanes, 896);
  EXPECT_EQ(many.blocks(), 132);
  const LeanSwiGluPlan wide = PlanOf(LeanOutput::kPerRow, 2048, 28672);
  EXPECT_EQ(wide.variant.scope, gpu::RowScope::kCluster);
  EXPECT_EQ(wide.variant.columns, 8);
  EXPECT_EQ(wide.row_blocks(), 4);
}

TEST(LeanSwiGluPolicy, OtherRowsAreLeft) {
  for (const LeanOutput output : kOutputs) {
    EXPECT_FALSE(SelectLeanSwiGluPlan(output, 1, 248, kH200).has_value());
    EXPECT_FALSE(SelectLeanSwiGluPlan(output, 1, 4100, kH200).has_value());
    EXPECT_FALSE(
        SelectLeanSwiGluPlan(output, int64_t{1} << 30, 512, kH200).has_value());
    EXPECT_FALSE(
        SelectLeanSwiGluPlan(output, 1, int64_t{1} << 30, kH200).has_value());
  }
  EXPECT_FALSE(
      SelectLeanSwiGluPlan(LeanOutput::kPerRow, 1, 65544, kH200).has_value());
  EXPECT_FALSE(SelectLeanSwiGluPlan(LeanOutput::kPerRow, 1, 16392, kNoClusters)
                   .has_value());
}

}  // namespace
}  // namespace lamina::activation_internal
