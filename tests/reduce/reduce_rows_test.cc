#include "lamina/reduce/reduce_rows.h"

#include <bit>
#include <cmath>
#include <limits>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lamina/core/canonical_sum.h"
#include "lamina/core/float16.h"
#include "lamina/reduce/reduce_rows/reduce_rows_policy.h"
#include "tests/support/memory.h"
#include "tests/support/missing_backend.h"
#include "tests/support/random.h"
#include "tests/support/sparse_memory.h"
#include "tests/support/targets.h"
#include "tests/support/test_device.h"

namespace lamina {
namespace {

using testing::ForEachTarget;
using testing::GuardedMatrix;
using ::testing::HasSubstr;
using testing::Random;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr RowReduction kAll[] = {
    RowReduction::kSum, RowReduction::kSumOfSquares, RowReduction::kMean,
    RowReduction::kMax, RowReduction::kAbsMax,       RowReduction::kArgMax};

// The rule of the header in plain loops.
double Model(RowReduction reduction, const std::vector<float>& row) {
  const int64_t cols = static_cast<int64_t>(row.size());
  const auto at = [&](int64_t i) { return row[static_cast<size_t>(i)]; };
  switch (reduction) {
    case RowReduction::kSum:
      return CanonicalSum(cols, at);
    case RowReduction::kSumOfSquares:
      return CanonicalSum(cols, [&](int64_t i) { return at(i) * at(i); });
    case RowReduction::kMean:
      return CanonicalSum(cols, at) / static_cast<float>(cols);
    case RowReduction::kMax:
    case RowReduction::kAbsMax: {
      float largest = -kInfinity;
      for (const float x : row) {
        if (std::isnan(x)) return kNan;
        const float v = reduction == RowReduction::kMax ? x : std::abs(x);
        if (v > largest) largest = v;
      }
      return largest == 0 ? 0.0f : largest;
    }
    case RowReduction::kArgMax: {
      int64_t best = 0;
      for (int64_t i = 0; i < cols; ++i) {
        if (std::isnan(at(i))) return static_cast<double>(i);
        if (at(i) > at(best)) best = i;
      }
      return static_cast<double>(best);
    }
  }
  return 0;
}

std::vector<float> RowValues(const ConstMatrixView& x, int64_t row) {
  std::vector<float> values;
  Dispatch(ReduceRowsTable{}, std::array{x.dtype, DType::kF32},
           [&]<class T, class Y>(Types<T, Y>) {
             for (int64_t i = 0; i < x.cols; ++i) {
               values.push_back(ToFloat(x.Row<T>(row)[i]));
             }
           });
  return values;
}

// All reductions of x against the model, y at `offset` elements.
void ExpectModel(const GuardedMatrix& x, int64_t offset = 0) {
  const MatrixView view = x.view();
  for (const RowReduction reduction : kAll) {
    const bool arg_max = reduction == RowReduction::kArgMax;
    const GuardedMatrix y(arg_max ? DType::kI64 : DType::kF32, 1, view.rows, -1,
                          offset);
    const absl::Status status = ReduceRows({.x = view,
                                            .reduction = reduction,
                                            .y = {.data = y.view().data,
                                                  .dtype = y.view().dtype,
                                                  .size = view.rows}},
                                           testing::TestStream(1));
    ASSERT_TRUE(status.ok()) << status;
    for (int64_t row = 0; row < view.rows; ++row) {
      const double want = Model(reduction, RowValues(view, row));
      if (arg_max) {
        ASSERT_EQ(y.At<int64_t>(0, row), static_cast<int64_t>(want))
            << "row " << row << ", cols " << view.cols;
      } else if (std::isnan(want)) {
        ASSERT_TRUE(std::isnan(y.At<float>(0, row)))
            << Name(reduction) << ", row " << row;
      } else {
        ASSERT_EQ(std::bit_cast<uint32_t>(y.At<float>(0, row)),
                  std::bit_cast<uint32_t>(static_cast<float>(want)))
            << Name(reduction) << ", row " << row << ", cols " << view.cols
            << ": got " << y.At<float>(0, row) << ", want " << want;
      }
    }
    ASSERT_TRUE(y.GuardsIntact());
    ASSERT_TRUE(x.GuardsIntact());
  }
}

template <class Row>
struct FirstOf;
template <class X, class Y>
struct FirstOf<Types<X, Y>> {
  using type = X;
};

template <class Row>
class ReduceRowsTest : public ::testing::Test {};
TYPED_TEST_SUITE(ReduceRowsTest, testing::TestTypesOf<ReduceRowsTable>::type,
                 testing::TypeNames);

TYPED_TEST(ReduceRowsTest, MatchesTheModelForEveryWidthAndLayout) {
  using T = typename FirstOf<TypeParam>::type;
  ForEachTarget([] {
    Random random(1);
    int64_t index = 0;
    for (const int64_t cols :
         {1,   2,   3,   5,    7,    8,    9,    15,   16,   17,
          31,  32,  33,  64,   65,   111,  127,  128,  255,  256,
          257, 500, 769, 1025, 1368, 2880, 5137, 8192, 32896}) {
      for (const int64_t padding : {int64_t{0}, int64_t{1}, cols}) {
        const GuardedMatrix x(DTypeOf<T>::value, 3, cols, cols + padding,
                              index % 5);
        x.Fill(testing::NormalVector<T>(random, 3 * cols));
        ExpectModel(x, (index + 2) % 5);
        ++index;
      }
    }
  });
}

TYPED_TEST(ReduceRowsTest, SpecialValues) {
  using T = typename FirstOf<TypeParam>::type;
  const std::vector<std::vector<float>> specials = {
      {kNan},       {kInfinity},       {-kInfinity}, {-0.0f},
      {kNan, kNan}, {kInfinity, kNan}, {65504.0f},   {6e-8f}};
  ForEachTarget([&] {
    Random random(2);
    for (const int64_t cols : {5, 77, 300}) {
      for (const std::vector<float>& special : specials) {
        for (const int64_t at : {int64_t{0}, cols / 2, cols - 2}) {
          const GuardedMatrix x(DTypeOf<T>::value, 3, cols, cols + 3);
          // Among random values, among negative ones, alone among -Inf.
          for (int64_t i = 0; i < cols; ++i) {
            const float r = random.Normal();
            x.At<T>(0, i) = FromFloat<T>(r);
            x.At<T>(1, i) = FromFloat<T>(-std::abs(r));
            x.At<T>(2, i) = FromFloat<T>(-kInfinity);
          }
          for (int64_t row = 0; row < 3; ++row) {
            for (size_t i = 0; i < special.size(); ++i) {
              x.At<T>(row, at + static_cast<int64_t>(i)) =
                  FromFloat<T>(special[i]);
            }
          }
          ExpectModel(x);
        }
      }
    }
  });
}

TYPED_TEST(ReduceRowsTest, TheFirstOfEqualMaximaWins) {
  using T = typename FirstOf<TypeParam>::type;
  ForEachTarget([] {
    for (const int64_t first : {0, 1, 63, 100, 198}) {
      const GuardedMatrix x(DTypeOf<T>::value, 2, 200);
      x.Fill(std::vector<T>(400, FromFloat<T>(-1.0f)));
      x.At<T>(0, first) = FromFloat<T>(-0.0f);  // equals +0
      x.At<T>(0, 199) = FromFloat<T>(0.0f);
      ExpectModel(x);
      std::vector<int64_t> y(2);
      ASSERT_TRUE(ReduceRows({.x = x.view(),
                              .reduction = RowReduction::kArgMax,
                              .y = Vector(y.data(), 2)},
                             testing::TestStream(1))
                      .ok());
      EXPECT_EQ(y, (std::vector<int64_t>{first, 0}));
    }
  });
}

TYPED_TEST(ReduceRowsTest, BatchesThreadsAndRunsGiveTheSameBits) {
  using T = typename FirstOf<TypeParam>::type;
  constexpr int64_t kBatch = 100, kRows = 3, kCols = 700;
  Random random(3);
  const std::vector<T> values =
      testing::NormalVector<T>(random, kBatch * kRows * kCols);
  for (const RowReduction reduction :
       {RowReduction::kSum, RowReduction::kSumOfSquares, RowReduction::kMax}) {
    // Each row alone, then all of them as [batch, rows, cols].
    std::vector<float> want(kBatch * kRows);
    for (int64_t row = 0; row < kBatch * kRows; ++row) {
      ASSERT_TRUE(
          ReduceRows({.x = Matrix(values.data() + row * kCols, 1, kCols),
                      .reduction = reduction,
                      .y = Vector(&want[static_cast<size_t>(row)], 1)},
                     testing::TestStream(1))
              .ok());
    }
    for (const int threads : testing::ThreadsOfRuns()) {
      std::vector<float> y(kBatch * kRows, -7.0f);
      ASSERT_TRUE(ReduceRows({.x = Heads(values.data(), kBatch, kRows, kCols),
                              .reduction = reduction,
                              .y = Vector(y.data(), kBatch * kRows)},
                             testing::TestStream(threads))
                      .ok());
      ASSERT_EQ(testing::FirstDifference(y, want), -1) << threads;
    }
  }
}

TEST(ReduceRows, SumsAreNearTheExactOnes) {
  constexpr int64_t kCols = 32768;
  Random random(6);
  const auto x = testing::NormalVector<float>(random, kCols);
  double exact = 0, magnitude = 0;
  for (const float value : x) {
    exact += value;
    magnitude += std::abs(value);
  }
  float sum = 0;
  ASSERT_TRUE(
      ReduceRows({.x = Matrix(x.data(), 1, kCols), .y = Vector(&sum, 1)},
                 testing::TestStream(1))
          .ok());
  EXPECT_NEAR(sum, exact, (kCols / 256 + 8) * 0x1p-24 * magnitude);
}

TEST(ReduceRows, TwoHostThreadsAtOnce) {
  constexpr int64_t kRows = 64, kCols = 3000;
  Random random(4);
  const auto x = testing::NormalVector<float>(random, kRows * kCols);
  std::vector<float> results[2];
  std::vector<std::thread> threads;
  for (std::vector<float>& y : results) {
    y.resize(kRows);
    threads.emplace_back([&] {
      for (int run = 0; run < 20; ++run) {
        if (!ReduceRows({.x = Matrix(x.data(), kRows, kCols),
                         .y = Vector(y.data(), kRows)},
                        testing::TestStream(2))
                 .ok()) {
          y.assign(kRows, 0.0f);
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(results[0], results[1]);
  EXPECT_EQ(results[0][0], CanonicalSum(kCols, [&](int64_t i) {
              return x[static_cast<size_t>(i)];
            }));
}

TEST(ReduceRows, OffsetsGoBeyond32Bits) {
  constexpr int64_t kPitch = (int64_t{1} << 31) + 3;
  constexpr int64_t kRows = 3, kCols = 40;
  const testing::SparseMemory memory(((kRows - 1) * kPitch + kCols) *
                                     int64_t{sizeof(float)});
  if (!memory.ok()) GTEST_SKIP() << "no address space";
  float* x = memory.as<float>();
  for (int64_t row = 0; row < kRows; ++row) {
    x[row * kPitch + row] = static_cast<float>(row + 1);
  }
  std::vector<float> sums(kRows);
  std::vector<int64_t> indices(kRows);
  const auto view = Matrix(x, kRows, kCols, kPitch);
  EXPECT_TRUE(ReduceRows({.x = view, .y = Vector(sums.data(), kRows)},
                         testing::TestStream(2))
                  .ok());
  EXPECT_TRUE(ReduceRows({.x = view,
                          .reduction = RowReduction::kArgMax,
                          .y = Vector(indices.data(), kRows)},
                         testing::TestStream(2))
                  .ok());
  EXPECT_EQ(sums, (std::vector<float>{1, 2, 3}));
  EXPECT_EQ(indices, (std::vector<int64_t>{0, 1, 2}));
}

TEST(ReduceRows, ZeroRowsAndZeroColumns) {
  const Stream stream = testing::TestStream(1);
  for (const RowReduction reduction : kAll) {
    const bool arg_max = reduction == RowReduction::kArgMax;
    const VectorView nothing{.data = nullptr,
                             .dtype = arg_max ? DType::kI64 : DType::kF32};
    EXPECT_TRUE(
        ReduceRows({.x = {.cols = 8}, .reduction = reduction, .y = nothing},
                   stream)
            .ok());
  }
  std::vector<float> y(2);
  const ConstMatrixView empty{.rows = 2};
  for (const RowReduction reduction :
       {RowReduction::kSum, RowReduction::kSumOfSquares}) {
    y.assign(2, -7.0f);
    ASSERT_TRUE(
        ReduceRows(
            {.x = empty, .reduction = reduction, .y = Vector(y.data(), 2)},
            stream)
            .ok());
    EXPECT_EQ(y, (std::vector<float>{0, 0}));
  }
  const absl::Status status = ReduceRows(
      {.x = empty, .reduction = RowReduction::kMean, .y = Vector(y.data(), 2)},
      stream);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(),
            "ReduceRows: x.cols: given 0, want >= 1 (mean of nothing)");
}

TEST(ReduceRows, Errors) {
  std::vector<float> x(64), y(8);
  std::vector<int64_t> indices(8);
  const auto expect = [&](ReduceRowsArgs args, absl::StatusCode code,
                          const std::string& message) {
    const absl::Status status = ReduceRows(args, testing::TestStream(1));
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(message));
  };
  constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
  const auto good = Matrix(x.data(), 8, 8);
  expect({.x = good, .y = Vector(y.data(), 7)}, kInvalid,
         "ReduceRows: y.size: given 7, want 8");
  expect({.x = good, .y = Vector(indices.data(), 8)}, kInvalid,
         "ReduceRows: y.dtype: given i64, want f32");
  expect(
      {.x = good, .reduction = RowReduction::kArgMax, .y = Vector(y.data(), 8)},
      kInvalid, "ReduceRows: y.dtype: given f32, want i64");
  expect({.x = good, .y = Vector<float>(nullptr, 8)}, kInvalid,
         "ReduceRows: y.data: given null, want a pointer");
  expect({.x = Matrix<float>(nullptr, 8, 8), .y = Vector(y.data(), 8)},
         kInvalid, "ReduceRows: x.data: given null, want a pointer");
  expect({.x = Matrix(x.data(), 8, 8, 7), .y = Vector(y.data(), 8)}, kInvalid,
         "ReduceRows: x.row_stride: given 7, want >= 8 (cols)");
  expect({.x = good, .y = Vector(x.data() + 8, 8)}, kInvalid,
         "ReduceRows: y: given memory that overlaps x, want other memory");
  expect({.x = good,
          .reduction = static_cast<RowReduction>(9),
          .y = Vector(y.data(), 8)},
         kInvalid, "ReduceRows: reduction: given 9, want a RowReduction");
  expect({.x = Matrix(reinterpret_cast<int8_t*>(x.data()), 8, 8),
          .y = Vector(y.data(), 8)},
         absl::StatusCode::kUnimplemented,
         "ReduceRows: x -> y: given i8 -> f32, supported f32 -> f32, f16 -> "
         "f32, bf16 -> f32");
  const absl::Status status = ReduceRows({.x = good, .y = Vector(y.data(), 8)},
                                         testing::MissingStream());
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(status.message(), testing::NoBackend("ReduceRows: stream"));
}

}  // namespace
}  // namespace lamina
