#include "lamina/attention/decode_attention.h"

#include <cmath>
#include <limits>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lamina/attention/decode_attention/decode_attention_policy.h"
#include "lamina/attention/decode_attention/tensor_attention_policy.h"
#include "tests/attention/attention_case.h"
#include "tests/support/missing_backend.h"
#include "tests/support/sparse_memory.h"

namespace lamina {
namespace {

using testing::CacheShape;
using testing::CaseShape;
using testing::ForEachTarget;
using testing::GuardedMatrix;
using testing::Random;
using testing::Rising;
using testing::SameBits;
using testing::TestCache;
using testing::TestStream;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
// ---- All types.
// --------------------------------------------------------------

template <class Row>
class DecodeAttentionTypes : public ::testing::Test {};
using AllTypes = testing::PairsOf<DecodeAttentionTable, KvCacheTable>::type;
TYPED_TEST_SUITE(DecodeAttentionTypes, AllTypes, testing::TypeNames);

TYPED_TEST(DecodeAttentionTypes, DecodeEqualsTheRule) {
  using T = typename testing::FirstOf<TypeParam>::type;
  using C = typename testing::SecondOf<TypeParam>::type;
  testing::AttentionCase<T, C> test({.heads = 6,
                                     .cache = {.sequences = 4,
                                               .capacity = 530,
                                               .kv_heads = 2,
                                               .head_dim = 64,
                                               .page_tokens = 48},
                                     .positions = {0, 255, 256, 529},
                                     .k_scale = 0.37f,
                                     .v_scale = 1.3f});
  test.ExpectModel();
}

TYPED_TEST(DecodeAttentionTypes, PrefillOfOddShapeEqualsTheRule) {
  using T = typename testing::FirstOf<TypeParam>::type;
  using C = typename testing::SecondOf<TypeParam>::type;
  testing::AttentionCase<T, C> test(
      {.heads = 3,
       .cache = {.sequences = 1,
                 .capacity = 300,
                 .kv_heads = 1,
                 .head_dim = 37,
                 .padding = 3,
                 .offset = 1},
       .sequence_ids = std::vector<int32_t>(45, 0),
       .positions = Rising(240, 285),
       .k_scale = 0.37f,
       .v_scale = 1.3f,
       .q_padding = 5,
       .y_padding = 1,
       .q_offset = 1,
       .y_offset = 3});
  test.ExpectModel();
}

// ---- Shapes.
// -------------------------------------------------------------------

TEST(DecodeAttention, HeadDimsAndGroupsEqualTheRule) {
  for (int64_t head_dim :
       {1, 2, 7, 8, 16, 17, 31, 64, 80, 96, 100, 128, 192, 256, 257, 512}) {
    for (int64_t group : {1, 3, 4}) {
      SCOPED_TRACE(::testing::Message()
                   << "head_dim " << head_dim << " group " << group);
      testing::AttentionCase<BF16, BF16> test({.heads = 2 * group,
                                               .cache = {.sequences = 2,
                                                         .capacity = 40,
                                                         .kv_heads = 2,
                                                         .head_dim = head_dim},
                                               .positions = {19, 36}});
      test.ExpectModel();
    }
  }
}

TEST(DecodeAttention, GroupsLargerThanATileEqualTheRule) {
  for (int64_t group : {31, 32, 33, 71}) {
    SCOPED_TRACE(group);
    testing::AttentionCase<float, F16> test({.heads = group,
                                             .cache = {.sequences = 2,
                                                       .capacity = 300,
                                                       .kv_heads = 1,
                                                       .head_dim = 40},
                                             .positions = {10, 299}});
    test.ExpectModel();
  }
}

// Lengths on both sides of a chunk, a block and a vector; all sequences in one
// call.
TEST(DecodeAttention, LengthsEqualTheRule) {
  CaseShape shape = {
      .heads = 3,
      .cache = {
          .capacity = 1100, .kv_heads = 1, .head_dim = 64, .page_tokens = 16}};
  shape.positions = {0,   1,   2,   6,   7,   8,   14,  15,   16,   30,  31,
                     62,  63,  64,  126, 127, 128, 191, 254,  255,  256, 257,
                     300, 510, 511, 512, 700, 767, 768, 1000, 1023, 1024};
  shape.cache.sequences = static_cast<int64_t>(shape.positions.size());
  testing::AttentionCase<BF16, BF16>(shape).ExpectModel();
}

TEST(DecodeAttention, WindowsEqualTheRule) {
  for (int64_t window : {1, 2, 8, 63, 255, 256, 257, 300, 599, 600, 5000}) {
    SCOPED_TRACE(window);
    CaseShape shape = {.heads = 4,
                       .cache = {.sequences = 2,
                                 .capacity = 600,
                                 .kv_heads = 2,
                                 .head_dim = 32,
                                 .page_tokens = 20},
                       .window = window};
    // Prefill of one sequence, decode of the other, then far-away tokens.
    for (int32_t p = 250; p < 262; ++p) {
      shape.sequence_ids.push_back(0);
      shape.positions.push_back(p);
    }
    for (int32_t p : {599, 0, 512, 511}) {
      shape.sequence_ids.push_back(1);
      shape.positions.push_back(p);
    }
    testing::AttentionCase<F16, BF16>(shape).ExpectModel();
  }
}

TEST(DecodeAttention, WindowOneReturnsTheOwnValue) {
  testing::AttentionCase<float, float> test({.heads = 2,
                                             .cache = {.sequences = 1,
                                                       .capacity = 300,
                                                       .kv_heads = 1,
                                                       .head_dim = 16},
                                             .sequence_ids = {0, 0, 0},
                                             .positions = {0, 256, 299},
                                             .window = 1});
  const std::vector<float> y = test.Run();
  for (int64_t t = 0; t < 3; ++t) {
    for (int64_t h = 0; h < 2; ++h) {
      const int64_t p = test.Args().positions[t];
      for (int64_t d = 0; d < 16; ++d) {
        EXPECT_EQ(y[(t * 2 + h) * 16 + d], test.cache().V(0, p, 0)[d]);
      }
    }
  }
}

// Pages outside the window may have been given away.
TEST(DecodeAttention, PagesOutsideTheWindowAreNotLookedAt) {
  testing::AttentionCase<BF16, BF16> test({.heads = 1,
                                           .cache = {.sequences = 1,
                                                     .capacity = 640,
                                                     .kv_heads = 1,
                                                     .head_dim = 8,
                                                     .page_tokens = 64},
                                           .sequence_ids = {0},
                                           .positions = {600},
                                           .window = 100});
  const std::vector<BF16> want = test.Model();
  for (size_t i = 0; i < 7; ++i) test.cache().table()[i] = -1;
  EXPECT_EQ(testing::FirstDifference(test.Run(2), want), -1);
}

// Several KV heads in one tile, whole tiles and split ones, heads left over.
TEST(DecodeAttention, ManyHeadsEqualTheRule) {
  for (int64_t kv_heads : {1, 2, 5, 11}) {
    for (int64_t group : {1, 2, 3, 7}) {
      SCOPED_TRACE(::testing::Message() << kv_heads << " x " << group);
      testing::AttentionCase<BF16, F16>({.heads = kv_heads * group,
                                         .cache = {.sequences = 3,
                                                   .capacity = 530,
                                                   .kv_heads = kv_heads,
                                                   .head_dim = 48,
                                                   .page_tokens = 24,
                                                   .heads_outside = group == 2},
                                         .positions = {529, 3, 270}})
          .ExpectModel();
    }
  }
}

TEST(DecodeAttention, LayoutsOfTheCacheGiveTheSameBits) {
  CaseShape shape = {
      .heads = 6,
      .cache = {.sequences = 2, .capacity = 333, .kv_heads = 3, .head_dim = 24},
      .positions = {332, 131}};
  const std::vector<BF16> want = testing::AttentionCase<BF16, F16>(shape).Run();
  for (int64_t page_tokens : {0, 1, 7, 16, 64, 256, 1000}) {
    for (bool heads_outside : {false, true}) {
      for (int64_t padding : {0, 1, 8, 24}) {
        shape.cache.page_tokens = page_tokens;
        shape.cache.heads_outside = heads_outside;
        shape.cache.padding = padding;
        shape.cache.offset = padding % 5;
        EXPECT_EQ(testing::FirstDifference(
                      testing::AttentionCase<BF16, F16>(shape).Run(2), want),
                  -1)
            << page_tokens << " " << heads_outside << " " << padding;
      }
    }
  }
}

// q and y as slices of wider rows, at every element offset.
TEST(DecodeAttention, StridedAndMisalignedRowsGiveTheSameBits) {
  CaseShape shape = {
      .heads = 3,
      .cache = {.sequences = 5, .capacity = 70, .kv_heads = 1, .head_dim = 33},
      .positions = {3, 8, 17, 69, 0}};
  const std::vector<F16> want = testing::AttentionCase<F16, BF16>(shape).Run();
  for (int64_t offset : {0, 1, 2, 4}) {
    for (int64_t padding : {0, 1, 8, 99}) {
      shape.q_offset = offset;
      shape.y_offset = 4 - offset;
      shape.q_padding = padding;
      shape.y_padding = 99 - padding;
      EXPECT_EQ(testing::FirstDifference(
                    testing::AttentionCase<F16, BF16>(shape).Run(), want),
                -1);
    }
  }
}

// Heads outside tokens: [heads, tokens, head_dim] memory as a view.
TEST(DecodeAttention, HeadsMayBeOutsideTokensInMemory) {
  constexpr int64_t kTokens = 3, kHeads = 2, kDim = 8;
  const CaseShape shape = {.heads = kHeads,
                           .cache = {.sequences = kTokens,
                                     .capacity = 20,
                                     .kv_heads = 1,
                                     .head_dim = kDim},
                           .positions = {3, 11, 19}};
  testing::AttentionCase<float, BF16> test(shape);
  const std::vector<float> want = test.Run();
  std::vector<float> q(kTokens * kHeads * kDim), y(q.size());
  for (int64_t t = 0; t < kTokens; ++t) {
    for (int64_t h = 0; h < kHeads; ++h) {
      for (int64_t d = 0; d < kDim; ++d) {
        q[(h * kTokens + t) * kDim + d] = test.q().At<float>(t, h * kDim + d);
      }
    }
  }
  DecodeAttentionArgs args = test.Args();
  MatrixView view = Matrix(q.data(), kHeads, kDim, kTokens * kDim);
  view.batch = kTokens;
  view.batch_stride = kDim;
  args.q = view;
  args.y = view;
  args.y.data = y.data();
  ASSERT_TRUE(DecodeAttention(args, TestStream(1)).ok());
  for (int64_t t = 0; t < kTokens; ++t) {
    for (int64_t h = 0; h < kHeads; ++h) {
      for (int64_t d = 0; d < kDim; ++d) {
        EXPECT_EQ(y[(h * kTokens + t) * kDim + d],
                  want[(t * kHeads + h) * kDim + d]);
      }
    }
  }
}

TEST(DecodeAttention, ZeroTokensDoNothing) {
  testing::AttentionCase<BF16, BF16> test(
      {.heads = 1, .cache = {.sequences = 1, .capacity = 4}, .positions = {}});
  DecodeAttentionArgs args = test.Args();
  args.q.data = args.y.data = nullptr;
  args.positions = nullptr;
  EXPECT_TRUE(DecodeAttention(args, TestStream(1)).ok());
}

// ---- Independence of everything that is not the token.
// -------------------------

TEST(DecodeAttention, ATokenAloneEqualsTheTokenAmongOthers) {
  CaseShape shape = {.heads = 9,
                     .cache = {.sequences = 8,
                               .capacity = 700,
                               .kv_heads = 3,
                               .head_dim = 64,
                               .page_tokens = 32}};
  Random random(3);
  // Runs of several sequences, positions in no order, repeated ones included.
  for (int i = 0; i < 120; ++i) {
    shape.sequence_ids.push_back(
        i < 60 ? 2 : static_cast<int32_t>(random.Integer(0, 7)));
    shape.positions.push_back(static_cast<int32_t>(random.Integer(0, 699)));
  }
  testing::AttentionCase<BF16, BF16> test(shape);
  const std::vector<BF16> all = test.Run(2);
  EXPECT_EQ(testing::FirstDifference(all, test.Run(2)), -1) << "second run";
  const int64_t row = 9 * 64;
  for (int64_t t = 0; t < test.tokens(); t += 7) {
    test.y().Poison();
    DecodeAttentionArgs args = test.Args();
    args.q.data = test.q().Row<BF16>(t);
    args.q.batch = 1;
    args.y.data = test.y().Row<BF16>(t);
    args.y.batch = 1;
    args.sequence_ids += t;
    args.positions += t;
    ASSERT_TRUE(DecodeAttention(args, TestStream(3)).ok());
    for (int64_t i = 0; i < row; ++i) {
      ASSERT_TRUE(SameBits(test.y().At<BF16>(t, i), all[t * row + i]))
          << "token " << t;
    }
  }
}

TEST(DecodeAttention, TwoHostThreadsGiveTheSerialResult) {
  const CaseShape shape = {.heads = 3,
                           .cache = {.sequences = 1,
                                     .capacity = 2000,
                                     .kv_heads = 1,
                                     .head_dim = 64},
                           .sequence_ids = {0},
                           .positions = {1999}};
  testing::AttentionCase<BF16, BF16> a(shape, 1), b(shape, 2);
  const std::vector<BF16> want_a = a.Run(), want_b = b.Run();
  int wrong = 0;
  std::thread other([&] {
    for (int i = 0; i < 30; ++i) {
      wrong += testing::FirstDifference(a.Run(2), want_a) != -1;
    }
  });
  int wrong_here = 0;
  for (int i = 0; i < 30; ++i) {
    wrong_here += testing::FirstDifference(b.Run(2), want_b) != -1;
  }
  other.join();
  EXPECT_EQ(wrong + wrong_here, 0);
}

// ---- Against double.
// -----------------------------------------------------------

TEST(DecodeAttention, IsCloseToSoftmaxInDouble) {
  for (float deviation : {0.1f, 1.0f, 30.0f}) {
    CaseShape shape = {.heads = 6,
                       .cache = {.sequences = 2,
                                 .capacity = 3000,
                                 .kv_heads = 2,
                                 .head_dim = 128},
                       .positions = {2999, 777}};
    testing::AttentionCase<float, float> test(shape);
    for (int64_t t = 0; t < 2; ++t) {
      for (int64_t i = 0; i < 6 * 128; ++i)
        test.q().At<float>(t, i) *= deviation;
    }
    const std::vector<float> y = test.Run(2);
    double worst = 0;
    for (int64_t t = 0; t < 2; ++t) {
      for (int64_t h = 0; h < 6; ++h) {
        const std::vector<double> want =
            test.Expect(t, h, [](const auto& p, auto key, auto value) {
              return testing::AttentionReference(p, key, value);
            });
        for (int64_t d = 0; d < 128; ++d) {
          worst = std::max(worst, std::abs(y[(t * 6 + h) * 128 + d] - want[d]));
        }
      }
    }
    // Scores reach 4 * deviation; their fp32 rounding is what remains.
    EXPECT_LT(worst, 2e-6 * std::max(1.0f, deviation)) << deviation;
    EXPECT_GT(worst, 0.0);
  }
}

// ---- Special values.
// -----------------------------------------------------------

// One head of 4 dimensions, q = (1, 0, 0, 0), scale 1: score j is k(j)[0].
class DecodeAttentionValues : public ::testing::Test {
 protected:
  DecodeAttentionValues()
      : test_({.heads = 1,
               .cache = {.sequences = 1,
                         .capacity = 600,
                         .kv_heads = 1,
                         .head_dim = 4},
               .sequence_ids = {0},
               .positions = {599},
               .scale = 1.0f}) {
    for (int64_t d = 0; d < 4; ++d) test_.q().At<float>(0, d) = d == 0;
    for (int64_t p = 0; p < 600; ++p) {
      for (int64_t d = 0; d < 4; ++d) {
        test_.cache().K(0, p, 0)[d] = 0;
        test_.cache().V(0, p, 0)[d] = 1;
      }
    }
  }
  float& Score(int64_t p) { return test_.cache().K(0, p, 0)[0]; }
  float& Value(int64_t p) { return test_.cache().V(0, p, 0)[0]; }
  testing::AttentionCase<float, float> test_;
};

TEST_F(DecodeAttentionValues, HugeScoresDoNotOverflow) {
  Score(300) = 3e38f;
  Value(300) = 42;
  test_.ExpectModel();
  EXPECT_EQ(test_.Run()[0], 42.0f);
}

TEST_F(DecodeAttentionValues, AMinusInfiniteScoreHasNoWeight) {
  for (int64_t p = 0; p < 599; ++p) Score(p) = -kInfinity;
  // Both first chunks hold no finite score.
  Value(599) = 5;
  for (int64_t p : {0, 255, 256, 511, 598}) Value(p) = 1000;
  EXPECT_EQ(test_.Run()[0], 5.0f);
  EXPECT_EQ(test_.Run(2)[0], 5.0f);
}

TEST_F(DecodeAttentionValues, OnlyMinusInfiniteScoresGiveNaN) {
  for (int64_t p = 0; p < 600; ++p) Score(p) = -kInfinity;
  EXPECT_TRUE(std::isnan(test_.Run()[0]));
}

TEST_F(DecodeAttentionValues, ANaNScoreGivesNaNOnEveryTargetAndPath) {
  for (int64_t p : {0, 100, 255, 256, 599}) {
    Score(p) = std::numeric_limits<float>::quiet_NaN();
    ForEachTarget([&] {
      for (int threads : {1, 2}) {
        for (float y : test_.Run(threads)) EXPECT_TRUE(std::isnan(y));
      }
    });
    Score(p) = 0;
  }
}

TEST_F(DecodeAttentionValues, APlusInfiniteScoreGivesNaN) {
  Score(77) = kInfinity;
  ForEachTarget([&] { EXPECT_TRUE(std::isnan(test_.Run()[0])); });
}

// In a prefill the tokens share a tile; a later position's values must not
// reach an earlier token, not even with weight 0.
TEST(DecodeAttention, LaterInfiniteValuesDoNotReachEarlierTokens) {
  CaseShape shape = {
      .heads = 2,
      .cache = {.sequences = 1, .capacity = 40, .kv_heads = 1, .head_dim = 16},
      .sequence_ids = std::vector<int32_t>(40, 0),
      .positions = Rising(0, 40)};
  testing::AttentionCase<float, float> test(shape);
  const std::vector<float> want = test.Run();
  for (int64_t d = 0; d < 16; ++d) {
    test.cache().V(0, 21, 0)[d] = kInfinity;
    test.cache().K(0, 21, 0)[d] = std::numeric_limits<float>::quiet_NaN();
  }
  ForEachTarget([&] {
    const std::vector<float> y = test.Run(1);
    for (int64_t i = 0; i < 21 * 32; ++i) ASSERT_TRUE(SameBits(y[i], want[i]));
    for (int64_t i = 21 * 32; i < 40 * 32; ++i) ASSERT_TRUE(std::isnan(y[i]));
  });
}

// Lengths of windows in one tile differ at the front too.
TEST(DecodeAttention, EarlierInfiniteValuesDoNotReachTokensPastTheWindow) {
  CaseShape shape = {
      .heads = 1,
      .cache = {.sequences = 1, .capacity = 40, .kv_heads = 1, .head_dim = 16},
      .sequence_ids = std::vector<int32_t>(40, 0),
      .positions = Rising(0, 40),
      .window = 5};
  testing::AttentionCase<float, float> test(shape);
  const std::vector<float> want = test.Run();
  test.cache().V(0, 20, 0)[3] = kInfinity;
  const std::vector<float> y = test.Run();
  for (int64_t t = 0; t < 40; ++t) {
    for (int64_t d = 0; d < 16; ++d) {
      if (t >= 20 && t < 25 && d == 3) {
        EXPECT_TRUE(std::isinf(y[t * 16 + d]));
      } else {
        EXPECT_TRUE(SameBits(y[t * 16 + d], want[t * 16 + d])) << t;
      }
    }
  }
}

TEST(DecodeAttention, TheScaleIsHonoured) {
  CaseShape shape = {.heads = 1,
                     .cache = {.sequences = 1, .capacity = 9, .head_dim = 4},
                     .sequence_ids = {0},
                     .positions = {8}};
  std::set<float> results;
  for (float scale : {0.0f, 0.25f, 1.0f, -1.0f, 1e-30f}) {
    shape.scale = scale;
    testing::AttentionCase<float, float> test(shape);
    test.ExpectModel();
    results.insert(test.Run()[0]);
  }
  EXPECT_EQ(results.size(), 5u);
}

TEST(DecodeAttention, TheScalesOfAnFp8CacheAreHonoured) {
  CaseShape shape = {.heads = 1,
                     .cache = {.sequences = 1, .capacity = 9, .head_dim = 4},
                     .sequence_ids = {0},
                     .positions = {8}};
  std::set<float> results;
  for (float k_scale : {1.0f, 0.5f}) {
    for (float v_scale : {1.0f, 0.5f}) {
      shape.k_scale = k_scale;
      shape.v_scale = v_scale;
      testing::AttentionCase<float, F8E4M3Fn> test(shape);
      test.ExpectModel();
      results.insert(test.Run()[0]);
    }
  }
  EXPECT_EQ(results.size(), 4u);
}

// ---- Far offsets.
// --------------------------------------------------------------

// Two pages 2^31 elements apart and more, in memory that is only reserved.
TEST(DecodeAttention, OffsetsBeyond2To31ElementsWork) {
  constexpr int64_t kStride = (int64_t{1} << 31) + 8;
  const testing::SparseMemory memory(4 * kStride * 2);
  if (!memory.ok()) GTEST_SKIP() << "no address space";
  CaseShape shape = {
      .heads = 2,
      .cache = {.sequences = 2, .capacity = 10, .kv_heads = 1, .head_dim = 16},
      .positions = {9, 5}};
  testing::AttentionCase<BF16, BF16> test(shape);
  const std::vector<BF16> want = test.Run();
  BF16* const k = memory.as<BF16>();
  BF16* v = k + 2 * kStride;
  for (int64_t s = 0; s < 2; ++s) {
    for (int64_t p = 0; p < 10; ++p) {
      std::copy_n(test.cache().K(s, p, 0), 16, k + s * kStride + p * 16);
      std::copy_n(test.cache().V(s, p, 0), 16, v + s * kStride + p * 16);
    }
  }
  DecodeAttentionArgs args = test.Args();
  args.cache.k = k;
  args.cache.v = v;
  args.cache.page_stride = kStride;
  ASSERT_TRUE(DecodeAttention(args, TestStream(1)).ok());
  EXPECT_EQ(testing::FirstDifference(test.y().Dense<BF16>(), want), -1);

  // The same for the tokens of q and y.
  BF16* q = k + 1024;
  BF16* y = v + 1024;
  for (int64_t t = 0; t < 2; ++t) {
    std::copy_n(test.q().Row<BF16>(t), 32, q + t * kStride);
  }
  args = test.Args();
  args.q.data = q;
  args.y.data = y;
  args.q.batch_stride = args.y.batch_stride = kStride;
  ASSERT_TRUE(DecodeAttention(args, TestStream(2)).ok());
  for (int64_t t = 0; t < 2; ++t) {
    for (int64_t i = 0; i < 32; ++i) {
      EXPECT_TRUE(SameBits(y[t * kStride + i], want[t * 32 + i]));
    }
  }
}

// ---- Errors.
// -------------------------------------------------------------------

class DecodeAttentionErrors : public ::testing::Test {
 protected:
  DecodeAttentionErrors()
      : test_({.heads = 4,
               .cache = {.sequences = 2,
                         .capacity = 64,
                         .kv_heads = 2,
                         .head_dim = 8,
                         .page_tokens = 16},
               .sequence_ids = {0, 1, 1},
               .positions = {63, 20, 21}}) {}

  void Expect(const DecodeAttentionArgs& args, absl::StatusCode code,
              const std::string& message) {
    test_.y().Poison();
    const absl::Status status = DecodeAttention(args, TestStream(1));
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr(message));
    for (int64_t t = 0; t < 3; ++t) {
      EXPECT_EQ(test_.y().At<BF16>(t, 0).bits, 0xa5a5) << "written";
    }
  }
  void ExpectInvalid(const DecodeAttentionArgs& args,
                     const std::string& message) {
    Expect(args, absl::StatusCode::kInvalidArgument, message);
  }

  testing::AttentionCase<BF16, BF16> test_;
};

TEST_F(DecodeAttentionErrors, Shapes) {
  DecodeAttentionArgs args = test_.Args();
  args.q.cols = 7;
  ExpectInvalid(args, "DecodeAttention: q.cols: given 7, want 8");
  args = test_.Args();
  args.q.rows = 3;
  ExpectInvalid(args, "DecodeAttention: q.rows: given 3, want a multiple of 2");
  args = test_.Args();
  args.y.rows = 2;
  ExpectInvalid(args, "DecodeAttention: y.rows: given 2, want 4");
  args = test_.Args();
  args.y.batch = 2;
  ExpectInvalid(args, "DecodeAttention: y.batch: given 2, want 3");
  args = test_.Args();
  args.y.batch_stride = 31;
  ExpectInvalid(args, "DecodeAttention: y.batch_stride: given 31");
  args = test_.Args();
  args.q.data = nullptr;
  ExpectInvalid(args, "DecodeAttention: q.data: given null");
}

TEST_F(DecodeAttentionErrors, TypesAndHeadDim) {
  DecodeAttentionArgs args = test_.Args();
  args.q.dtype = DType::kF8E4M3Fn;
  Expect(args, absl::StatusCode::kUnimplemented,
         "DecodeAttention: q.dtype: given f8e4m3fn, supported: f32, f16, bf16");
  args = test_.Args();
  args.cache.dtype = DType::kI8;
  Expect(args, absl::StatusCode::kUnimplemented,
         "DecodeAttention: cache.dtype: given i8, supported: f32");
  args = test_.Args();
  args.y.dtype = DType::kF16;
  ExpectInvalid(args, "DecodeAttention: y.dtype: given f16, want bf16");
  args = test_.Args();
  args.cache.head_dim = args.q.cols = args.y.cols = 513;
  args.cache.head_stride = args.q.row_stride = args.y.row_stride = 513;
  args.cache.token_stride = 2 * 513;
  args.cache.page_stride = 16 * 2 * 513;
  args.q.batch_stride = args.y.batch_stride = 4 * 513;
  Expect(args, absl::StatusCode::kUnimplemented,
         "DecodeAttention: head_dim: given 513, supported: 1 to 512");
}

TEST_F(DecodeAttentionErrors, Cache) {
  DecodeAttentionArgs args = test_.Args();
  args.cache.k = nullptr;
  ExpectInvalid(args, "DecodeAttention: cache.k: given null");
  args = test_.Args();
  args.cache.v = static_cast<char*>(args.cache.v) + 1;
  ExpectInvalid(args, "DecodeAttention: cache.v: given a misaligned pointer");
  args = test_.Args();
  args.cache.head_stride = 7;
  ExpectInvalid(args, "DecodeAttention: cache.head_stride: given 7, want >= 8");
  args = test_.Args();
  args.cache.token_stride = 15;
  ExpectInvalid(args,
                "DecodeAttention: cache.token_stride: given 15, want >= 16");
  args = test_.Args();
  args.cache.page_stride = 255;
  ExpectInvalid(args,
                "DecodeAttention: cache.page_stride: given 255, want >= 256");
  args = test_.Args();
  args.cache.page_stride = int64_t{1} << 60;
  ExpectInvalid(args, "an extent that fits 64 bits");
  args = test_.Args();
  args.cache.kv_heads = 0;
  ExpectInvalid(args, "DecodeAttention: cache.kv_heads: given 0, want >= 1");
  args = test_.Args();
  args.cache.page_tokens = -1;
  ExpectInvalid(args, "DecodeAttention: cache.page_tokens: given -1");
  args = test_.Args();
  args.cache.sequences = 0;
  ExpectInvalid(args, "DecodeAttention: cache.sequences: given 0");
  args = test_.Args();
  const float scale = 1.0f;
  args.cache.v_scale = &scale;
  ExpectInvalid(args,
                "DecodeAttention: cache.v_scale: given a scale for a "
                "bf16 cache");
}

TEST_F(DecodeAttentionErrors, Fp8Scales) {
  testing::AttentionCase<BF16, F8E4M3Fn> test(
      {.heads = 1,
       .cache = {.sequences = 1, .capacity = 4},
       .sequence_ids = {0},
       .positions = {1}});
  for (float scale :
       {0.0f, -1.0f, kInfinity, std::numeric_limits<float>::quiet_NaN()}) {
    DecodeAttentionArgs args = test.Args();
    args.cache.k_scale = &scale;
    EXPECT_THAT(std::string(DecodeAttention(args, TestStream(1)).message()),
                ::testing::HasSubstr("DecodeAttention: cache.k_scale: given "));
  }
}

TEST_F(DecodeAttentionErrors, TokensAreNamed) {
  DecodeAttentionArgs args = test_.Args();
  std::vector<int32_t> positions = {63, 20, 64};
  args.positions = positions.data();
  ExpectInvalid(args,
                "DecodeAttention: positions[2]: given 64, want in [0, 63] "
                "(max_position)");
  args.max_position = 1000;
  ExpectInvalid(args,
                "DecodeAttention: positions[2]: given 64, want below the "
                "capacity of a sequence, 4 pages of 16");
  positions = {63, -1, 21};
  ExpectInvalid(args, "DecodeAttention: positions[1]: given -1");
  args.positions = nullptr;
  ExpectInvalid(args, "DecodeAttention: positions: given null");
  args = test_.Args();
  args.max_position = 62;
  ExpectInvalid(args,
                "DecodeAttention: positions[0]: given 63, want in "
                "[0, 62] (max_position)");
  args = test_.Args();
  const std::vector<int32_t> ids = {0, 2, 1};
  args.sequence_ids = ids.data();
  ExpectInvalid(args,
                "DecodeAttention: sequence_ids[1]: given 2, want in "
                "[0, 2) (cache.sequences)");
  args.sequence_ids = nullptr;  // token 2 would be of sequence 2
  ExpectInvalid(args, "DecodeAttention: sequence_ids[2]: given 2");
  args = test_.Args();
  for (int32_t bad : {-1, 9}) {
    const int32_t good = test_.cache().table()[1];
    test_.cache().table()[1] = bad;
    ExpectInvalid(args,
                  "DecodeAttention: cache.page_table[0, 1] of token 0: "
                  "given " +
                      std::to_string(bad) + ", want in [0, 9)");
    test_.cache().table()[1] = good;
  }
  // The last page of sequence 1 is not reached by its tokens.
  test_.cache().table()[7] = -1;
  EXPECT_TRUE(DecodeAttention(test_.Args(), TestStream(1)).ok());
}

TEST_F(DecodeAttentionErrors, OtherArguments) {
  DecodeAttentionArgs args = test_.Args();
  args.window = -1;
  ExpectInvalid(args, "DecodeAttention: window: given -1, want >= 0");
  args = test_.Args();
  args.max_position = -1;
  ExpectInvalid(args, "DecodeAttention: max_position: given -1");
  args = test_.Args();
  args.scale = kInfinity;
  ExpectInvalid(args, "DecodeAttention: scale: given inf, want finite");
  args = test_.Args();
  args.workspace_bytes = -1;
  ExpectInvalid(args, "DecodeAttention: workspace_bytes: given -1");
  args = test_.Args();
  args.q = args.y;
  ExpectInvalid(args, "DecodeAttention: y: given memory that overlaps q");
  args = test_.Args();
  args.y.data = static_cast<char*>(args.cache.v) + 64;
  ExpectInvalid(args, "DecodeAttention: y: given memory that overlaps cache.v");
  const absl::Status status =
      DecodeAttention(test_.Args(), testing::MissingStream());
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(status.message(), testing::NoBackend("DecodeAttention: stream"));
}

TEST(DecodeAttentionErrorsOfWorkspace, IsNotNeededOnTheCpu) {
  const DeviceInfo& cpu = GetDeviceInfo({});
  DecodeAttentionProblem problem = {.tokens = 64,
                                    .heads = 32,
                                    .kv_heads = 8,
                                    .head_dim = 128,
                                    .max_position = 131071};
  EXPECT_EQ(DecodeAttentionWorkspaceBytes(problem, cpu).value(), 0);
  problem.heads = 9;
  EXPECT_THAT(
      std::string(
          DecodeAttentionWorkspaceBytes(problem, cpu).status().message()),
      ::testing::HasSubstr("DecodeAttentionWorkspaceBytes: heads: given 9, "
                           "want a multiple of 8"));
  problem.heads = 32;
  DeviceInfo gpu;
  gpu.device = testing::kMissingBackend;
  EXPECT_EQ(DecodeAttentionWorkspaceBytes(problem, gpu).status().code(),
            absl::StatusCode::kUnimplemented);
}

TEST(DecodeAttentionPolicy, FillsTheThreadsAndFitsTheTile) {
  using attention_internal::DecodeAttentionPolicy;
  using attention_internal::SelectDecodeAttentionPolicy;
  // SmolLM2: 9 heads, 3 KV heads, 64 dimensions.
  constexpr DecodeAttentionPolicy kDecode = SelectDecodeAttentionPolicy(
      {.group = 3, .kv_heads = 3, .head_dim = 64, .chunks = 8}, 2);
  static_assert(kDecode.split && kDecode.tokens == 1 && kDecode.kv_heads == 3);
  constexpr DecodeAttentionPolicy kShort = SelectDecodeAttentionPolicy(
      {.group = 3, .kv_heads = 3, .head_dim = 64, .chunks = 1}, 2);
  static_assert(!kShort.split && kShort.kv_heads == 2);
  constexpr DecodeAttentionPolicy kMiddle = SelectDecodeAttentionPolicy(
      {.group = 3, .kv_heads = 3, .head_dim = 64, .chunks = 3}, 2);
  static_assert(kMiddle.split && kMiddle.kv_heads == 2);
  constexpr DecodeAttentionPolicy kPrefill =
      SelectDecodeAttentionPolicy({.tokens = 512,
                                   .longest_run = 512,
                                   .group = 3,
                                   .kv_heads = 3,
                                   .head_dim = 64,
                                   .chunks = 2},
                                  2);
  static_assert(!kPrefill.split && kPrefill.tokens == 10 &&
                kPrefill.kv_heads == 1);
  for (int64_t tokens : {1, 2, 5, 64, 2000}) {
    for (int64_t run : {1, 2, 2000}) {
      for (int64_t group : {1, 3, 8, 32, 33, 128}) {
        for (int64_t kv_heads : {1, 3, 8, 100}) {
          for (int64_t head_dim : {1, 64, 128, 256, 512}) {
            for (int threads : {1, 2, 64}) {
              const DecodeAttentionPolicy policy =
                  SelectDecodeAttentionPolicy({.tokens = tokens,
                                               .longest_run = run,
                                               .group = group,
                                               .kv_heads = kv_heads,
                                               .head_dim = head_dim,
                                               .chunks = 3},
                                              threads);
              const int64_t padded =
                  RoundUp(head_dim, attention_internal::kDotSlots);
              const int64_t rows =
                  policy.tokens * policy.group_rows * policy.kv_heads;
              ASSERT_GE(rows, 1);
              ASSERT_LE(rows, attention_internal::kTileRows);
              ASSERT_LE(rows * padded, attention_internal::kTileFloats);
              ASSERT_LE(policy.kv_heads * padded,
                        attention_internal::kTileHeadFloats);
              ASSERT_GE(policy.group_rows * policy.group_tiles, group);
              ASSERT_LT(policy.group_rows * (policy.group_tiles - 1), group);
              ASSERT_TRUE(policy.kv_heads == 1 || policy.group_tiles == 1);
              ASSERT_EQ(policy.head_tiles, CeilDiv(kv_heads, policy.kv_heads) *
                                               policy.group_tiles);
              ASSERT_TRUE(!policy.split || policy.tokens == 1);
            }
          }
        }
      }
    }
  }
}

TEST(TensorAttentionPolicy, SplitsAndWorkspaceHoldWhatTokensNeed) {
  using namespace attention_internal;  // NOLINT(google-build-using-namespace)
  constexpr TensorArch kH200 = {.units = 132, .clusters = true};
  // Llama-3-8B at batch 1: one launch of 64 blocks.
  constexpr TensorAttentionPlan kShort = SelectTensorAttentionPlan(
      {.heads = 32, .kv_heads = 8, .head_dim = 128, .max_position = 1023},
      kH200);
  static_assert(kShort.cluster_blocks == 8 && kShort.slots == 8 &&
                kShort.stages == 1);
  // At batch 32: a block of several splits a KV head, two of them a unit.
  constexpr TensorAttentionPlan kMany =
      SelectTensorAttentionPlan({.tokens = 32,
                                 .heads = 32,
                                 .kv_heads = 8,
                                 .head_dim = 128,
                                 .max_position = 1023},
                                kH200);
  static_assert(kMany.cluster_blocks == 1 && kMany.slots == 1 &&
                kMany.splits == 8 && kMany.run_ahead);
  constexpr TensorAttentionPlan kLong = SelectTensorAttentionPlan(
      {.heads = 32, .kv_heads = 8, .head_dim = 128, .max_position = 131071},
      kH200);
  static_assert(kLong.cluster_blocks == 1 && kLong.slots == 16 &&
                kLong.stages > 2);

  for (const TensorArch& arch :
       {kH200, TensorArch{.units = 108, .shared_bytes = 99 << 10}}) {
    for (int64_t kv_heads : {1, 2, 3, 8, 32}) {
      for (int64_t group : {1, 4, 20}) {
        int64_t before = 0;
        for (int64_t max_position :
             {0, 15, 127, 128, 1023, 4095, 4096, 8191, 131071}) {
          TensorAttentionProblem problem = {.tokens = 700,
                                            .heads = kv_heads * group,
                                            .kv_heads = kv_heads,
                                            .head_dim = 128,
                                            .max_position = max_position};
          const int64_t bytes = TensorWorkspaceBytes(problem, arch);
          ASSERT_GE(bytes, before);
          before = bytes;
          for (int64_t tokens : {1, 2, 7, 64, 700}) {
            for (int64_t window : {0, 1, 100, 5000}) {
              problem.tokens = tokens;
              problem.window = window;
              const TensorAttentionPlan plan =
                  SelectTensorAttentionPlan(problem, arch);
              // Whatever the context, every split has a block.
              for (int64_t last = 0; last <= max_position;
                   last += last < 300 ? 1 : 97) {
                const int64_t first =
                    window > 0 ? std::max<int64_t>(0, last + 1 - window) : 0;
                const int tiles = static_cast<int>(last / kTilePositions + 1 -
                                                   first / kTilePositions);
                ASSERT_LE(plan.split.Count(tiles), plan.splits)
                    << last << " of " << max_position;
              }
              ASSERT_TRUE(plan.cluster_blocks == 1 ||
                          plan.cluster_blocks == plan.slots);
              ASSERT_LE(plan.cluster_blocks, kMaxSplitCluster);
              ASSERT_GE(plan.tokens, 1);
              const bool meets = plan.cluster_blocks == plan.slots;
              if (!meets) {
                problem.window = 0;
                ASSERT_LE(plan.tokens * problem.heads * plan.splits *
                              SplitSize(128) * int64_t{sizeof(float)},
                          TensorWorkspaceBytes(problem, arch));
              }
              const TensorLayout layout = TensorLayoutOf(
                  {.dims = plan.variant.dims,
                   .value_bytes = plan.variant.fp8 ? 1 : 2,
                   .rows =
                       static_cast<int>(std::min<int64_t>(group, kTensorRows)),
                   .stages = plan.stages,
                   .run_ahead = plan.run_ahead,
                   .received_splits = meets ? plan.splits : 0,
                   .received_columns =
                       meets ? plan.variant.dims / plan.cluster_blocks : 0});
              ASSERT_LE(layout.bytes, arch.shared_bytes);
            }
          }
          problem.tokens = 700;
        }
      }
    }
  }
}

}  // namespace
}  // namespace lamina
