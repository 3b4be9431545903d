#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lamina/attention/kv_cache.h"
#include "tests/attention/attention_testing.h"
#include "tests/support/missing_backend.h"

namespace lamina {
namespace {

using testing::CacheShape;
using testing::ForEachTarget;
using testing::GuardedMatrix;
using testing::Random;
using testing::TestCache;
using testing::TestStream;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// New keys and values, as slices of fused rows [ k | v | padding ].
template <class From, class To>
class Case {
 public:
  Case(const CacheShape& shape, std::vector<int32_t> sequence_ids,
       std::vector<int32_t> positions, int64_t padding = 0, int64_t offset = 0)
      : shape_(shape),
        sequence_ids_(std::move(sequence_ids)),
        positions_(std::move(positions)),
        tokens_(static_cast<int64_t>(positions_.size())),
        row_(shape.kv_heads * shape.head_dim),
        qkv_(DTypeOf<From>::value, tokens_, 2 * row_ + padding, -1, offset),
        cache_(shape) {
    Random random(11);
    qkv_.Fill(
        testing::NormalVector<From>(random, tokens_ * (2 * row_ + padding)));
  }

  MatrixView Part(int64_t column) const {
    MatrixView view = qkv_.view();
    view.batch = tokens_;
    view.batch_stride = view.row_stride;
    view.data = static_cast<From*>(view.data) + column;
    view.rows = shape_.kv_heads;
    view.cols = view.row_stride = shape_.head_dim;
    return view;
  }
  KvAppendArgs Args() {
    return {
        .k = Part(0),
        .v = Part(row_),
        .cache = cache_.view(),
        .sequence_ids = sequence_ids_.empty() ? nullptr : sequence_ids_.data(),
        .positions = positions_.data()};
  }
  GuardedMatrix& qkv() { return qkv_; }
  TestCache<To>& cache() { return cache_; }
  std::vector<int32_t>& positions() { return positions_; }

  // The cache equals its poison outside what the tokens wrote.
  void ExpectModel(const float* k_scale = nullptr,
                   const float* v_scale = nullptr) {
    TestCache<To> want(shape_);
    for (int64_t t = 0; t < tokens_; ++t) {
      for (int64_t i = 0; i < row_; ++i) {
        const int64_t s = sequence_ids_.empty() ? t : sequence_ids_[t];
        const int64_t h = i / shape_.head_dim, d = i % shape_.head_dim;
        want.K(s, positions_[t], h)[d] = Convert(qkv_.At<From>(t, i), k_scale);
        want.V(s, positions_[t], h)[d] =
            Convert(qkv_.At<From>(t, row_ + i), v_scale);
      }
    }
    ForEachTarget([&] {
      for (int threads : testing::ThreadsOfRuns()) {
        cache_.k().assign(cache_.k().size(), TestCache<To>::Poison());
        cache_.v().assign(cache_.v().size(), TestCache<To>::Poison());
        KvAppendArgs args = Args();
        args.cache.k_scale = k_scale;
        args.cache.v_scale = v_scale;
        const absl::Status status = KvAppend(args, TestStream(threads));
        ASSERT_TRUE(status.ok()) << status;
        ExpectSame(cache_.k(), want.k());
        ExpectSame(cache_.v(), want.v());
      }
    });
  }

 private:
  // Bit for bit; a NaN on a GPU is any NaN.
  static void ExpectSame(const std::vector<To>& got,
                         const std::vector<To>& want) {
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < got.size(); ++i) {
      if (!testing::OnCpu() && std::isnan(ToFloat(want[i]))) {
        ASSERT_TRUE(std::isnan(ToFloat(got[i]))) << i;
      } else {
        ASSERT_TRUE(testing::SameBits(got[i], want[i])) << i;
      }
    }
  }

  static To Convert(From x, const float* scale) {
    if (scale == nullptr) return FromFloat<To>(ToFloat(x));
    const float inverse = 1.0f / *scale;
    return FromFloat<To>(ToFloat(x) * inverse);
  }

  CacheShape shape_;
  std::vector<int32_t> sequence_ids_;
  std::vector<int32_t> positions_;
  int64_t tokens_;
  int64_t row_;
  GuardedMatrix qkv_;
  TestCache<To> cache_;
};

template <class Row>
class KvAppendTypes : public ::testing::Test {};
using AllTypes = testing::PairsOf<KvAppendTable, KvCacheTable>::type;
TYPED_TEST_SUITE(KvAppendTypes, AllTypes, testing::TypeNames);

TYPED_TEST(KvAppendTypes, PagedAndContiguousEqualTheRule) {
  using From = typename testing::FirstOf<TypeParam>::type;
  using To = typename testing::SecondOf<TypeParam>::type;
  for (int64_t head_dim : {1, 7, 8, 33, 64, 80}) {
    for (int64_t page_tokens : {0, 1, 5, 16}) {
      Case<From, To>({.sequences = 3,
                      .capacity = 37,
                      .kv_heads = 3,
                      .head_dim = head_dim,
                      .page_tokens = page_tokens,
                      .heads_outside = page_tokens == 5,
                      .padding = head_dim % 3,
                      .offset = head_dim % 4},
                     {2, 0, 0, 1, 2}, {0, 36, 4, 16, 15}, 13, head_dim % 5)
          .ExpectModel();
    }
  }
}

TYPED_TEST(KvAppendTypes, SpecialValuesAndScalesEqualTheRule) {
  using From = typename testing::FirstOf<TypeParam>::type;
  using To = typename testing::SecondOf<TypeParam>::type;
  Case<From, To> test({.sequences = 2, .capacity = 3, .head_dim = 24}, {},
                      {2, 0});
  const std::vector<float> values = {
      0.0f,     -0.0f, kInfinity, -kInfinity, 448.0f,   465.0f, -1e4f,
      65504.0f, 1e-8f, 0.013f,    240.0f,     57344.0f, 1e5f,   3.3e-3f};
  for (size_t i = 0; i < values.size(); ++i) {
    const int64_t column = static_cast<int64_t>(i);
    test.qkv().template At<From>(0, column) = FromFloat<From>(values[i]);
    test.qkv().template At<From>(1, 24 + column) = FromFloat<From>(values[i]);
  }
  test.ExpectModel();
  if (IsFp8(DTypeOf<To>::value)) {
    const float nan = std::numeric_limits<float>::quiet_NaN();
    test.qkv().template At<From>(0, 20) = FromFloat<From>(nan);
    const std::vector<float> scales = {0.37f, 3.0f};
    test.ExpectModel(&scales[0], &scales[1]);
    test.ExpectModel(nullptr, &scales[1]);
    EXPECT_TRUE(std::isnan(ToFloat(test.cache().K(0, 2, 0)[20])));
  }
}

TEST(KvAppend, ZeroTokensDoNothing) {
  Case<BF16, BF16> test({.sequences = 1, .capacity = 4}, {}, {});
  KvAppendArgs args = test.Args();
  args.positions = nullptr;
  args.k.data = args.v.data = nullptr;
  EXPECT_TRUE(KvAppend(args, TestStream(1)).ok());
}

// Only the page that is written matters; others may not exist yet.
TEST(KvAppend, OtherPagesAreNotLookedAt) {
  Case<BF16, BF16> test({.sequences = 1, .capacity = 40, .page_tokens = 10},
                        {0}, {25});
  for (size_t i : {0u, 1u, 3u}) test.cache().table()[i] = -7;
  EXPECT_TRUE(KvAppend(test.Args(), TestStream(1)).ok());
  EXPECT_EQ(test.cache().K(0, 25, 0)->bits, test.qkv().At<BF16>(0, 0).bits);
}

TEST(KvAppendErrors, OfArgumentsAndTokens) {
  Case<BF16, BF16> test({.sequences = 2,
                         .capacity = 40,
                         .kv_heads = 2,
                         .head_dim = 8,
                         .page_tokens = 10},
                        {0, 1}, {39, 0});
  const auto expect = [&](const KvAppendArgs& args, const std::string& message,
                          absl::StatusCode code =
                              absl::StatusCode::kInvalidArgument) {
    const absl::Status status = KvAppend(args, TestStream(1));
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr(message));
    for (BF16 element : test.cache().k()) ASSERT_EQ(element.bits, 0x7fff);
  };
  KvAppendArgs args = test.Args();
  args.k.rows = 3;
  expect(args, "KvAppend: k.rows: given 3, want 2");
  args = test.Args();
  args.v.cols = 9;
  expect(args, "KvAppend: v.cols: given 9, want 8");
  args = test.Args();
  args.v.batch = 1;
  expect(args, "KvAppend: v.batch: given 1, want 2");
  args = test.Args();
  args.v.dtype = DType::kF16;
  expect(args, "KvAppend: v.dtype: given f16, want bf16");
  args = test.Args();
  args.k.dtype = args.v.dtype = DType::kF8E5M2;
  expect(args, "KvAppend: k.dtype: given f8e5m2, supported: f32, f16, bf16",
         absl::StatusCode::kUnimplemented);
  args = test.Args();
  args.cache.dtype = DType::kI32;
  expect(args, "KvAppend: cache.dtype: given i32, supported: f32",
         absl::StatusCode::kUnimplemented);
  args = test.Args();
  args.positions = nullptr;
  expect(args, "KvAppend: positions: given null");
  args = test.Args();
  args.cache.v = nullptr;
  expect(args, "KvAppend: cache.v: given null");
  args = test.Args();
  args.k.data = static_cast<BF16*>(args.cache.v) + 8;
  expect(args, "KvAppend: cache.v: given memory that overlaps k");
  const float scale = 1.0f;
  args = test.Args();
  args.cache.k_scale = &scale;
  expect(args, "KvAppend: cache.k_scale: given a scale for a bf16 cache");
  const int32_t ids[] = {0, 2};
  args = test.Args();
  args.sequence_ids = ids;
  expect(args, "KvAppend: sequence_ids[1]: given 2, want in [0, 2)");
  for (int32_t bad : {-1, 40}) {
    test.positions()[0] = bad;
    expect(test.Args(), "KvAppend: positions[0]: given " + std::to_string(bad));
  }
  test.positions()[0] = 39;
  test.cache().table()[3] = 9;
  expect(test.Args(),
         "KvAppend: cache.page_table[0, 3] of token 0: given 9, "
         "want in [0, 9) (cache.num_pages)");
  test.cache().table()[3] = 2;
  const absl::Status missing = KvAppend(test.Args(), testing::MissingStream());
  EXPECT_EQ(missing.code(), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(missing.message(), testing::NoBackend("KvAppend: stream"));
}

TEST(KvAppendErrors, ContiguousCapacityIsChecked) {
  Case<BF16, BF16> test({.sequences = 2, .capacity = 40, .head_dim = 8}, {},
                        {39, 40});
  const absl::Status status = KvAppend(test.Args(), TestStream(1));
  EXPECT_THAT(std::string(status.message()),
              ::testing::HasSubstr("KvAppend: positions[1]: given 40, want "
                                   "below the capacity of a sequence, 1 page "
                                   "of 40"));
}

}  // namespace
}  // namespace lamina
