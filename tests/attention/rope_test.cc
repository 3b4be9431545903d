#include "lamina/attention/rope.h"

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lamina/attention/rope/rope_policy.h"
#include "lamina/core/device.h"
#include "tests/support/memory.h"
#include "tests/support/missing_backend.h"
#include "tests/support/random.h"
#include "tests/support/sparse_memory.h"
#include "tests/support/targets.h"

namespace lamina {
namespace {

using testing::ForEachTarget;
using testing::GuardedMatrix;
using testing::Random;
using testing::TestStream;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// ---- The table.
// ----------------------------------------------------------------

TEST(FillRopeTable, HoldsCosinesThenSines) {
  GuardedMatrix table(DType::kF32, 5000, 64, 67, 1);
  ASSERT_TRUE(
      FillRopeTable({.theta = 1e5, .rotary_dim = 64}, table.view()).ok());
  EXPECT_TRUE(table.GuardsIntact());
  for (int64_t p : {0, 1, 2, 100, 1999, 4999}) {
    for (int64_t i = 0; i < 32; ++i) {
      const long double angle =
          static_cast<long double>(p) *
          std::pow(1e5L, -2.0L * static_cast<long double>(i) / 64.0L);
      // Within the double's own error the value is the nearest float.
      EXPECT_NEAR(table.At<float>(p, i), static_cast<double>(std::cos(angle)),
                  3.1e-8)
          << p;
      EXPECT_NEAR(table.At<float>(p, 32 + i),
                  static_cast<double>(std::sin(angle)), 3.1e-8)
          << p;
    }
  }
  for (int64_t i = 0; i < 32; ++i) {
    EXPECT_EQ(table.At<float>(0, i), 1.0f);
    EXPECT_EQ(table.At<float>(0, 32 + i), 0.0f);
  }
}

// Position 1 shows the frequencies: the angle is atan2(sin, cos).
std::vector<double> Frequencies(const RopeFrequencies& frequencies) {
  std::vector<float> table(static_cast<size_t>(2 * frequencies.rotary_dim));
  const absl::Status status = FillRopeTable(
      frequencies, Matrix(table.data(), 2, frequencies.rotary_dim));
  EXPECT_TRUE(status.ok()) << status;
  std::vector<double> result;
  const size_t dim = static_cast<size_t>(frequencies.rotary_dim);
  for (size_t i = 0; i < dim / 2; ++i) {
    result.push_back(std::atan2(table[dim + dim / 2 + i], table[dim + i]));
  }
  return result;
}

TEST(FillRopeTable, Llama3ScalingIsThatOfTheLlama31Release) {
  RopeFrequencies f = {.theta = 500000.0, .rotary_dim = 128};
  const std::vector<double> plain = Frequencies(f);
  f.factor = 8.0;
  const std::vector<double> scaled = Frequencies(f);
  int same = 0, divided = 0, between = 0;
  for (size_t i = 0; i < 64; ++i) {
    const double wavelength = 2 * 3.14159265358979323846 / plain[i];
    double want = 0;
    if (wavelength < 8192.0 / 4.0) {
      want = plain[i];
      ++same;
    } else if (wavelength > 8192.0) {
      want = plain[i] / 8.0;
      ++divided;
    } else {
      const double smooth = (8192.0 / wavelength - 1.0) / (4.0 - 1.0);
      want = (1 - smooth) * plain[i] / 8.0 + smooth * plain[i];
      EXPECT_LT(want, plain[i]);
      EXPECT_GT(want, plain[i] / 8.0);
      ++between;
    }
    EXPECT_NEAR(scaled[i] / want, 1.0, 1e-6) << i;
  }
  EXPECT_GT(same, 20);
  EXPECT_GT(divided, 20);
  EXPECT_GT(between, 3);
}

TEST(FillRopeTable, DivisorsDivide) {
  const std::vector<float> divisors = {1.0f, 2.0f, 8.0f};
  RopeFrequencies f = {.theta = 100.0, .rotary_dim = 6};
  const std::vector<double> plain = Frequencies(f);
  f.divisors = Vector(divisors.data(), 3);
  const std::vector<double> divided = Frequencies(f);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_NEAR(divided[i], plain[i] / divisors[i], 1e-7);
  }
}

TEST(FillRopeTable, Errors) {
  std::vector<float> memory(64);
  const auto expect = [&](const RopeFrequencies& f, const MatrixView& table,
                          const std::string& message) {
    const absl::Status status = FillRopeTable(f, table);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr(message));
  };
  const MatrixView table = Matrix(memory.data(), 8, 8);
  expect({.rotary_dim = 7}, table, "FillRopeTable: rotary_dim: given 7");
  expect({.rotary_dim = 0}, table, "FillRopeTable: rotary_dim: given 0");
  expect({.rotary_dim = 6}, table,
         "FillRopeTable: table.cols: given 8, want 6");
  expect({.theta = 0, .rotary_dim = 8}, table, "FillRopeTable: theta: given 0");
  expect({.theta = std::nan(""), .rotary_dim = 8}, table,
         "FillRopeTable: theta: given nan");
  expect({.rotary_dim = 8, .factor = -1}, table,
         "FillRopeTable: factor: given -1, want finite and > 0");
  expect({.rotary_dim = 8, .factor = 8, .low_freq_factor = 4}, table,
         "FillRopeTable: high_freq_factor: given 4, want > 4");
  expect({.rotary_dim = 8, .factor = 8, .original_max_position = 0}, table,
         "FillRopeTable: original_max_position: given 0");
  const std::vector<float> divisors = {1, 1, 0, 1};
  RopeFrequencies f = {.rotary_dim = 8};
  f.divisors = Vector(divisors.data(), 3);
  expect(f, table, "FillRopeTable: divisors.size: given 3, want 4");
  f.divisors = Vector(divisors.data(), 4);
  expect(f, table, "FillRopeTable: divisors[2]: given 0");
  MatrixView wrong = table;
  wrong.dtype = DType::kBF16;
  expect({.rotary_dim = 8}, wrong,
         "FillRopeTable: table.dtype: given bf16, want f32");
  EXPECT_TRUE(
      FillRopeTable({.rotary_dim = 8}, Matrix<float>(nullptr, 0, 8)).ok());
}

// ---- The rotation.
// -------------------------------------------------------------

struct Shape {
  int64_t tokens = 1;
  int64_t heads = 1;
  int64_t head_dim = 64;
  int64_t rotary_dim = 64;
  RopePairing pairing = RopePairing::kHalfSplit;
  int64_t x_padding = 0;  // elements after each token's heads
  int64_t y_padding = 0;
  int64_t x_offset = 0;
  int64_t y_offset = 0;
  int64_t table_padding = 0;
};

constexpr int64_t kPositions = 50;

template <class T>
class Case {
 public:
  explicit Case(const Shape& shape)
      : shape_(shape),
        row_(shape.heads * shape.head_dim),
        x_(DTypeOf<T>::value, shape.tokens, row_, row_ + shape.x_padding,
           shape.x_offset),
        y_(DTypeOf<T>::value, shape.tokens, row_, row_ + shape.y_padding,
           shape.y_offset),
        table_(DType::kF32, kPositions, shape.rotary_dim,
               shape.rotary_dim + shape.table_padding, shape.x_offset) {
    Random random(5);
    x_.Fill(testing::NormalVector<T>(random, shape.tokens * row_));
    table_.Fill(
        testing::NormalVector<float>(random, kPositions * shape.rotary_dim));
    for (int64_t t = 0; t < shape.tokens; ++t) {
      positions_.push_back(
          static_cast<int32_t>(random.Integer(0, kPositions - 1)));
    }
    positions_[0] = 0;
  }

  MatrixView Heads(const GuardedMatrix& matrix) const {
    MatrixView view = matrix.view();
    view.batch = shape_.tokens;
    view.batch_stride = view.row_stride;
    view.rows = shape_.heads;
    view.cols = view.row_stride = shape_.head_dim;
    return view;
  }
  RopeArgs Args() const {
    return {.x = Heads(x_),
            .y = Heads(y_),
            .table = table_.view(),
            .positions = positions_.data(),
            .pairing = shape_.pairing};
  }
  std::vector<T> Model() const {
    std::vector<T> y = x_.template Dense<T>();
    const int64_t half = shape_.rotary_dim / 2;
    for (int64_t t = 0; t < shape_.tokens; ++t) {
      for (int64_t h = 0; h < shape_.heads; ++h) {
        T* head = y.data() + (t * shape_.heads + h) * shape_.head_dim;
        for (int64_t i = 0; i < half; ++i) {
          const bool split = shape_.pairing == RopePairing::kHalfSplit;
          T& e0 = head[split ? i : 2 * i];
          T& e1 = head[split ? half + i : 2 * i + 1];
          const float x0 = ToFloat(e0), x1 = ToFloat(e1);
          const float c = table_.At<float>(positions_[t], i);
          const float s = table_.At<float>(positions_[t], half + i);
          e0 = FromFloat<T>(x0 * c - x1 * s);
          e1 = FromFloat<T>(x1 * c + x0 * s);
        }
      }
    }
    return y;
  }
  void ExpectModel() {
    const std::vector<T> want = Model();
    const std::vector<T> x = x_.template Dense<T>();
    ForEachTarget([&] {
      for (int threads : testing::ThreadsOfRuns()) {
        y_.Poison();
        const absl::Status status = Rope(Args(), TestStream(threads));
        ASSERT_TRUE(status.ok()) << status;
        ASSERT_EQ(testing::FirstDifference(y_.template Dense<T>(), want), -1);
        ASSERT_EQ(testing::FirstDifference(x_.template Dense<T>(), x), -1);
        ASSERT_TRUE(y_.GuardsIntact());
      }
      // In place.
      RopeArgs args = Args();
      args.y = Heads(x_);
      ASSERT_TRUE(Rope(args, TestStream(2)).ok());
      ASSERT_EQ(testing::FirstDifference(x_.template Dense<T>(), want), -1);
      ASSERT_TRUE(x_.GuardsIntact());
      x_.Fill(x);
    });
  }
  GuardedMatrix& x() { return x_; }
  GuardedMatrix& y() { return y_; }
  std::vector<int32_t>& positions() { return positions_; }

 private:
  Shape shape_;
  int64_t row_;
  GuardedMatrix x_, y_, table_;
  std::vector<int32_t> positions_;
};

template <class Row>
struct Element;
template <class T>
struct Element<Types<T>> {
  using type = T;
};

template <class Row>
class RopeTypes : public ::testing::Test {};
TYPED_TEST_SUITE(RopeTypes, testing::TestTypesOf<RopeTable>::type,
                 testing::TypeNames);

TYPED_TEST(RopeTypes, EveryDimEqualsTheRule) {
  using T = typename Element<TypeParam>::type;
  for (RopePairing pairing :
       {RopePairing::kHalfSplit, RopePairing::kAdjacent}) {
    for (int64_t rotary_dim :
         {2, 4, 6, 14, 16, 18, 30, 32, 34, 62, 64, 66, 80, 96, 128, 256}) {
      for (int64_t rest : {0, 1, 5, 16, 64}) {
        SCOPED_TRACE(::testing::Message()
                     << "rotary_dim " << rotary_dim << " rest " << rest);
        Case<T>({.tokens = 3,
                 .heads = 2,
                 .head_dim = rotary_dim + rest,
                 .rotary_dim = rotary_dim,
                 .pairing = pairing})
            .ExpectModel();
      }
    }
  }
}

TYPED_TEST(RopeTypes, StridesAndMisalignedPointersEqualTheRule) {
  using T = typename Element<TypeParam>::type;
  for (RopePairing pairing :
       {RopePairing::kHalfSplit, RopePairing::kAdjacent}) {
    for (int64_t offset : {0, 1, 2, 4}) {
      for (int64_t padding : {0, 1, 8, 320}) {
        Case<T>({.tokens = 5,
                 .heads = 4,
                 .head_dim = 80,
                 .rotary_dim = 38,
                 .pairing = pairing,
                 .x_padding = padding,
                 .y_padding = 320 - padding,
                 .x_offset = offset,
                 .y_offset = 4 - offset,
                 .table_padding = padding})
            .ExpectModel();
      }
    }
  }
}

TYPED_TEST(RopeTypes, SpecialValuesEqualTheRule) {
  using T = typename Element<TypeParam>::type;
  for (RopePairing pairing :
       {RopePairing::kHalfSplit, RopePairing::kAdjacent}) {
    Case<T> test({.tokens = 1,
                  .heads = 1,
                  .head_dim = 40,
                  .rotary_dim = 32,
                  .pairing = pairing});
    int64_t i = 0;
    for (float x : {0.0f, -0.0f, kInfinity, -kInfinity, 3e38f, -3e38f, 1e-45f,
                    65504.0f, 65519.0f}) {
      test.x().template At<T>(0, i++) = FromFloat<T>(x);
      test.x().template At<T>(0, 39 - i) = FromFloat<T>(x);
    }
    const std::vector<T> want = test.Model();
    ForEachTarget([&] {
      ASSERT_TRUE(Rope(test.Args(), TestStream(1)).ok());
      for (int64_t c = 0; c < 40; ++c) {
        const float got = ToFloat(test.y().template At<T>(0, c));
        const float expected = ToFloat(want[static_cast<size_t>(c)]);
        if (std::isnan(expected)) {
          EXPECT_TRUE(std::isnan(got)) << c;
        } else {
          EXPECT_EQ(got, expected) << c;
          EXPECT_EQ(std::signbit(got), std::signbit(expected)) << c;
        }
      }
    });
  }
}

TEST(Rope, ATokenAloneEqualsTheTokenAmong300) {
  Case<BF16> test({.tokens = 300, .heads = 3});
  test.ExpectModel();
  const RopeArgs all = test.Args();
  ASSERT_TRUE(Rope(all, TestStream(2)).ok());
  const std::vector<BF16> want = test.y().Dense<BF16>();
  test.y().Poison();
  for (int64_t t = 0; t < 300; ++t) {
    RopeArgs args = all;
    args.x.data = test.x().Row<BF16>(t);
    args.y.data = test.y().Row<BF16>(t);
    args.x.batch = args.y.batch = 1;
    args.positions += t;
    ASSERT_TRUE(Rope(args, TestStream(1)).ok());
  }
  EXPECT_EQ(testing::FirstDifference(test.y().Dense<BF16>(), want), -1);
}

// One matrix [tokens, head_dim] is a view with tokens in the batch.
TEST(Rope, OneHeadWithASliceOfAFusedRow) {
  Case<F16>({.tokens = 4, .heads = 1, .x_padding = 128, .x_offset = 64})
      .ExpectModel();
}

TEST(Rope, EmptyViewsDoNothing) {
  Case<float> test({.tokens = 2, .heads = 2});
  RopeArgs args = test.Args();
  args.x.batch = args.y.batch = 0;
  args.positions = nullptr;
  EXPECT_TRUE(Rope(args, TestStream(1)).ok());
  args = test.Args();
  args.x.rows = args.y.rows = 0;
  EXPECT_TRUE(Rope(args, TestStream(1)).ok());
  // No rotary columns: a copy.
  args = test.Args();
  args.table.cols = 0;
  EXPECT_TRUE(Rope(args, TestStream(1)).ok());
  EXPECT_EQ(testing::FirstDifference(test.y().Dense<float>(),
                                     test.x().Dense<float>()),
            -1);
}

TEST(Rope, OffsetsBeyond2To31ElementsWork) {
  constexpr int64_t kStride = (int64_t{1} << 31) + 3;
  const testing::SparseMemory memory(2 * kStride * 2);
  if (!memory.ok()) GTEST_SKIP() << "no address space";
  Case<BF16> test({.tokens = 2, .heads = 1});
  const std::vector<BF16> want = test.Model();
  BF16* const x = memory.as<BF16>();
  for (int64_t t = 0; t < 2; ++t) {
    std::copy_n(test.x().Row<BF16>(t), 64, x + t * kStride);
  }
  RopeArgs args = test.Args();
  args.x.data = args.y.data = x;
  args.x.batch_stride = args.y.batch_stride = kStride;
  ASSERT_TRUE(Rope(args, TestStream(1)).ok());
  for (int64_t t = 0; t < 2; ++t) {
    for (int64_t i = 0; i < 64; ++i) {
      EXPECT_EQ(x[t * kStride + i].bits, want[t * 64 + i].bits);
    }
  }
}

TEST(Rope, Errors) {
  Case<BF16> test({.tokens = 3, .heads = 2});
  const auto expect = [&](const RopeArgs& args, const std::string& message,
                          absl::StatusCode code =
                              absl::StatusCode::kInvalidArgument) {
    const absl::Status status = Rope(args, TestStream(1));
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr(message));
    EXPECT_EQ(test.y().At<BF16>(0, 0).bits, 0xa5a5) << "written";
  };
  RopeArgs args = test.Args();
  args.x.dtype = args.y.dtype = DType::kI8;
  expect(args, "Rope: x.dtype: given i8, supported: f32, f16, bf16",
         absl::StatusCode::kUnimplemented);
  args = test.Args();
  args.y.dtype = DType::kF16;
  expect(args, "Rope: y.dtype: given f16, want bf16");
  args = test.Args();
  args.y.rows = 1;
  expect(args, "Rope: y.rows: given 1, want 2");
  args = test.Args();
  args.table.cols = 33;
  expect(args, "Rope: table.cols: given 33, want an even rotary_dim <= 64");
  args.table.cols = 66;
  args.table.row_stride = 66;
  expect(args, "Rope: table.cols: given 66, want an even rotary_dim <= 64");
  args = test.Args();
  args.table.dtype = DType::kBF16;
  expect(args, "Rope: table.dtype: given bf16, want f32");
  args = test.Args();
  args.table.data = nullptr;
  expect(args, "Rope: table.data: given null");
  args = test.Args();
  args.positions = nullptr;
  expect(args, "Rope: positions: given null");
  args = test.Args();
  args.pairing = static_cast<RopePairing>(9);
  expect(args, "Rope: pairing: given 9, want kHalfSplit or kAdjacent");
  args = test.Args();
  args.x = args.y;
  args.x.data = static_cast<BF16*>(args.y.data) + 1;
  expect(args, "Rope: y: given memory that overlaps x");
  for (int32_t bad : {-1, 50}) {
    const int32_t good = test.positions()[2];
    test.positions()[2] = bad;
    expect(test.Args(), "Rope: positions[2]: given " + std::to_string(bad) +
                            ", want in [0, 50) (table.rows)");
    test.positions()[2] = good;
  }
  const absl::Status missing = Rope(test.Args(), testing::MissingStream());
  EXPECT_EQ(missing.code(), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(missing.message(), testing::NoBackend("Rope: stream"));
}

}  // namespace
}  // namespace lamina
