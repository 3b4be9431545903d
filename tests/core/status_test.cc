// The validation helpers: every check and its message; overlap of views
// against a byte map.

#include "lamina/core/status.h"

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "lamina/core/device/built_backends.h"
#include "tests/support/random.h"

namespace lamina {
namespace {

constexpr int64_t kHuge = std::numeric_limits<int64_t>::max();

std::string MatrixError(const ConstMatrixView& view) {
  return CheckMatrix("Op", "x", view).ToString();
}

class CheckMatrixTest : public ::testing::Test {
 protected:
  float data_[64] = {};
  ConstMatrixView view_ = Matrix(data_, 2, 4);
};

TEST_F(CheckMatrixTest, AcceptsWhatCanBeAddressed) {
  EXPECT_EQ(MatrixError(view_), "OK");
  view_.row_stride = 5;
  EXPECT_EQ(MatrixError(view_), "OK");
  // Empty views need no memory and no strides.
  EXPECT_EQ(MatrixError({.data = nullptr, .rows = 0, .cols = 4}), "OK");
  EXPECT_EQ(MatrixError({.data = nullptr, .rows = 4, .cols = 0}), "OK");
  EXPECT_EQ(MatrixError({.data = nullptr, .rows = 4, .cols = 4, .batch = 0}),
            "OK");
  // Strides of dimensions of size 1 are not read.
  EXPECT_EQ(MatrixError({.data = data_,
                         .rows = 1,
                         .cols = 4,
                         .row_stride = -kHuge,
                         .batch = 1,
                         .batch_stride = kHuge}),
            "OK");
}

TEST_F(CheckMatrixTest, NamesTheField) {
  view_.dtype = static_cast<DType>(kNumDTypes);
  EXPECT_EQ(MatrixError(view_),
            "INVALID_ARGUMENT: Op: x.dtype: given 12, want a DType");
  view_ = Matrix(data_, -1, 4);
  EXPECT_EQ(MatrixError(view_),
            "INVALID_ARGUMENT: Op: x.rows: given -1, want >= 0");
  view_ = Matrix(data_, 1, -4);
  EXPECT_EQ(MatrixError(view_),
            "INVALID_ARGUMENT: Op: x.cols: given -4, want >= 0");
  view_ = Matrix(data_, 2, 4);
  view_.batch = -2;
  EXPECT_EQ(MatrixError(view_),
            "INVALID_ARGUMENT: Op: x.batch: given -2, want >= 0");
  view_ = Matrix(static_cast<float*>(nullptr), 2, 4);
  EXPECT_EQ(MatrixError(view_),
            "INVALID_ARGUMENT: Op: x.data: given null, want a pointer");
  view_ = Matrix(data_, 2, 4, 3);
  EXPECT_EQ(MatrixError(view_),
            "INVALID_ARGUMENT: Op: x.row_stride: given 3, want >= 4 (cols)");
  view_ = Matrix(data_, 2, 4);
  view_.data = reinterpret_cast<char*>(data_) + 2;
  EXPECT_EQ(MatrixError(view_),
            "INVALID_ARGUMENT: Op: x.data: given a misaligned pointer, want "
            "alignment of one f32 (4 bytes)");
  view_.dtype = DType::kBF16;
  EXPECT_EQ(MatrixError(view_), "OK");
}

TEST_F(CheckMatrixTest, BatchesInSequenceOrSideBySide) {
  const auto batch = [&](int64_t rows, int64_t row_stride, int64_t size,
                         int64_t batch_stride) {
    return MatrixError({.data = data_,
                        .rows = rows,
                        .cols = 4,
                        .row_stride = row_stride,
                        .batch = size,
                        .batch_stride = batch_stride});
  };
  EXPECT_EQ(batch(2, 4, 3, 8), "OK");
  EXPECT_EQ(batch(2, 6, 3, 10), "OK");  // the last row needs no padding
  EXPECT_EQ(batch(1, 0, 3, 4), "OK");   // one row a matrix
  EXPECT_EQ(batch(2, 12, 3, 4), "OK");  // [heads, tokens, head_dim]
  EXPECT_EQ(batch(2, 14, 3, 5), "OK");  // the same, the last without padding
  for (const auto& error :
       {batch(2, 4, 3, 7), batch(2, 13, 3, 5), batch(2, 11, 3, 4),
        batch(2, 12, 3, 3), batch(2, 4, 3, 0), batch(2, 4, 3, -8)}) {
    EXPECT_NE(error.find("x.batch_stride"), std::string::npos) << error;
  }
  EXPECT_EQ(batch(2, 4, 3, 7),
            "INVALID_ARGUMENT: Op: x.batch_stride: given 7, want >= 8 (one "
            "matrix), or matrices side by side within a row pitch");
}

TEST_F(CheckMatrixTest, ExtentsFit64Bits) {
  EXPECT_EQ(MatrixError(Matrix(data_, 1, kHuge)),
            "INVALID_ARGUMENT: Op: x.cols: given 9223372036854775807, want an "
            "extent that fits 64 bits");
  EXPECT_EQ(MatrixError(Matrix(data_, kHuge, 4)),
            "INVALID_ARGUMENT: Op: x: given rows * row_stride, want an extent "
            "that fits 64 bits");
  EXPECT_EQ(MatrixError(Matrix(data_, 3, 4, kHuge / 2)),
            "INVALID_ARGUMENT: Op: x: given rows * row_stride, want an extent "
            "that fits 64 bits");
  ConstMatrixView view = Matrix(data_, 2, 4);
  view.batch = kHuge;
  view.batch_stride = 8;
  EXPECT_EQ(MatrixError(view),
            "INVALID_ARGUMENT: Op: x: given batch * batch_stride, want an "
            "extent that fits 64 bits");
}

// Every small view: CheckMatrix accepts exactly those (of nested strides)
// whose elements are distinct.
TEST_F(CheckMatrixTest, AcceptedViewsHaveDistinctElements) {
  int accepted = 0;
  for (int64_t rows = 1; rows <= 3; ++rows) {
    for (int64_t batch = 1; batch <= 3; ++batch) {
      for (int64_t cols = 1; cols <= 3; ++cols) {
        for (int64_t row_stride = 0; row_stride <= 12; ++row_stride) {
          for (int64_t batch_stride = 0; batch_stride <= 12; ++batch_stride) {
            const ConstMatrixView view{.data = data_,
                                       .rows = rows,
                                       .cols = cols,
                                       .row_stride = row_stride,
                                       .batch = batch,
                                       .batch_stride = batch_stride};
            if (!CheckMatrix("Op", "x", view).ok()) continue;
            ++accepted;
            std::vector<int> touched(200);
            for (int64_t row = 0; row < view.total_rows(); ++row) {
              const int64_t begin = view.Row<float>(row) - data_;
              for (int64_t c = 0; c < cols; ++c) {
                ASSERT_EQ(touched[static_cast<size_t>(begin + c)]++, 0)
                    << rows << " " << batch << " " << cols << " " << row_stride
                    << " " << batch_stride;
              }
            }
          }
        }
      }
    }
  }
  EXPECT_GT(accepted, 500);
}

TEST(CheckVector, SizeAndPointer) {
  float data[4] = {};
  EXPECT_TRUE(CheckVector("Op", "weight", Vector(data, 4), 4).ok());
  EXPECT_EQ(CheckVector("Op", "weight", Vector(data, 3), 4).message(),
            "Op: weight.size: given 3, want 4");
  EXPECT_EQ(CheckVector("Op", "weight", VectorView{.size = 4}, 4).message(),
            "Op: weight.data: given null, want a pointer");
}

TEST(CheckShape, EveryDimension) {
  float data[24] = {};
  const ConstMatrixView view = Heads(data, 2, 3, 4);
  EXPECT_TRUE(CheckShape("Op", "y", view, 2, 3, 4).ok());
  EXPECT_EQ(CheckShape("Op", "y", view, 1, 3, 4).message(),
            "Op: y.batch: given 2, want 1");
  EXPECT_EQ(CheckShape("Op", "y", view, 2, 6, 4).message(),
            "Op: y.rows: given 3, want 6");
  EXPECT_EQ(CheckShape("Op", "y", view, 2, 3, 8).message(),
            "Op: y.cols: given 4, want 8");
}

TEST(CheckDType, NamesBoth) {
  EXPECT_TRUE(CheckDType("Op", "y", DType::kF16, DType::kF16).ok());
  EXPECT_EQ(CheckDType("Op", "y", DType::kF16, DType::kF8E4M3Fn).message(),
            "Op: y.dtype: given f16, want f8e4m3fn");
}

TEST(CheckStream, NamesTheMissingBackend) {
  const Stream hip = Stream::Gpu({Backend::kHip, 0}, nullptr);
  const std::string missing = absl::StrCat(
      "UNIMPLEMENTED: Op: stream: this build has no hip backend; "
      "built backends: ",
      kBuiltBackends);
  EXPECT_TRUE(CheckStream("Op", Stream::Cpu()).ok());
  EXPECT_EQ(CheckStream("Op", hip).ToString(), missing);
  EXPECT_TRUE(CheckCpuStream("Op", Stream::Cpu()).ok());
  EXPECT_EQ(CheckCpuStream("Op", hip).ToString(), missing);
}

// ---- Overlap ----------------------------------------------------------------

bool Overlaps(const ConstMatrixView& out, const ConstMatrixView& in,
              bool in_place_ok = false) {
  return !CheckOverlap("Op", "y", out, "x", in, in_place_ok).ok();
}

TEST(CheckOverlap, Messages) {
  float data[16] = {};
  EXPECT_EQ(CheckOverlap("Op", "y", Matrix(data, 1, 8), "x",
                         Matrix(data + 7, 1, 8), false)
                .ToString(),
            "INVALID_ARGUMENT: Op: y: given memory that overlaps x, want other "
            "memory");
  EXPECT_EQ(CheckOverlap("Op", "y", Matrix(data, 1, 8), "x",
                         Matrix(data + 7, 1, 8), true)
                .message(),
            "Op: y: given memory that overlaps x, want the very view of x (in "
            "place) or other memory");
}

TEST(CheckOverlap, InPlaceIsTheVeryView) {
  float data[32] = {};
  const MatrixView x = Matrix(data, 2, 4, 8);
  EXPECT_TRUE(Overlaps(x, x, false));
  EXPECT_FALSE(Overlaps(x, x, true));
  EXPECT_TRUE(Overlaps(Matrix(data, 2, 4, 7), x, true));
  EXPECT_TRUE(Overlaps(Matrix(data + 1, 2, 4, 8), x, true));
  EXPECT_TRUE(Overlaps(Matrix(data, 2, 3, 8), x, true));
  EXPECT_TRUE(
      Overlaps(Matrix(reinterpret_cast<BF16*>(data), 2, 4, 8), x, true));
  // Strides of one row do not matter.
  EXPECT_FALSE(Overlaps(Matrix(data, 1, 4, 8), Matrix(data, 1, 4, 9), true));
}

TEST(CheckOverlap, NeighboursDoNotOverlap) {
  float data[64] = {};
  EXPECT_FALSE(Overlaps(Matrix(data, 2, 4), Matrix(data + 8, 2, 4)));
  EXPECT_TRUE(Overlaps(Matrix(data, 2, 4), Matrix(data + 7, 2, 4)));
  EXPECT_FALSE(Overlaps(Matrix(data, 0, 4), Matrix(data, 2, 4)));
  // Column ranges of one matrix.
  EXPECT_FALSE(Overlaps(Matrix(data, 4, 8, 16), Matrix(data + 8, 4, 8, 16)));
  EXPECT_TRUE(Overlaps(Matrix(data, 4, 9, 16), Matrix(data + 8, 4, 8, 16)));
  // A single row in the gap of another view.
  EXPECT_FALSE(Overlaps(Matrix(data, 4, 8, 16), Matrix(data + 24, 1, 8)));
  EXPECT_TRUE(Overlaps(Matrix(data, 4, 8, 16), Matrix(data + 23, 1, 8)));
}

TEST(CheckOverlap, QueryKeyAndValueHeadsOfOneMatrix) {
  constexpr int64_t kTokens = 3, kDim = 8, kPitch = (4 + 2 + 2) * kDim;
  float data[kTokens * kPitch] = {};
  const auto heads = [&](int64_t first, int64_t count, int64_t cols) {
    MatrixView view = Matrix(data + first * kDim, count, cols, kDim);
    view.batch = kTokens;
    view.batch_stride = kPitch;
    return view;
  };
  for (const int64_t cols : {kDim, kDim / 2}) {  // all, or the rotated half
    EXPECT_FALSE(Overlaps(heads(0, 4, cols), heads(4, 2, cols)));
    EXPECT_FALSE(Overlaps(heads(4, 2, cols), heads(0, 4, cols)));
    EXPECT_FALSE(Overlaps(heads(4, 2, cols), heads(6, 2, cols)));
    EXPECT_TRUE(Overlaps(heads(0, 5, cols), heads(4, 2, cols)));
    EXPECT_FALSE(Overlaps(heads(0, 4, cols), heads(0, 4, cols), true));
  }
  // [heads, tokens, head_dim] of the keys against the queries.
  const MatrixView keys{.data = data + 4 * kDim,
                        .rows = kTokens,
                        .cols = kDim,
                        .row_stride = kPitch,
                        .batch = 2,
                        .batch_stride = kDim};
  EXPECT_FALSE(Overlaps(keys, heads(0, 4, kDim)));
  EXPECT_TRUE(Overlaps(keys, heads(0, 5, kDim)));
}

// Random pairs of views against a map of the bytes they touch: an overlap is
// always found, and most disjoint pairs are told apart.
TEST(CheckOverlap, AgreesWithAByteMap) {
  testing::Random random(1);
  std::vector<float> data(4096);
  const auto random_view = [&] {
    ConstMatrixView view;
    view.dtype = random.Integer(0, 1) == 0 ? DType::kF32 : DType::kBF16;
    do {
      view.data = &data[static_cast<size_t>(random.Integer(0, 12))];
      view.rows = random.Integer(1, 3);
      view.cols = random.Integer(1, 4);
      view.batch = random.Integer(1, 3);
      view.row_stride = random.Integer(1, 12);
      view.batch_stride = random.Integer(1, 24);
    } while (!CheckMatrix("Op", "x", view).ok());
    return view;
  };
  const auto bytes_of = [&](const ConstMatrixView& view) {
    std::vector<bool> touched(data.size() * 4);
    const int64_t size = BytesFor(view.dtype, 1);
    for (int64_t b = 0; b < view.batch; ++b) {
      for (int64_t r = 0; r < view.rows; ++r) {
        const int64_t begin =
            static_cast<const char*>(view.data) -
            reinterpret_cast<const char*>(data.data()) +
            (b * view.batch_stride + r * view.row_stride) * size;
        for (int64_t i = 0; i < view.cols * size; ++i) {
          touched[static_cast<size_t>(begin + i)] = true;
        }
      }
    }
    return touched;
  };
  int disjoint = 0, told_apart = 0, overlapping = 0;
  for (int i = 0; i < 3000; ++i) {
    const ConstMatrixView a = random_view();
    const ConstMatrixView b = random_view();
    const std::vector<bool> a_bytes = bytes_of(a), b_bytes = bytes_of(b);
    bool shared = false;
    for (size_t byte = 0; byte < a_bytes.size(); ++byte) {
      shared = shared || (a_bytes[byte] && b_bytes[byte]);
    }
    if (shared) {
      ++overlapping;
      ASSERT_TRUE(Overlaps(a, b));
    } else {
      ++disjoint;
      told_apart += Overlaps(a, b) ? 0 : 1;
    }
  }
  EXPECT_GT(overlapping, 500);
  EXPECT_GT(disjoint, 500);
  EXPECT_GT(told_apart, disjoint / 2);
  RecordProperty("disjoint", disjoint);
  RecordProperty("told_apart", told_apart);
}

TEST(CheckNoByteOverlap, HalfOpenRanges) {
  char data[16] = {};
  const auto overlaps = [&](int64_t a, int64_t a_bytes, int64_t b,
                            int64_t b_bytes) {
    return !CheckNoByteOverlap("Op", "y", data + a, a_bytes, "x", data + b,
                               b_bytes)
                .ok();
  };
  EXPECT_FALSE(overlaps(0, 8, 8, 8));
  EXPECT_FALSE(overlaps(8, 8, 0, 8));
  EXPECT_TRUE(overlaps(0, 9, 8, 8));
  EXPECT_TRUE(overlaps(8, 1, 0, 9));
  EXPECT_FALSE(overlaps(4, 0, 0, 8));
  EXPECT_TRUE(CheckNoByteOverlap("Op", "y", nullptr, 8, "x", nullptr, 8).ok());
}

// ---- The macros -------------------------------------------------------------

absl::StatusOr<int> Half(int x) {
  if (x % 2 != 0) return InvalidArgument("Half", "x", x, "an even number");
  return x / 2;
}
absl::StatusOr<int> Quarter(int x) {
  LAMINA_ASSIGN_OR_RETURN(const int half, Half(x));
  LAMINA_ASSIGN_OR_RETURN(const int quarter, Half(half));
  return quarter;
}
absl::Status IsEven(int x) {
  LAMINA_RETURN_IF_ERROR(Half(x).status());
  return absl::OkStatus();
}

TEST(StatusMacros, ReturnTheFirstError) {
  EXPECT_EQ(*Quarter(12), 3);
  EXPECT_EQ(Quarter(6).status().message(),
            "Half: x: given 3, want an even number");
  EXPECT_TRUE(IsEven(2).ok());
  EXPECT_FALSE(IsEven(1).ok());
}

}  // namespace
}  // namespace lamina
