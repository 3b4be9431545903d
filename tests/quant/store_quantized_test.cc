// The quantising store over one row, against its scalar model, on every SIMD
// target of this machine.

#include "lamina/quant/store_quantized.h"

#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lamina/core/device.h"
#include "tests/support/memory.h"
#include "tests/support/quantize_reference.h"
#include "tests/support/random.h"

namespace lamina {
namespace {

using ::lamina::testing::FirstDifference;
using ::lamina::testing::GuardedMatrix;
using ::lamina::testing::Random;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

struct Case {
  DType codes;
  DType scales = DType::kF32;
  int64_t block_cols = 0;  // 0: per row
  bool dynamic = true;
  float qmax = 0;
  std::optional<float> scale_ub = std::nullopt;
  DType round_type = DType::kF32;
};

// Values with everything in them: wide range, zeros of both signs, NaN, ±Inf.
std::vector<float> WildRow(int64_t cols, uint64_t seed) {
  Random random(seed);
  std::vector<float> row;
  for (int64_t i = 0; i < cols; ++i) {
    float v = random.Normal() * std::exp2(random.Normal(0.0f, 4.0f));
    switch (random.Integer(0, 40)) {
      case 0:
        v = 0.0f;
        break;
      case 1:
        v = -0.0f;
        break;
      case 2:
        v = kNaN;
        break;
      case 3:
        v = kInf;
        break;
      case 4:
        v = -kInf;
        break;
      case 5:
        v *= 1e-30f;
        break;
      default:
        break;
    }
    row.push_back(v);
  }
  return row;
}

ScaleView ScalesOf(const Case& c, void* data, int64_t cols) {
  ScaleView view{.data = data, .dtype = c.scales};
  view.granularity = c.block_cols == 0 ? ScaleGranularity::kPerRow
                                       : ScaleGranularity::kPerBlock;
  view.block_cols = c.block_cols;
  view.row_stride = c.block_cols == 0 ? 1 : CeilDiv(cols, c.block_cols);
  return view;
}

void ExpectEqualsModel(const Case& c, const std::vector<float>& values) {
  const int64_t cols = static_cast<int64_t>(values.size());
  const int64_t groups = c.block_cols == 0 ? 1 : CeilDiv(cols, c.block_cols);
  GuardedMatrix got(c.codes, 1, cols, cols, 3);
  GuardedMatrix want(c.codes, 1, cols, cols, 3);
  GuardedMatrix got_scales(c.scales, 1, groups, groups, 1);
  GuardedMatrix want_scales(c.scales, 1, groups, groups, 1);
  if (!c.dynamic) {
    for (int64_t g = 0; g < groups; ++g) {
      const float scale = 0.01f * static_cast<float>(g + 1);
      for (GuardedMatrix* scales : {&got_scales, &want_scales}) {
        StoreScale(ScalesOf(c, scales->view().data, cols), 0,
                   g * std::max<int64_t>(c.block_cols, 1), scale);
      }
    }
  }
  QuantizedOutput out{.codes = got.view(),
                      .scales = ScalesOf(c, got_scales.view().data, cols),
                      .dynamic = c.dynamic,
                      .qmax = c.qmax,
                      .scale_ub = c.scale_ub,
                      .round_before_quant = c.round_type != DType::kF32};
  QuantizedOutput model = out;
  model.codes = want.view();
  model.scales = ScalesOf(c, want_scales.view().data, cols);
  testing::QuantizeReference(values, c.round_type, model);
  for (const std::string& target : CpuTargetNames()) {
    ASSERT_TRUE(ForceCpuTarget(target));
    got.Poison();
    if (c.dynamic) got_scales.Poison();
    // In three spans where the groups allow it, else in one.
    const int64_t step = c.dynamic && c.block_cols == 0 ? cols
                         : c.block_cols == 0            ? 37
                                                        : c.block_cols * 3;
    for (int64_t begin = 0; begin < cols; begin += step) {
      StoreQuantizedSpan(
          out, {.row = 0, .begin = begin, .end = std::min(cols, begin + step)},
          values.data() + begin, c.round_type);
    }
    ASSERT_EQ(FirstDifference(got.Dense<uint8_t>(), want.Dense<uint8_t>()), -1)
        << target;
    if (c.scales == DType::kF32) {
      ASSERT_EQ(FirstDifference(got_scales.Dense<float>(),
                                want_scales.Dense<float>()),
                -1)
          << target;
    } else {
      ASSERT_EQ(FirstDifference(got_scales.Dense<uint8_t>(),
                                want_scales.Dense<uint8_t>()),
                -1)
          << target;
    }
    ASSERT_TRUE(got.GuardsIntact()) << target;
    ASSERT_TRUE(got_scales.GuardsIntact()) << target;
  }
  ForceCpuTarget("");
}

class StoreQuantized : public ::testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(Codes, StoreQuantized,
                         ::testing::Values(DType::kF8E4M3Fn, DType::kF8E5M2,
                                           DType::kF8E4M3Fnuz,
                                           DType::kF8E5M2Fnuz, DType::kI8),
                         [](const auto& test) {
                           return std::string(Name(test.param));
                         });

TEST_P(StoreQuantized, EqualsTheScalarModel) {
  const float qmax = GetParam() == DType::kI8 ? 100.0f : 224.0f;
  uint64_t seed = 1;
  for (const int64_t cols : {1, 7, 31, 32, 33, 64, 111, 129, 257, 500, 769}) {
    const std::vector<float> row = WildRow(cols, seed++);
    for (const DType scales : {DType::kF32, DType::kF8E8M0}) {
      for (const int64_t block_cols : {0, 32, 64, 128}) {
        for (const bool dynamic : {false, true}) {
          Case c{.codes = GetParam(),
                 .scales = scales,
                 .block_cols = block_cols,
                 .dynamic = dynamic};
          SCOPED_TRACE(::testing::Message()
                       << cols << " cols, " << Name(scales) << ", block "
                       << block_cols << ", dynamic " << dynamic);
          ASSERT_NO_FATAL_FAILURE(ExpectEqualsModel(c, row));
          c.round_type = DType::kBF16;
          ASSERT_NO_FATAL_FAILURE(ExpectEqualsModel(c, row));
          c.round_type = DType::kF16;
          ASSERT_NO_FATAL_FAILURE(ExpectEqualsModel(c, row));
          if (!dynamic) continue;
          c.qmax = qmax;
          ASSERT_NO_FATAL_FAILURE(ExpectEqualsModel(c, row));
          c.scale_ub = 1.5f;
          ASSERT_NO_FATAL_FAILURE(ExpectEqualsModel(c, row));
        }
      }
    }
  }
}

TEST_P(StoreQuantized, SpecialRowsEqualTheScalarModel) {
  const float smallest = std::numeric_limits<float>::denorm_min();
  const float largest = std::numeric_limits<float>::max();
  const std::vector<std::vector<float>> rows = {
      std::vector<float>(40, 0.0f), std::vector<float>(40, -0.0f),
      std::vector<float>(40, kNaN), std::vector<float>(40, -kInf),
      {smallest, -smallest, 0.0f},  {largest, -largest, 1.0f, 0.0f, kInf},
      {kNaN, 1.0f, 1.0f, 1.0f},
  };
  for (const auto& row : rows) {
    for (const int64_t block_cols : {0, 32}) {
      for (const DType scales : {DType::kF32, DType::kF8E8M0}) {
        for (const bool dynamic : {false, true}) {
          ASSERT_NO_FATAL_FAILURE(ExpectEqualsModel({.codes = GetParam(),
                                                     .scales = scales,
                                                     .block_cols = block_cols,
                                                     .dynamic = dynamic},
                                                    row));
        }
      }
    }
  }
}

// ---- Scales -----------------------------------------------------------------

// The minimum scales that vLLM documents.
static_assert(MinScale(448.0f) == 4.35965401e-06f);
static_assert(MinScale(224.0f) == 8.71930803e-06f);
static_assert(DynamicScale(448.0f, 448.0f, kInf) == 1.0f);
static_assert(DynamicScale(448.0f, 448.0f, 224.0f) == 0.5f);
static_assert(DynamicScale(0.0f, 448.0f, kInf) == MinScale(448.0f));

constexpr ConstScaleView kBlocks{.granularity = ScaleGranularity::kPerBlock,
                                 .block_cols = 32,
                                 .row_stride = 10};
static_assert(GroupEnd(kBlocks, 0, 100) == 32);
static_assert(GroupEnd(kBlocks, 33, 100) == 64);
static_assert(GroupEnd(kBlocks, 96, 100) == 100);
static_assert(kBlocks.Index(3, 64) == 32);
constexpr ConstScaleView kTiles{.granularity = ScaleGranularity::kPerTile,
                                .block_cols = 128,
                                .block_rows = 128,
                                .row_stride = 1,
                                .col_stride = 7};
static_assert(GroupEnd(kTiles, 130, 1000) == 256);
static_assert(kTiles.Index(256, 127) == 2);
static_assert(kTiles.Index(127, 256) == 14);

TEST(CheckRowwiseQuantizedOutput, RefusesDynamicScalesThatRowsShare) {
  std::vector<F8E4M3Fn> codes(256 * 128);
  std::vector<float> scales(1024);
  QuantizedOutput out{.codes = Matrix(codes.data(), 256, 128),
                      .scales = PerTensor(scales.data()),
                      .dynamic = true};
  const auto check = [&] {
    return CheckRowwiseQuantizedOutput("Op", "quantized", out, 1, 256, 128);
  };
  EXPECT_EQ(check().code(), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(std::string(check().message()),
            "Op: quantized.scales.granularity: given dynamic per_tensor; "
            "supported: static per_tensor, per_row, per_block, per_tile; "
            "dynamic per_row, per_block (Quantize has the rest)");
  out.dynamic = false;
  EXPECT_EQ(check(), absl::OkStatus());
  out.scales = PerTile(scales.data(), 128);
  EXPECT_EQ(check(), absl::OkStatus());
  out.dynamic = true;
  EXPECT_EQ(check().code(), absl::StatusCode::kUnimplemented);
  out.scales = PerRow(scales.data());
  EXPECT_EQ(check(), absl::OkStatus());
  out.scales = PerBlock(scales.data(), 128, 64);
  EXPECT_EQ(check(), absl::OkStatus());
  out.codes.rows = 255;
  EXPECT_EQ(std::string(check().message()),
            "Op: quantized.codes.rows: given 255, want 256");
}

TEST(CheckQuantizedOverlap, NamesWhatOverlapsTheInput) {
  std::vector<float> memory(64 * 64);
  std::vector<float> scales(64);
  QuantizedOutput out{
      .codes = Matrix(reinterpret_cast<int8_t*>(memory.data()), 64, 64),
      .scales = PerRow(scales.data()),
      .dynamic = true};
  const auto check = [&](const ConstMatrixView& in) {
    return std::string(
        CheckQuantizedOverlap("Op", "quantized", out, "x", in).message());
  };
  EXPECT_EQ(check(Matrix(memory.data(), 64, 64)),
            "Op: quantized.codes: given memory that overlaps x, want other "
            "memory");
  EXPECT_EQ(check(Matrix(scales.data(), 1, 64)),
            "Op: quantized.scales: given memory that overlaps x, want other "
            "memory");
  out.dynamic = false;  // scales that are read may be part of x
  EXPECT_EQ(check(Matrix(scales.data(), 1, 64)), "");
  EXPECT_EQ(check(Matrix(memory.data() + 64 * 16, 4, 64)), "");
}

TEST(ScaleGridView, FollowsTheStrides) {
  const ConstMatrixView tiles = ScaleGridView(kTiles, 300, 1000);
  EXPECT_EQ(tiles.rows, 8);  // transposed: columns of the grid
  EXPECT_EQ(tiles.cols, 3);
  EXPECT_EQ(tiles.row_stride, 7);
  ConstScaleView both = kBlocks;
  both.col_stride = 2;
  const ConstMatrixView view = ScaleGridView(both, 5, 100);
  EXPECT_EQ(view.batch, 5);
  EXPECT_EQ(view.batch_stride, 10);
  EXPECT_EQ(view.rows, 4);
  EXPECT_EQ(view.row_stride, 2);
  EXPECT_EQ(view.cols, 1);
  EXPECT_EQ(ScaleGridView(kBlocks, 0, 100).total_rows(), 0);
}

}  // namespace
}  // namespace lamina
