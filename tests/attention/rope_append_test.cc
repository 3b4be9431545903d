#include "lamina/attention/rope_append.h"

#include <cmath>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lamina/attention/rope/rope_policy.h"
#include "tests/attention/attention_testing.h"
#include "tests/support/missing_backend.h"

namespace lamina {
namespace {

using testing::CacheShape;
using testing::GuardedMatrix;
using testing::Random;
using testing::TestCache;
using testing::TestStream;

constexpr int64_t kPositions = 40;

struct Shape {
  int64_t heads = 4;
  int64_t rotary_dim = 64;
  RopePairing pairing = RopePairing::kHalfSplit;
  CacheShape cache;
  std::vector<int32_t> sequence_ids = {};
  std::vector<int32_t> positions = {};
  int64_t padding = 0;  // elements after each token's q, k and v
  int64_t offset = 0;
};

// Rows [ q | k | v | padding ], as a QKV product leaves them.
template <class T, class C>
class Case {
 public:
  explicit Case(const Shape& shape)
      : shape_(shape),
        tokens_(static_cast<int64_t>(shape.positions.size())),
        q_columns_(shape.heads * shape.cache.head_dim),
        kv_columns_(shape.cache.kv_heads * shape.cache.head_dim),
        qkv_(DTypeOf<T>::value, tokens_, q_columns_ + 2 * kv_columns_,
             q_columns_ + 2 * kv_columns_ + shape.padding, shape.offset),
        y_(DTypeOf<T>::value, tokens_, q_columns_),
        table_(DType::kF32, kPositions, shape.rotary_dim),
        cache_(shape.cache),
        scales_{0.37f, 1.7f} {
    Random random(3);
    values_ = testing::NormalVector<T>(
        random, tokens_ * (q_columns_ + 2 * kv_columns_));
    table_.Fill(
        testing::NormalVector<float>(random, kPositions * shape.rotary_dim));
    Reset();
  }
  void Reset() {
    qkv_.Fill(values_);
    y_.Poison();
    cache_.k().assign(cache_.k().size(), TestCache<C>::Poison());
    cache_.v().assign(cache_.v().size(), TestCache<C>::Poison());
  }

  MatrixView Heads(const GuardedMatrix& matrix, int64_t column,
                   int64_t heads) const {
    MatrixView view = matrix.view();
    view.batch = tokens_;
    view.batch_stride = view.row_stride;
    view.data = static_cast<T*>(view.data) + column;
    view.rows = heads;
    view.cols = view.row_stride = shape_.cache.head_dim;
    return view;
  }
  RopeAppendArgs Args(bool in_place) {
    RopeAppendArgs args{
        .q = Heads(qkv_, 0, shape_.heads),
        .y = Heads(in_place ? qkv_ : y_, 0, shape_.heads),
        .k = Heads(qkv_, q_columns_, shape_.cache.kv_heads),
        .v = Heads(qkv_, q_columns_ + kv_columns_, shape_.cache.kv_heads),
        .table = table_.view(),
        .pairing = shape_.pairing,
        .cache = cache_.view(),
        .sequence_ids =
            shape_.sequence_ids.empty() ? nullptr : shape_.sequence_ids.data(),
        .positions = shape_.positions.data()};
    if (IsFp8(DTypeOf<C>::value)) {
      args.cache.k_scale = &scales_[0];
      args.cache.v_scale = &scales_[1];
    }
    return args;
  }

  struct Result {
    std::vector<T> qkv, y;
    std::vector<C> k, v;
    bool operator==(const Result& other) const {
      return testing::FirstDifference(qkv, other.qkv) == -1 &&
             testing::FirstDifference(y, other.y) == -1 &&
             testing::FirstDifference(k, other.k) == -1 &&
             testing::FirstDifference(v, other.v) == -1;
    }
  };
  Result Take() {
    EXPECT_TRUE(qkv_.GuardsIntact());
    EXPECT_TRUE(y_.GuardsIntact());
    return {qkv_.template Dense<T>(), y_.template Dense<T>(), cache_.k(),
            cache_.v()};
  }
  // The three operators on the CPU, one after another.
  Result Want(bool in_place) {
    Reset();
    const RopeAppendArgs args = Args(in_place);
    const Stream cpu = Stream::Cpu(1);
    for (const auto& [from, to] :
         {std::pair<ConstMatrixView, MatrixView>(args.q, args.y),
          {args.k, args.k}}) {
      const absl::Status status = Rope({.x = from,
                                        .y = to,
                                        .table = args.table,
                                        .positions = args.positions,
                                        .pairing = args.pairing},
                                       cpu);
      EXPECT_TRUE(status.ok()) << status;
    }
    const absl::Status status = KvAppend({.k = args.k,
                                          .v = args.v,
                                          .cache = args.cache,
                                          .sequence_ids = args.sequence_ids,
                                          .positions = args.positions},
                                         cpu);
    EXPECT_TRUE(status.ok()) << status;
    return Take();
  }
  void ExpectSameAsThree() {
    for (const bool in_place : {false, true}) {
      const Result want = Want(in_place);
      Reset();
      const absl::Status status = RopeAppend(Args(in_place), TestStream(2));
      ASSERT_TRUE(status.ok()) << status;
      ASSERT_TRUE(Take() == want) << "in place " << in_place;
    }
  }

 private:
  Shape shape_;
  int64_t tokens_, q_columns_, kv_columns_;
  GuardedMatrix qkv_, y_, table_;
  TestCache<C> cache_;
  std::vector<T> values_;
  std::vector<float> scales_;
};

template <class Row>
class RopeAppendTypes : public ::testing::Test {};
using AllTypes = testing::PairsOf<RopeTable, KvCacheTable>::type;
TYPED_TEST_SUITE(RopeAppendTypes, AllTypes, testing::TypeNames);

TYPED_TEST(RopeAppendTypes, EqualsTheThreeOperators) {
  using T = typename testing::FirstOf<TypeParam>::type;
  using C = typename testing::SecondOf<TypeParam>::type;
  for (RopePairing pairing :
       {RopePairing::kHalfSplit, RopePairing::kAdjacent}) {
    for (int64_t head_dim : {16, 64, 80, 128, 130, 17}) {
      for (int64_t rest : {0, 16}) {
        if (rest >= head_dim) continue;
        SCOPED_TRACE(::testing::Message() << head_dim << " " << rest);
        Case<T, C>({.heads = 6,
                    .rotary_dim = (head_dim - rest) / 2 * 2,
                    .pairing = pairing,
                    .cache = {.sequences = 3,
                              .capacity = 40,
                              .kv_heads = 2,
                              .head_dim = head_dim,
                              .page_tokens = rest},
                    .positions = {39, 0, 16}})
            .ExpectSameAsThree();
      }
    }
  }
}

TEST(RopeAppend, StridesAndMisalignedPointers) {
  for (int64_t offset : {0, 1, 4, 8}) {
    for (int64_t padding : {0, 3, 8}) {
      SCOPED_TRACE(::testing::Message() << offset << " " << padding);
      Case<BF16, BF16>({.heads = 5,
                        .rotary_dim = 32,
                        .cache = {.sequences = 2,
                                  .capacity = 40,
                                  .kv_heads = 1,
                                  .head_dim = 48,
                                  .heads_outside = true,
                                  .padding = padding,
                                  .offset = offset},
                        .sequence_ids = {1, 1, 0, 1},
                        .positions = {6, 7, 39, 8},
                        .padding = padding,
                        .offset = offset})
          .ExpectSameAsThree();
    }
  }
}

// More tokens than one launch takes on host SIMT, more heads than a block.
TEST(RopeAppend, ManyTokensAndHeads) {
  Shape shape{.heads = 64,
              .rotary_dim = 128,
              .cache = {.sequences = 30,
                        .capacity = 40,
                        .kv_heads = 8,
                        .head_dim = 128,
                        .page_tokens = 8}};
  for (int32_t t = 0; t < 30; ++t) shape.positions.push_back(t);
  Case<F16, F8E4M3Fn>(shape).ExpectSameAsThree();
}

TEST(RopeAppend, ZeroTokensDoNothing) {
  Case<BF16, BF16> test({.cache = {.sequences = 1, .capacity = 4}});
  RopeAppendArgs args = test.Args(true);
  args.positions = nullptr;
  EXPECT_TRUE(RopeAppend(args, TestStream()).ok());
}

TEST(RopeAppendErrors, OfArgumentsAndTokens) {
  const Shape shape{
      .rotary_dim = 8,
      .cache = {.sequences = 2, .capacity = 40, .kv_heads = 2, .head_dim = 8},
      .positions = {39, 0}};
  Case<BF16, BF16> test(shape);
  const auto expect = [&](const RopeAppendArgs& args,
                          const std::string& message) {
    const auto before = test.Take();
    const absl::Status status = RopeAppend(args, Stream::Cpu(1));
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr(message));
    EXPECT_TRUE(test.Take() == before) << "written";
  };
  RopeAppendArgs args = test.Args(false);
  args.y.rows = 3;
  expect(args, "RopeAppend: y.rows: given 3, want 4");
  args = test.Args(false);
  args.k.rows = 1;
  expect(args, "RopeAppend: k.rows: given 1, want 2");
  args = test.Args(false);
  args.v.batch = 1;
  expect(args, "RopeAppend: v.batch: given 1, want 2");
  args = test.Args(false);
  args.table.cols = 3;
  expect(args, "RopeAppend: table.cols: given 3");
  args = test.Args(false);
  args.k.data = const_cast<void*>(args.v.data);
  expect(args, "RopeAppend: k: given memory that overlaps v");
  args = test.Args(false);
  const std::vector<int32_t> positions = {39, 40};
  args.positions = positions.data();
  expect(args, "RopeAppend: positions[1]: given 40, want in [0, 40)");
  const absl::Status missing =
      RopeAppend(test.Args(true), testing::MissingStream());
  EXPECT_EQ(missing.code(), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(missing.message(), testing::NoBackend("RopeAppend: stream"));
}

}  // namespace
}  // namespace lamina
