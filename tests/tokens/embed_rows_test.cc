// EmbedRows against plain loops, bit for bit: types, odd sizes, padded and
// misaligned rows, both types of ids; ids that are not there.

#include "lamina/tokens/embed_rows.h"

#include <cmath>
#include <cstring>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lamina/core/float16.h"
#include "lamina/tokens/embed_rows/embed_rows_policy.h"
#include "tests/support/memory.h"
#include "tests/support/random.h"
#include "tests/support/test_device.h"

namespace lamina {
namespace {

using ::lamina::testing::GuardedMatrix;
using ::lamina::testing::NormalVector;
using ::lamina::testing::Random;
using ::lamina::testing::TestStream;
using ::testing::HasSubstr;

struct Shape {
  int64_t vocabulary, cols, tokens;
  int64_t pitch_more = 0;  // elements beyond cols, of both
  int64_t offset = 0;      // elements from an aligned address, of both
};

template <class From, class To, class Id>
void ExpectRows(const Shape& shape) {
  SCOPED_TRACE(::testing::Message()
               << shape.vocabulary << " x " << shape.cols << ", "
               << shape.tokens << " tokens, +" << shape.pitch_more << ", @"
               << shape.offset);
  Random random(7);
  const int64_t pitch = shape.cols + shape.pitch_more;
  const GuardedMatrix table(DTypeOf<From>::value, shape.vocabulary, shape.cols,
                            pitch, shape.offset);
  std::vector<From> values =
      NormalVector<From>(random, shape.vocabulary * shape.cols, 100.0f);
  values[0] = FromFloat<From>(INFINITY);
  table.Fill(values);
  std::vector<Id> ids;
  for (int64_t t = 0; t < shape.tokens; ++t) {
    ids.push_back(static_cast<Id>((t * 7 + 3) % shape.vocabulary));
  }
  ids.front() = static_cast<Id>(shape.vocabulary - 1);
  ids.back() = 0;
  const GuardedMatrix y(DTypeOf<To>::value, shape.tokens, shape.cols, pitch,
                        shape.offset);
  const absl::Status status =
      EmbedRows({.table = table.view(),
                 .ids = Vector(ids.data(), shape.tokens),
                 .y = y.view()},
                TestStream(2));
  ASSERT_TRUE(status.ok()) << status;
  for (int64_t t = 0; t < shape.tokens; ++t) {
    for (int64_t i = 0; i < shape.cols; ++i) {
      const From from = table.At<From>(ids[static_cast<size_t>(t)], i);
      const To want = FromFloat<To>(ToFloat(from));
      ASSERT_EQ(std::memcmp(&y.At<To>(t, i), &want, sizeof(To)), 0)
          << "token " << t << ", column " << i;
    }
  }
  EXPECT_TRUE(y.GuardsIntact());
}

TEST(EmbedRows, AreTheTablesRoundedOnce) {
  ForEachRow(EmbedRowsTable{}, []<class From, class To>(Types<From, To>) {
    SCOPED_TRACE(DTypeOf<From>::value == DType::kF32 ? "from f32" : "");
    for (const Shape& shape :
         {Shape{11, 64, 3}, Shape{5, 77, 4}, Shape{3, 2049, 9},
          Shape{7, 1024, 70, 8}, Shape{7, 40, 3, 3}, Shape{9, 32, 5, 0, 1},
          Shape{1, 1, 1}}) {
      ExpectRows<From, To, int64_t>(shape);
    }
    ExpectRows<From, To, int32_t>({33, 96, 8});
  });
}

TEST(EmbedRows, NothingToDo) {
  const std::vector<float> table(4);
  EXPECT_TRUE(EmbedRows({.table = Matrix(table.data(), 2, 2),
                         .ids = Vector(static_cast<const int64_t*>(nullptr), 0),
                         .y = Matrix(static_cast<float*>(nullptr), 0, 2)},
                        TestStream())
                  .ok());
}

TEST(EmbedRows, IdsThatAreNotThere) {
  const std::vector<float> table = {1, 2, 3, 4};
  for (const int64_t id : {int64_t{-1}, int64_t{2}, int64_t{1} << 40}) {
    const std::vector<int64_t> ids = {1, id};
    std::vector<float> y(4, 7.0f);
    const absl::Status status = EmbedRows({.table = Matrix(table.data(), 2, 2),
                                           .ids = Vector(ids.data(), 2),
                                           .y = Matrix(y.data(), 2, 2)},
                                          TestStream());
    if (testing::OnCpu()) {
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
      EXPECT_THAT(status.message(), HasSubstr("ids[1]"));
      EXPECT_EQ(y, std::vector<float>(4, 7.0f));
    } else {
      ASSERT_TRUE(status.ok()) << status;
      EXPECT_EQ(y[0], 3);
      EXPECT_EQ(y[1], 4);
      EXPECT_TRUE(std::isnan(y[2]) && std::isnan(y[3]));
    }
  }
}

TEST(EmbedRowsErrors, NameTheArgument) {
  std::vector<float> table(12), y(12);
  std::vector<int64_t> ids(3);
  const EmbedRowsArgs good{.table = Matrix(table.data(), 4, 3),
                           .ids = Vector(ids.data(), 3),
                           .y = Matrix(y.data(), 3, 3)};
  ASSERT_TRUE(EmbedRows(good, Stream::Cpu()).ok());
  const auto expect = [&](const char* text, auto&& change,
                          absl::StatusCode code =
                              absl::StatusCode::kInvalidArgument) {
    EmbedRowsArgs args = good;
    change(args);
    const absl::Status status = EmbedRows(args, Stream::Cpu());
    EXPECT_EQ(status.code(), code) << text;
    EXPECT_THAT(status.message(), HasSubstr(text));
  };
  expect("y.cols", [](auto& a) { a.y.cols = 2; });
  expect("y.rows", [](auto& a) { a.y.rows = 2; });
  expect("ids", [](auto& a) { a.ids.data = nullptr; });
  expect("ids.dtype", [](auto& a) { a.ids.dtype = DType::kF32; });
  expect("table.batch", [](auto& a) {
    a.table.batch = 2;
    a.table.rows = 2;
    a.table.batch_stride = 6;
  });
  expect("y", [](auto& a) { a.y.data = const_cast<void*>(a.table.data); });
  expect(
      "supported", [](auto& a) { a.table.dtype = DType::kF8E4M3Fn; },
      absl::StatusCode::kUnimplemented);
}

}  // namespace
}  // namespace lamina
