// Which lean kernel takes which rows: plans cover their rows, fit the machine
// and name kernels that were compiled.

#include "lamina/quant/lean_rows_policy.h"

#include <algorithm>
#include <iterator>

#include "gtest/gtest.h"

namespace lamina::quant_internal {
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

constexpr LeanRowsPlan SwiGluPlan(LeanOutput output, int64_t rows, int64_t cols,
                                  DType type = DType::kBF16) {
  return SelectLeanRowsPlan(output, rows, cols, 2, type, kH200)
      .value_or(LeanRowsPlan{});
}
constexpr LeanRowsPlan PlainPlan(LeanOutput output, int64_t rows,
                                 int64_t cols) {
  return SelectLeanRowsPlan(output, rows, cols, 1, DType::kBF16, kH200)
      .value_or(LeanRowsPlan{});
}

void ExpectSound(LeanOutput output, int64_t rows, int64_t cols, int inputs,
                 DType type, const gpu::RowArch& arch) {
  const auto plan = SelectLeanRowsPlan(output, rows, cols, inputs, type, arch);
  if (!plan.has_value()) {
    // Too long, or more blocks than one launch takes.
    ASSERT_TRUE((output == LeanOutput::kPerRow &&
                 (cols > 16384 || rows * arch.max_cluster_blocks > 1 << 22)) ||
                rows * cols > int64_t{1} << 31)
        << rows << " " << cols;
    return;
  }
  const LeanRowsVariant& variant = plan->variant;
  ASSERT_NE(std::find(std::begin(kLeanRowsVariants),
                      std::end(kLeanRowsVariants), variant),
            std::end(kLeanRowsVariants))
      << rows << " " << cols;
  ASSERT_TRUE(variant.CompiledForInputs(inputs)) << rows << " " << cols;
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
    ASSERT_EQ(variant.scope == gpu::RowScope::kCluster, plan->row_blocks() > 1);
  }
}

TEST(LeanRowsPolicy, PlansAreSound) {
  for (const gpu::RowArch& arch : {kH200, kNoClusters, kWave64, kSimt}) {
    for (const LeanOutput output : kOutputs) {
      for (const int64_t rows :
           {1,  2,  3,   8,   11,  12,   16,   31,   32,     33,      64,
            98, 99, 100, 128, 500, 1000, 2048, 8192, 100000, 10000000}) {
        for (int64_t cols = 256; cols < 100000;
             cols += cols < 20000 ? 8 : 808) {
          for (const DType type : {DType::kBF16, DType::kF16}) {
            ExpectSound(output, rows, cols, 2, type, arch);
          }
          if (output != LeanOutput::kY) {
            ExpectSound(output, rows, cols, 1, DType::kBF16, arch);
          }
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST(LeanRowsPolicy, SwiGlu) {
  for (const LeanOutput output :
       {LeanOutput::kY, LeanOutput::kStatic, LeanOutput::kPerBlock}) {
    const bool reduces = output == LeanOutput::kPerBlock;
    for (const int64_t rows : {1, 4}) {
      const LeanRowsPlan plan = SwiGluPlan(output, rows, 14336);
      EXPECT_EQ(plan.variant.columns, 4);
      EXPECT_FALSE(plan.variant.many_rows);
      EXPECT_EQ(plan.lanes, 128);  // half of the last block's waves leave
      EXPECT_EQ(plan.blocks(), rows * 32);
      EXPECT_EQ(plan.late_dependents, reduces);
    }
    EXPECT_EQ(SwiGluPlan(output, 32, 14336).lanes, reduces ? 128 : 448);
    EXPECT_TRUE(SwiGluPlan(output, 32, 14336).late_dependents);
    EXPECT_EQ(SwiGluPlan(output, 64, 14336).variant.columns, reduces ? 8 : 4);
    EXPECT_EQ(SwiGluPlan(output, 128, 14336).variant.columns, 8);
    EXPECT_FALSE(SwiGluPlan(output, 128, 14336).variant.many_rows);
    EXPECT_EQ(SwiGluPlan(output, 128, 14336).lanes, 224);
    EXPECT_TRUE(SwiGluPlan(output, 8192, 14336).variant.many_rows);
    EXPECT_EQ(SwiGluPlan(output, 8192, 14336).blocks(), 82 * 8);
    // f16 has the registers for fewer.
    EXPECT_EQ(SwiGluPlan(output, 8192, 14336, DType::kF16).blocks(), 66 * 8);
  }
}

TEST(LeanRowsPolicy, SwiGluWithAScaleARow) {
  const LeanRowsPlan one = SwiGluPlan(LeanOutput::kPerRow, 1, 14336);
  EXPECT_EQ(one.row_blocks(), 8);
  EXPECT_EQ(one.lanes, 224);
  EXPECT_EQ(SwiGluPlan(LeanOutput::kPerRow, 32, 14336).row_blocks(), 8);
  EXPECT_EQ(SwiGluPlan(LeanOutput::kPerRow, 64, 14336).row_blocks(), 2);
  EXPECT_EQ(SwiGluPlan(LeanOutput::kPerRow, 32, 4096).row_blocks(), 1);
  const LeanRowsPlan some = SwiGluPlan(LeanOutput::kPerRow, 128, 14336);
  EXPECT_EQ(some.row_blocks(), 1);
  EXPECT_EQ(some.variant.pieces, 2);
  EXPECT_FALSE(some.variant.many_rows);
  EXPECT_EQ(SwiGluPlan(LeanOutput::kPerRow, 128, 8192).variant.pieces, 1);
  const LeanRowsPlan many = SwiGluPlan(LeanOutput::kPerRow, 2048, 14336);
  EXPECT_TRUE(many.variant.many_rows);
  EXPECT_EQ(many.lanes, 896);
  EXPECT_EQ(many.blocks(), 132);
  const LeanRowsPlan wide = SwiGluPlan(LeanOutput::kPerRow, 2048, 28672);
  EXPECT_EQ(wide.variant.scope, gpu::RowScope::kCluster);
  EXPECT_EQ(wide.row_blocks(), 8);
}

TEST(LeanRowsPolicy, Quantize) {
  for (const LeanOutput output : {LeanOutput::kStatic, LeanOutput::kPerBlock}) {
    for (const int64_t rows : {1, 32, 2048}) {
      const LeanRowsPlan plan = PlainPlan(output, rows, 4096);
      EXPECT_EQ(plan.variant.columns, 8);
      EXPECT_EQ(plan.lanes, 256);
      EXPECT_EQ(plan.blocks(), rows * 2);
    }
  }
  for (const int64_t rows : {1, 32, 2048}) {
    EXPECT_EQ(PlainPlan(LeanOutput::kPerRow, rows, 2048).variant.pieces, 1);
    EXPECT_EQ(PlainPlan(LeanOutput::kPerRow, rows, 4096).variant.pieces, 2);
    EXPECT_EQ(PlainPlan(LeanOutput::kPerRow, rows, 4096).lanes, 256);
  }
  EXPECT_EQ(PlainPlan(LeanOutput::kPerRow, 16, 28672).row_blocks(), 8);
  EXPECT_EQ(PlainPlan(LeanOutput::kPerRow, 64, 28672).variant.pieces, 4);
  EXPECT_EQ(PlainPlan(LeanOutput::kPerRow, 64, 65536).row_blocks(), 8);
}

TEST(LeanRowsPolicy, OtherRowsAreLeft) {
  const auto selects = [](LeanOutput output, int64_t rows, int64_t cols,
                          const gpu::RowArch& arch = kH200) {
    return SelectLeanRowsPlan(output, rows, cols, 2, DType::kBF16, arch)
        .has_value();
  };
  for (const LeanOutput output : kOutputs) {
    EXPECT_FALSE(selects(output, 1, 248));
    EXPECT_FALSE(selects(output, 1, 4100));
    EXPECT_FALSE(selects(output, int64_t{1} << 30, 512));
    EXPECT_FALSE(selects(output, 1, int64_t{1} << 30));
  }
  EXPECT_FALSE(selects(LeanOutput::kPerRow, 1, 65544));
  EXPECT_FALSE(selects(LeanOutput::kPerRow, 1, 16392, kNoClusters));
}

}  // namespace
}  // namespace lamina::quant_internal
