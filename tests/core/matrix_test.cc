// core/device/matrix.cuh on host SIMT or the GPU; the faults that host SIMT
// finds in kernels that use it.

#include "tests/core/matrix_kernels.h"

#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lamina/core/float16.h"
#include "tests/core/vocabulary_test.h"

namespace lamina {
namespace {

using testing::DeviceArray;
using testing::kMatrixBytes;
using testing::kMatrixRows;
using testing::Operands;
using testing::WarpgroupArgs;
using testing::WaveArgs;

constexpr DType kTypes[] = {DType::kF8E4M3Fn, DType::kBF16, DType::kF16};

// Rows of small integers: all sums are exact in any order.
struct Matrix {
  Matrix(DType type, int row_count, int row_bytes, unsigned seed)
      : rows(row_count), cols(row_bytes * 8 / BitsOf(type)) {
    std::mt19937 random(seed);
    for (int i = 0; i < rows * cols; ++i) {
      values.push_back(static_cast<float>(random() % 9) - 4.0f);
      Append(type, values.back());
    }
  }
  float at(int row, int col) const {
    return values[static_cast<size_t>(row * cols + col)];
  }

  int rows;
  int cols;
  std::vector<float> values;
  std::vector<uint8_t> bytes;

 private:
  void Append(DType type, float value) {
    if (type == DType::kF8E4M3Fn) {
      constexpr uint8_t kCodes[] = {0x00, 0x38, 0x40, 0x44, 0x48};
      const auto magnitude = static_cast<size_t>(std::fabs(value));
      bytes.push_back(
          static_cast<uint8_t>(kCodes[magnitude] | (value < 0 ? 0x80 : 0)));
      return;
    }
    const uint16_t bits = type == DType::kBF16 ? FromFloat<BF16>(value).bits
                                               : FromFloat<F16>(value).bits;
    bytes.push_back(static_cast<uint8_t>(bits));
    bytes.push_back(static_cast<uint8_t>(bits >> 8));
  }
};

std::vector<float> Product(const Matrix& a, const Matrix& b) {
  std::vector<float> d;
  for (int row = 0; row < a.rows; ++row) {
    for (int col = 0; col < b.rows; ++col) {
      float sum = 0;
      for (int k = 0; k < a.cols; ++k) sum += a.at(row, k) * b.at(col, k);
      d.push_back(sum);
    }
  }
  return d;
}

// Of the columns that have a meaning.
std::vector<float> FirstColumns(const std::vector<float>& d, int columns,
                                int count) {
  std::vector<float> some;
  for (size_t i = 0; i < d.size(); ++i) {
    if (static_cast<int>(i) % columns < count) some.push_back(d[i]);
  }
  return some;
}

class Warpgroup : public testing::VocabularyTest {
 protected:
  void SetUp() override {
    VocabularyTest::SetUp();
    if (IsSkipped()) return;
    const std::string& arch = GetDeviceInfo(kDevice).arch;
    if (arch != "simt" && arch != "sm_90") GTEST_SKIP() << "no wgmma";
  }
  std::vector<float> Run(WarpgroupArgs args) {
    const Matrix a(args.type, kMatrixRows, kMatrixBytes, 1);
    const Matrix b(args.type, args.columns, kMatrixBytes, 2);
    want_ = Product(a, b);
    return Run(args, a.bytes, b.bytes);
  }
  std::vector<float> Run(WarpgroupArgs args, const std::vector<uint8_t>& a,
                         const std::vector<uint8_t>& b) {
    const DeviceArray<uint8_t> a_device = OnDevice(a), b_device = OnDevice(b);
    DeviceArray<float> d = OnDevice(std::vector<float>(
        static_cast<size_t>(kMatrixRows * args.columns), -1.5f));
    args.a = a_device.data();
    args.b = b_device.data();
    args.d = d.data();
    EXPECT_TRUE(testing::LaunchWarpgroup(args, target()).ok());
    return d.Back();
  }
  const std::vector<float>& want() const { return want_; }

 private:
  std::vector<float> want_;
};

TEST_F(Warpgroup, MatchesTheSum) {
  for (const DType type : kTypes) {
    for (const int columns : {8, 16, 32, 64}) {
      for (const Operands operands :
           {Operands::kSwizzled, Operands::kRegisters, Operands::kPlain}) {
        for (const bool copied : {false, true}) {
          const WarpgroupArgs args{.type = type,
                                   .columns = columns,
                                   .operands = operands,
                                   .copied = copied};
          ASSERT_EQ(Run(args), want())
              << Name(type) << ", " << columns << " columns, operands "
              << static_cast<int>(operands) << ", copied " << copied;
        }
      }
    }
  }
}

TEST_F(Warpgroup, RowsMayOverlap) {
  for (const DType type : kTypes) {
    const WarpgroupArgs args{.type = type, .operands = Operands::kOverlapping};
    const std::vector<float> got = Run(args);
    EXPECT_EQ(FirstColumns(got, 8, 1), FirstColumns(want(), 8, 1));
  }
}

// One large product and 127 that are each less than half a unit of 14 bits. A
// sum in fp32 has them; that of FP8 products may lose those of its own half,
// and no more.
constexpr uint8_t kLargest = 0x7e, kOne = 0x38;  // 448, 1
std::vector<uint8_t> OneLarge(int rows) {
  std::vector<uint8_t> bytes(static_cast<size_t>(rows * kMatrixBytes), kOne);
  for (size_t i = 0; i < bytes.size(); i += kMatrixBytes) bytes[i] = kLargest;
  return bytes;
}

TEST_F(Warpgroup, Fp8SumsHave14Bits) {
  for (const float sum : Run({}, OneLarge(kMatrixRows), OneLarge(8))) {
    EXPECT_LE(sum, 448 * 448 + 127);
    EXPECT_GE(sum, 448 * 448 + 64);
  }
}

class WaveOfLanes : public testing::VocabularyTest {};

TEST_F(WaveOfLanes, MatchesTheSum) {
  for (const DType type : {DType::kBF16, DType::kF16}) {
    const Matrix a(type, 16, 32, 3), b(type, 8, 32, 4);
    const DeviceArray<uint8_t> a_device = OnDevice(a.bytes),
                               b_device = OnDevice(b.bytes);
    DeviceArray<float> d = OnDevice(std::vector<float>(16 * 8, 100.0f));
    const WaveArgs args{.type = type,
                        .a = a_device.data(),
                        .b = b_device.data(),
                        .d = d.data()};
    ASSERT_TRUE(testing::LaunchWave(args, target()).ok());
    std::vector<float> want = Product(a, b);
    for (float& value : want) value += 100.0f;
    EXPECT_EQ(d.Back(), want) << Name(type);
  }
}

#if defined(LAMINA_SIMT)
// ---- What host SIMT finds ---------------------------------------------------

using WarpgroupDeathTest = Warpgroup;
using ::testing::Each;
using ::testing::IsNan;

TEST_F(Warpgroup, Fp8SumsLoseWhatIsBehind14Bits) {
  EXPECT_THAT(Run({}, OneLarge(kMatrixRows), OneLarge(8)),
              Each(448.0f * 448.0f + 64.0f));
}

TEST_F(Warpgroup, WhatIsNotPublishedIsPoison) {
  EXPECT_THAT(Run({.faults = {.no_publish = true}}), Each(IsNan()));
  EXPECT_THAT(Run({.copied = true, .faults = {.no_publish = true}}),
              Each(IsNan()));
}

TEST_F(Warpgroup, ResultsAreLate) {
  EXPECT_THAT(Run({.faults = {.read_early = true}}), Each(IsNan()));
}

TEST_F(Warpgroup, OperandsMustNotChange) {
  const std::vector<float> got = Run({.faults = {.change_operand = true}});
  EXPECT_THAT(FirstColumns(got, 8, 1), Each(IsNan()));
}

TEST_F(Warpgroup, AWrongSwizzleShows) {
  EXPECT_NE(Run({.faults = {.no_swizzle = true}}), want());
}

TEST_F(WarpgroupDeathTest, Products) {
  EXPECT_DEATH(Run({.faults = {.no_fence = true}}),
               "a product without WarpgroupFence before it");
  EXPECT_DEATH(Run({.faults = {.no_wait = true}}),
               "products that nothing waits for");
  EXPECT_DEATH(Run({.faults = {.write_early = true}}),
               "the result of a product under way has been written");
  EXPECT_DEATH(Run({.faults = {.past_the_end = true}}),
               "an operand that ends outside of the block's shared memory");
  EXPECT_DEATH(Run({.faults = {.one_wave_less = true}}),
               "the waves of a warpgroup have made different products");
}
#endif

}  // namespace
}  // namespace lamina
