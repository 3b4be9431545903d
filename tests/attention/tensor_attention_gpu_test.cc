// DecodeAttention on the tensor cores, on the host (SIMT) and on a GPU, with
// the plans that the policy takes and others. How splits are combined, how many
// tokens share a block and what else is in the call must not change a bit.

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <vector>

#include "gtest/gtest.h"
#include "lamina/attention/decode_attention/decode_attention_gpu.h"
#include "tests/attention/attention_case.h"

namespace lamina {

namespace attention_internal {
// NOTE: weak, for builds without a GPU have none, and skip every test.
__attribute__((weak)) absl::Status DecodeAttentionGpu(
    const DecodeAttentionArgs& args, float scale, const Stream& stream,
    const DecodeAttentionGpuPlan& plan);
}  // namespace attention_internal

namespace {

using attention_internal::DecodeAttentionGpuPlan;
using attention_internal::IsForTensorCores;
using attention_internal::kMaxSplitCluster;
using attention_internal::kTilePositions;
using attention_internal::SelectTensorAttentionPlan;
using attention_internal::SplitRule;
using attention_internal::TensorAttentionPlan;
using attention_internal::TensorAttentionProblem;
using testing::AttentionCase;
using testing::CaseShape;
using testing::FirstDifference;
using testing::Random;
using testing::Rising;
using testing::TestStream;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

class TensorAttention : public ::testing::Test {
 protected:
  void SetUp() override {
    if (TestStream().device().backend != Backend::kCuda) {
      GTEST_SKIP() << "the tensor cores' kernels are CUDA's";
    }
  }
};

template <class T, class C>
TensorAttentionPlan PlanOf(AttentionCase<T, C>& test) {
  const DecodeAttentionArgs args = test.Args();
  EXPECT_TRUE(IsForTensorCores(args, TestStream()));
  return SelectTensorAttentionPlan(
      {.tokens = args.q.batch,
       .heads = args.q.rows,
       .kv_heads = args.cache.kv_heads,
       .head_dim = args.q.cols,
       .max_position = args.max_position,
       .window = args.window,
       .q_type = args.q.dtype,
       .kv_type = args.cache.dtype,
       .neighbours = args.sequence_ids != nullptr},
      attention_internal::TensorArchOf(GetDeviceInfo(TestStream().device())));
}

// With a workspace of its own, which is large enough for every plan here.
template <class T, class C>
std::vector<T> RunPlan(AttentionCase<T, C>& test,
                       const TensorAttentionPlan& plan,
                       uint8_t workspace_byte = 0xff) {
  DecodeAttentionArgs args = test.Args();
  std::vector<uint8_t> workspace(
      static_cast<size_t>(
          args.workspace_bytes +
          plan.tokens * args.q.rows * plan.splits * (2 + args.q.cols) * 4 + 16),
      workspace_byte);
  args.workspace = workspace.data();
  args.workspace_bytes = static_cast<int64_t>(workspace.size());
  const float scale =
      static_cast<float>(1.0 / std::sqrt(static_cast<double>(args.q.cols)));
  return test.RunWith(args, [&](const DecodeAttentionArgs& given) {
    return attention_internal::DecodeAttentionGpu(given, scale, TestStream(),
                                                  {.tensor = plan});
  });
}

// Through a cluster of that size, or the workspace (1).
TensorAttentionPlan Combined(TensorAttentionPlan plan, int slots,
                             int cluster_blocks) {
  plan.slots = slots;
  plan.cluster_blocks = cluster_blocks;
  plan.splits = std::max(plan.split.max_splits, slots);
  return plan;
}
// Rings of another depth, or that stop at the end of a split.
TensorAttentionPlan Deep(TensorAttentionPlan plan, int stages, bool run_ahead) {
  plan.stages = stages;
  plan.run_ahead = run_ahead;
  return plan;
}

TEST_F(TensorAttention, TypesAndHeadDimsAreCloseToDouble) {
  const auto check = [&]<class T, class C>(T, C) {
    for (int64_t head_dim : {16, 48, 64, 80, 96, 112, 128}) {
      for (int64_t group : {1, 4, 7, 16, 20}) {
        if (testing::OnSimt() &&
            ((group != 4 && group != 20) || head_dim % 80 != 48)) {
          continue;  // 48 and 128
        }
        SCOPED_TRACE(::testing::Message() << head_dim << " " << group);
        AttentionCase<T, C> test({.heads = 2 * group,
                                  .cache = {.sequences = 2,
                                            .capacity = 300,
                                            .kv_heads = 2,
                                            .head_dim = head_dim,
                                            .page_tokens = 16},
                                  .positions = {270, 40},
                                  .k_scale = 0.37f,
                                  .v_scale = 1.3f});
        ASSERT_TRUE(IsForTensorCores(test.Args(), TestStream()));
        test.ExpectClose();
      }
    }
  };
  check(BF16{}, BF16{});
  check(F16{}, F16{});
  check(BF16{}, F8E4M3Fn{});
  check(F16{}, F8E4M3Fn{});
}

// Every length around tiles and splits, with and without pages that end within
// tiles, in one call.
TEST_F(TensorAttention, LengthsAreCloseToDouble) {
  for (int64_t page_tokens : {0, 5, 16, 24, 64}) {
    SCOPED_TRACE(page_tokens);
    CaseShape shape = {.heads = 4,
                       .cache = {.capacity = 2100,
                                 .kv_heads = 1,
                                 .head_dim = 64,
                                 .page_tokens = page_tokens}};
    for (int32_t length : {1, 15, 16, 17, 127, 128, 129, 255, 256, 257, 1023,
                           1024, 1025, 1040, 2047, 2048, 2049}) {
      shape.positions.push_back(length - 1);
    }
    shape.cache.sequences = static_cast<int64_t>(shape.positions.size());
    AttentionCase<BF16, BF16>(shape).ExpectClose();
  }
}

TEST_F(TensorAttention, WaysOfCombiningGiveTheSameBits) {
  CaseShape shape = {.heads = 8,
                     .cache = {.sequences = 4,
                               .capacity = 700,
                               .kv_heads = 2,
                               .head_dim = 64,
                               .page_tokens = 16},
                     .positions = {699, 0, 130, 512}};
  AttentionCase<BF16, BF16> test(shape);
  TensorAttentionPlan plan = PlanOf(test);
  plan.split = {.min_tiles = 3, .max_splits = 8};
  plan.tokens = 4;
  const std::vector<BF16> want = RunPlan(test, Combined(plan, 8, 8));
  EXPECT_EQ(FirstDifference(RunPlan(test, Combined(plan, 8, 1)), want), -1);
  // Blocks without a split.
  EXPECT_EQ(FirstDifference(RunPlan(test, Combined(plan, 11, 1), 0x7f), want),
            -1);
  // Tokens in turns.
  plan.tokens = 1;
  EXPECT_EQ(FirstDifference(RunPlan(test, Combined(plan, 9, 1)), want), -1);
  plan.tokens = 4;
  // Blocks with several splits.
  for (int slots : {1, 2, 4}) {
    SCOPED_TRACE(slots);
    const TensorAttentionPlan met = Combined(plan, slots, slots);
    EXPECT_EQ(FirstDifference(RunPlan(test, met), want), -1);
    for (int stages : {1, 2, 3, 4}) {
      if (testing::OnSimt() && slots == 4) continue;
      EXPECT_EQ(FirstDifference(RunPlan(test, Deep(met, stages, true)), want),
                -1);
    }
    EXPECT_EQ(FirstDifference(RunPlan(test, Deep(met, 2, false)), want), -1);
  }
  for (int slots : {2, 3, 5}) {
    EXPECT_EQ(FirstDifference(RunPlan(test, Combined(plan, slots, 1)), want),
              -1)
        << slots;
  }
  // Rows of a product that nobody needs.
  plan.variant.rows = attention_internal::kTensorRows;
  EXPECT_EQ(FirstDifference(RunPlan(test, Combined(plan, 8, 8)), want), -1);
  EXPECT_EQ(FirstDifference(RunPlan(test, Combined(plan, 2, 2)), want), -1);
  // One split of all.
  plan.split = {.min_tiles = 100, .max_splits = 8};
  plan.tokens = 4;
  const std::vector<BF16> one = RunPlan(test, Combined(plan, 1, 1));
  EXPECT_EQ(FirstDifference(RunPlan(test, Combined(plan, 4, 4)), one), -1);
  EXPECT_EQ(FirstDifference(RunPlan(test, Combined(plan, 3, 1)), one), -1);
}

TEST_F(TensorAttention, MaxPositionDoesNotMatter) {
  CaseShape shape = {.heads = 4,
                     .cache = {.sequences = 3,
                               .capacity = 400,
                               .kv_heads = 1,
                               .head_dim = 128},
                     .positions = {399, 30, 200}};
  AttentionCase<F16, F16> test(shape);
  const std::vector<F16> want = test.Run();
  for (int64_t max_position : {400, 1000, 5000, 200000}) {
    DecodeAttentionArgs args = test.Args();
    args.max_position = max_position;
    const absl::StatusOr<int64_t> bytes =
        DecodeAttentionWorkspaceBytes({.tokens = 3,
                                       .heads = 4,
                                       .kv_heads = 1,
                                       .head_dim = 128,
                                       .max_position = max_position,
                                       .q_type = DType::kF16,
                                       .kv_type = DType::kF16},
                                      GetDeviceInfo(TestStream().device()));
    ASSERT_TRUE(bytes.ok());
    std::vector<uint8_t> workspace(static_cast<size_t>(*bytes), 0xff);
    args.workspace = workspace.data();
    args.workspace_bytes = *bytes;
    const std::vector<F16> got =
        test.RunWith(args, [&](const DecodeAttentionArgs& given) {
          return DecodeAttention(given, TestStream());
        });
    EXPECT_EQ(FirstDifference(got, want), -1) << max_position;
  }
}

// Neighbouring tokens of one sequence share a block: each has the bits that it
// has alone.
TEST_F(TensorAttention, TokensOfOneSequenceEqualThemselvesAlone) {
  for (int64_t window : {0, 1, 17, 40, 100}) {
    for (int64_t group : {1, 3, 4, 9}) {
      SCOPED_TRACE(::testing::Message() << window << " " << group);
      CaseShape shape = {.heads = group,
                         .cache = {.sequences = 3,
                                   .capacity = 300,
                                   .kv_heads = 1,
                                   .head_dim = 32,
                                   .page_tokens = 16},
                         .window = window};
      const auto add = [&](int32_t sequence, int32_t begin, int32_t end) {
        for (int32_t p = begin; p < end; ++p) {
          shape.sequence_ids.push_back(sequence);
          shape.positions.push_back(p);
        }
      };
      add(0, 0, 19);     // a prefill
      add(1, 250, 267);  // a chunk of one
      add(2, 61, 63);
      add(1, 63, 66);  // not its continuation
      add(0, 40, 41);
      add(0, 40, 41);  // twice the same
      add(2, 299, 300);
      AttentionCase<BF16, BF16> test(shape);
      const std::vector<BF16> all = test.Run();
      const TensorAttentionPlan plan = PlanOf(test);
      EXPECT_EQ(plan.run_tokens > 1, group <= 8);
      TensorAttentionPlan alone = plan;
      alone.run_tokens = 1;
      EXPECT_EQ(FirstDifference(RunPlan(test, alone), all), -1);
      if (group == 4 || window == 17) test.ExpectClose();
    }
  }
}

// Tokens that share a tile: what one of them may not see does not reach it.
TEST_F(TensorAttention, InfiniteValuesReachOnlyWhoAttendsToThem) {
  for (int64_t window : {0, 5, 20}) {
    SCOPED_TRACE(window);
    CaseShape shape = {.heads = 2,
                       .cache = {.sequences = 1,
                                 .capacity = 48,
                                 .kv_heads = 1,
                                 .head_dim = 16},
                       .sequence_ids = std::vector<int32_t>(48, 0),
                       .positions = Rising(0, 48),
                       .window = window};
    AttentionCase<BF16, BF16> test(shape);
    ASSERT_GT(PlanOf(test).run_tokens, 1);
    const std::vector<BF16> want = test.Run();
    test.cache().V(0, 21, 0)[3] = FromFloat<BF16>(kInfinity);
    const std::vector<BF16> y = test.Run();
    for (int64_t t = 0; t < 48; ++t) {
      const bool sees = t >= 21 && (window == 0 || t < 21 + window);
      for (int64_t i = 0; i < 32; ++i) {
        const BF16 got = y[static_cast<size_t>(t * 32 + i)];
        if (sees && i % 16 == 3) {
          ASSERT_FALSE(std::isfinite(ToFloat(got))) << t;
        } else {
          ASSERT_EQ(got, want[static_cast<size_t>(t * 32 + i)]) << t;
        }
      }
    }
  }
}

TEST_F(TensorAttention, SpecialScores) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  CaseShape shape = {
      .heads = 1,
      .cache = {.sequences = 1, .capacity = 600, .kv_heads = 1, .head_dim = 16},
      .sequence_ids = {0},
      .positions = {599},
      .scale = 1.0f};
  AttentionCase<BF16, BF16> test(shape);
  for (int64_t d = 0; d < 16; ++d) {
    test.q().At<BF16>(0, d) = FromFloat<BF16>(d == 0);
    for (int64_t p = 0; p < 600; ++p) {
      test.cache().K(0, p, 0)[d] = FromFloat<BF16>(0.0f);
      test.cache().V(0, p, 0)[d] = FromFloat<BF16>(1.0f);
    }
  }
  const auto with_score = [&](int64_t position, float score) {
    BF16& k = test.cache().K(0, position, 0)[0];
    const BF16 before = k;
    k = FromFloat<BF16>(score);
    const float y = ToFloat(test.Run()[0]);
    k = before;
    return y;
  };
  for (int64_t p : {0, 15, 16, 300, 599}) {
    SCOPED_TRACE(p);
    EXPECT_TRUE(std::isnan(with_score(p, nan)));
    EXPECT_TRUE(std::isnan(with_score(p, kInfinity)));
    EXPECT_EQ(with_score(p, -kInfinity), 1.0f);
    EXPECT_EQ(with_score(p, 3e38f), 1.0f);
  }
  for (int64_t p = 0; p < 600; ++p) {
    test.cache().K(0, p, 0)[0] = FromFloat<BF16>(-kInfinity);
  }
  EXPECT_TRUE(std::isnan(ToFloat(test.Run()[0])));
  test.cache().K(0, 599, 0)[0] = FromFloat<BF16>(-5.0f);
  test.cache().V(0, 599, 0)[0] = FromFloat<BF16>(7.0f);
  EXPECT_EQ(ToFloat(test.Run()[0]), 7.0f);
}

// q beyond the range of F16, and below it.
TEST_F(TensorAttention, Fp8CachesTakeAnyQ) {
  for (float factor : {1e-30f, 1e-6f, 1e6f, 1e30f}) {
    SCOPED_TRACE(factor);
    CaseShape shape = {.heads = 2,
                       .cache = {.sequences = 1,
                                 .capacity = 200,
                                 .kv_heads = 1,
                                 .head_dim = 64},
                       .sequence_ids = {0},
                       .positions = {199},
                       .scale = 0.1f / factor};
    AttentionCase<BF16, F8E4M3Fn> test(shape);
    for (int64_t i = 0; i < 128; ++i) {
      BF16& q = test.q().At<BF16>(0, i);
      q = FromFloat<BF16>(ToFloat(q) * factor);
    }
    test.ExpectClose();
  }
}

TEST_F(TensorAttention, TheSameBitsEveryTime) {
  CaseShape shape = {.heads = 32,
                     .cache = {.sequences = 3,
                               .capacity = 1100,
                               .kv_heads = 8,
                               .head_dim = 128,
                               .page_tokens = 64},
                     .positions = {1023, 77, 1099}};
  AttentionCase<BF16, BF16> test(shape);
  const std::vector<BF16> want = test.Run();
  for (int i = 0; i < (testing::OnSimt() ? 1 : 200); ++i) {
    ASSERT_EQ(FirstDifference(test.Run(), want), -1) << i;
  }
}

}  // namespace
}  // namespace lamina
