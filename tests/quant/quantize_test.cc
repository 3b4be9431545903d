#include "lamina/quant/quantize.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lamina/core/device.h"
#include "lamina/quant/quantize/quantize_policy.h"
#include "tests/quant/guarded_scales.h"
#include "tests/support/memory.h"
#include "tests/support/missing_backend.h"
#include "tests/support/quantize_reference.h"
#include "tests/support/random.h"
#include "tests/support/sparse_memory.h"
#include "tests/support/targets.h"
#include "tests/support/test_device.h"

namespace lamina {
namespace {

using ::lamina::testing::FirstDifference;
using ::lamina::testing::ForEachTarget;
using ::lamina::testing::GuardedMatrix;
using ::lamina::testing::GuardedScales;
using ::lamina::testing::Random;
using ::lamina::testing::ScaleLayout;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr auto kPerTensor = ScaleGranularity::kPerTensor;
constexpr auto kPerRow = ScaleGranularity::kPerRow;
constexpr auto kPerBlock = ScaleGranularity::kPerBlock;
constexpr auto kPerTile = ScaleGranularity::kPerTile;

// Quantize with the workspace that it asks for: any contents, nothing written
// past its end.
absl::Status RunQuantize(QuantizeArgs args, const Stream& stream) {
  const absl::StatusOr<int64_t> bytes =
      QuantizeWorkspaceBytes({.total_rows = args.x.total_rows(),
                              .cols = args.x.cols,
                              .granularity = args.out.scales.granularity,
                              .dynamic = args.out.dynamic},
                             GetDeviceInfo(stream.device()));
  if (!bytes.ok()) return bytes.status();
  constexpr uint8_t kPoison = 0xFF;  // NaN
  std::vector<uint8_t> memory(static_cast<size_t>(*bytes) + 64, kPoison);
  args.workspace = memory.data();
  args.workspace_bytes = *bytes;
  const absl::Status status = Quantize(args, stream);
  for (size_t i = static_cast<size_t>(*bytes); i < memory.size(); ++i) {
    EXPECT_EQ(memory[i], kPoison) << "workspace byte " << i;
  }
  return status;
}

// Fills with normal deviates of many magnitudes, each row of its own scale;
// with `wild`, also zeros, NaN and infinities.
void FillX(const GuardedMatrix& x, uint64_t seed, bool wild) {
  Random random(seed);
  const MatrixView view = x.view();
  for (int64_t r = 0; r < view.rows; ++r) {
    const float deviation = std::exp2(random.Normal(0.0f, 3.0f));
    for (int64_t c = 0; c < view.cols; ++c) {
      float v = deviation * random.Normal();
      if (wild) {
        const int64_t kind = random.Integer(0, 60);
        if (kind == 0) v = 0.0f;
        if (kind == 1) v = -0.0f;
        if (kind == 2) v = kNaN;
        if (kind == 3) v = kInf;
        if (kind == 4) v = -kInf;
        if (kind == 5) v *= 1e-4f;
      }
      switch (view.dtype) {
        case DType::kF16:
          x.At<F16>(r, c) = FromFloat<F16>(v);
          break;
        case DType::kBF16:
          x.At<BF16>(r, c) = FromFloat<BF16>(v);
          break;
        default:
          x.At<float>(r, c) = v;
      }
    }
  }
}

std::vector<float> ValuesOf(const ConstMatrixView& x) {
  std::vector<float> values;
  for (int64_t r = 0; r < x.total_rows(); ++r) {
    for (int64_t c = 0; c < x.cols; ++c) {
      switch (x.dtype) {
        case DType::kF16:
          values.push_back(ToFloat(x.Row<F16>(r)[c]));
          break;
        case DType::kBF16:
          values.push_back(ToFloat(x.Row<BF16>(r)[c]));
          break;
        default:
          values.push_back(x.Row<float>(r)[c]);
      }
    }
  }
  return values;
}

struct Case {
  DType x = DType::kBF16;
  DType codes = DType::kF8E4M3Fn;
  int64_t rows = 3;
  int64_t cols = 64;
  ScaleLayout scales = {};
  bool dynamic = true;
  float qmax = 0;
  std::optional<float> scale_ub = std::nullopt;
  int64_t x_pitch_extra = 0, codes_pitch_extra = 0;
  int64_t x_offset = 0, codes_offset = 0;
  int threads = 1;
  bool wild = true;
  uint64_t seed = 1;
};

std::string Describe(const Case& c) {
  return std::string(Name(c.x)) + " -> " + Name(c.codes) + " [" +
         std::to_string(c.rows) + ", " + std::to_string(c.cols) + "] " +
         Name(c.scales.granularity) + " " +
         std::to_string(c.scales.block_cols) + " " + Name(c.scales.dtype) +
         (c.dynamic ? " dynamic" : " static") +
         (c.scales.transposed ? " transposed" : "") + " pitch +" +
         std::to_string(c.x_pitch_extra) + " +" +
         std::to_string(c.codes_pitch_extra) + " offset " +
         std::to_string(c.x_offset) + " " + std::to_string(c.codes_offset) +
         " threads " + std::to_string(c.threads);
}

// Runs the case on the current target; compares with the scalar model.
void ExpectEqualsModel(const Case& c) {
  SCOPED_TRACE(Describe(c));
  GuardedMatrix x(c.x, c.rows, c.cols, c.cols + c.x_pitch_extra, c.x_offset);
  FillX(x, c.seed, c.wild);
  const std::vector<float> x_before = ValuesOf(x.view());
  GuardedMatrix codes(c.codes, c.rows, c.cols, c.cols + c.codes_pitch_extra,
                      c.codes_offset);
  GuardedMatrix want_codes(c.codes, c.rows, c.cols);
  GuardedScales scales(c.scales, c.rows, c.cols);
  GuardedScales want_scales(c.scales, c.rows, c.cols);
  if (!c.dynamic) {
    scales.FillStatic(0.013f, 1.7f);
    want_scales.FillStatic(0.013f, 1.7f);
  }
  QuantizedOutput out{.codes = codes.view(),
                      .scales = scales.view(),
                      .dynamic = c.dynamic,
                      .qmax = c.qmax,
                      .scale_ub = c.scale_ub};
  ASSERT_EQ(
      RunQuantize({.x = x.view(), .out = out}, testing::TestStream(c.threads)),
      absl::OkStatus());
  QuantizedOutput model = out;
  model.codes = want_codes.view();
  model.scales = want_scales.view();
  testing::QuantizeReference(x_before, c.x, model);
  ASSERT_EQ(
      FirstDifference(codes.Dense<uint8_t>(), want_codes.Dense<uint8_t>()), -1);
  ASSERT_EQ(FirstDifference(scales.Values(), want_scales.Values()), -1);
  ASSERT_TRUE(codes.GuardsIntact());
  ASSERT_TRUE(scales.matrix().GuardsIntact());
  ASSERT_TRUE(x.GuardsIntact());
  ASSERT_EQ(FirstDifference(ValuesOf(x.view()), x_before), -1);
}

std::vector<ScaleLayout> AllLayouts() {
  std::vector<ScaleLayout> layouts;
  for (const DType dtype : {DType::kF32, DType::kF8E8M0}) {
    layouts.push_back({.granularity = kPerTensor, .dtype = dtype});
    layouts.push_back({.granularity = kPerRow, .dtype = dtype, .padding = 2});
    for (const int64_t block : {32, 64, 128}) {
      layouts.push_back({.granularity = kPerBlock,
                         .block_cols = block,
                         .dtype = dtype,
                         .transposed = block != 64,
                         .padding = block == 32 ? 0 : 3});
    }
    layouts.push_back({.granularity = kPerTile,
                       .block_cols = 128,
                       .dtype = dtype,
                       .transposed = dtype == DType::kF32,
                       .padding = 1});
  }
  return layouts;
}

// ---- Every supported pair of types ------------------------------------------

using Pair = std::array<DType, 2>;
std::vector<Pair> SupportedPairs() {
  std::vector<Pair> pairs;
  ForEachRow(quant_internal::QuantizeTable{},
             [&](auto row) { pairs.push_back(decltype(row)::kKey); });
  return pairs;
}

class QuantizeTypes : public ::testing::TestWithParam<Pair> {
 protected:
  DType x() const { return GetParam()[0]; }
  DType codes() const { return GetParam()[1]; }
};
INSTANTIATE_TEST_SUITE_P(Quantize, QuantizeTypes,
                         ::testing::ValuesIn(SupportedPairs()),
                         [](const auto& test) {
                           return KeyName(test.param, "_");
                         });

TEST_P(QuantizeTypes, EqualsTheScalarModel) {
  uint64_t seed = 1;
  for (const int64_t cols : {1, 7, 33, 64, 111, 129, 257, 500}) {
    for (const ScaleLayout& layout : AllLayouts()) {
      for (const bool dynamic : {false, true}) {
        ++seed;
        Case c{.x = x(),
               .codes = codes(),
               .rows = layout.granularity == kPerTile ? 131 : 5,
               .cols = cols,
               .scales = layout,
               .dynamic = dynamic,
               .threads = static_cast<int>(seed % 4),
               .seed = seed};
        if (dynamic && seed % 3 == 0) {
          c.qmax = codes() == DType::kI8 ? 100.0f : 224.0f;
          c.scale_ub = 2.5f;
        }
        // The widest tile tests on the default target alone.
        if (layout.granularity == kPerTile && cols > 129) {
          ASSERT_NO_FATAL_FAILURE(ExpectEqualsModel(c));
        } else {
          ForEachTarget([&] { ExpectEqualsModel(c); });
          ASSERT_FALSE(HasFatalFailure());
        }
      }
    }
  }
}

TEST_P(QuantizeTypes, AnyAlignmentPitchAndSize) {
  const std::array layouts = {
      ScaleLayout{.granularity = kPerRow},
      ScaleLayout{.granularity = kPerBlock, .block_cols = 128}};
  uint64_t step = 0;
  for (const int64_t cols :
       {1,    7,    8,    64,   111,  500,  769,  1025, 1076, 1152,
        1280, 1368, 2176, 2880, 3420, 3584, 5120, 5125, 7168, 12288}) {
    for (const int64_t extra : {int64_t{0}, int64_t{1}, int64_t{8}, cols}) {
      for (const int64_t offset : {0, 1, 2, 3, 4}) {
        ++step;
        // Small sizes sweep all, large ones every eleventh combination.
        if (cols > 600 && step % 11 != 0) continue;
        for (const ScaleLayout& layout : layouts) {
          ASSERT_NO_FATAL_FAILURE(ExpectEqualsModel(
              {.x = x(),
               .codes = codes(),
               .rows = 2,
               .cols = cols,
               .scales = layout,
               .dynamic = step % 2 == 0,
               .x_pitch_extra = extra,
               .codes_pitch_extra = cols - extra > 0 ? cols - extra : extra,
               .x_offset = offset,
               .codes_offset = (offset * 3 + 1) % 5,
               .seed = step}));
        }
      }
    }
  }
}

TEST_P(QuantizeTypes, ErrorIsWithinHalfAStepOfTheFormat) {
  // |code * scale - x| against a double computation: half a step of the format
  // at that magnitude, plus two fp32 roundings.
  for (const DType scale_type : {DType::kF32, DType::kF8E8M0}) {
    GuardedMatrix x(this->x(), 4, 1000);
    FillX(x, 7, /*wild=*/false);
    GuardedMatrix codes(this->codes(), 4, 1000);
    GuardedScales scales({.granularity = kPerRow, .dtype = scale_type}, 4,
                         1000);
    ASSERT_TRUE(RunQuantize({.x = x.view(),
                             .out = {.codes = codes.view(),
                                     .scales = scales.view(),
                                     .dynamic = true}},
                            testing::TestStream(1))
                    .ok());
    const std::vector<float> values = ValuesOf(x.view());
    int64_t nonzero = 0;
    Dispatch(
        CodeTable{}, std::array{this->codes()}, [&]<class Code>(Types<Code>) {
          for (int64_t r = 0; r < 4; ++r) {
            const double scale = LoadScale(scales.view(), r, 0);
            for (int64_t c = 0; c < 1000; ++c) {
              const double want = values[static_cast<size_t>(r * 1000 + c)];
              const double got =
                  scale * static_cast<double>(ToFloat(codes.At<Code>(r, c)));
              double relative = 0, absolute = 0.5;  // int8
              if constexpr (!std::is_same_v<Code, int8_t>) {
                constexpr Fp8Format kFormat = Fp8FormatOf<Code>::value;
                relative = std::exp2(-kFormat.mantissa_bits - 1);
                absolute = std::exp2(-kFormat.bias - kFormat.mantissa_bits);
              }
              ASSERT_LE(std::fabs(got - want),
                        std::max(relative * std::fabs(want), absolute * scale) +
                            1e-6 * std::fabs(want))
                  << r << ", " << c;
              nonzero += got != 0;
            }
          }
        });
    EXPECT_GT(nonzero, 3000);
  }
}

// ---- Known answers ----------------------------------------------------------

// Quantises one row of floats; dynamic with per-row scale unless `scale` > 0.
struct RowResult {
  std::vector<uint8_t> codes;
  float scale = 0;
};
RowResult QuantizeRow(std::vector<float> row, DType type, float scale = 0,
                      float qmax = 0,
                      std::optional<float> scale_ub = std::nullopt) {
  const int64_t cols = static_cast<int64_t>(row.size());
  RowResult result{.codes = std::vector<uint8_t>(row.size(), 0xa5),
                   .scale = scale};
  QuantizedOutput out{
      .codes = Matrix(reinterpret_cast<int8_t*>(result.codes.data()), 1, cols),
      .scales = PerRow(&result.scale),
      .dynamic = scale == 0,
      .qmax = qmax,
      .scale_ub = scale_ub};
  out.codes.dtype = type;
  EXPECT_EQ(RunQuantize({.x = Matrix(row.data(), 1, cols), .out = out},
                        testing::TestStream(1)),
            absl::OkStatus());
  return result;
}

TEST(Quantize, LargeValuesSaturateInsteadOfBecomingNaN) {
  const std::vector<float> row = {466.0f, 480.0f, 1e4f, -1e4f, kInf, -kInf};
  EXPECT_THAT(QuantizeRow(row, DType::kF8E4M3Fn, 1.0f).codes,
              ElementsAre(0x7e, 0x7e, 0x7e, 0xfe, 0x7e, 0xfe));
  EXPECT_THAT(QuantizeRow(row, DType::kF8E4M3Fnuz, 1.0f).codes,
              ElementsAre(0x7f, 0x7f, 0x7f, 0xff, 0x7f, 0xff));
  EXPECT_THAT(QuantizeRow({250.0f}, DType::kF8E4M3Fnuz, 1.0f).codes,
              ElementsAre(0x7f));
  EXPECT_THAT(QuantizeRow({1e6f, kInf, -kInf}, DType::kF8E5M2, 1.0f).codes,
              ElementsAre(0x7b, 0x7b, 0xfb));
  EXPECT_THAT(QuantizeRow({1e6f, kInf, -kInf}, DType::kF8E5M2Fnuz, 1.0f).codes,
              ElementsAre(0x7f, 0x7f, 0xff));
  EXPECT_THAT(QuantizeRow(row, DType::kI8, 1.0f).codes,
              ElementsAre(0x7f, 0x7f, 0x7f, 0x80, 0x7f, 0x80));
}

TEST(Quantize, NaNStaysNaNAndChangesNothingElse) {
  const std::vector<float> row = {kNaN, 1.0f, -1.0f, 0.5f};
  const RowResult fn = QuantizeRow(row, DType::kF8E4M3Fn);
  EXPECT_THAT(fn.codes, ElementsAre(0x7f, 0x7e, 0xfe, 0x76));
  EXPECT_EQ(fn.scale, 1.0f / 448.0f);
  EXPECT_THAT(QuantizeRow(row, DType::kF8E4M3Fnuz).codes,
              ElementsAre(0x80, 0x7f, 0xff, 0x77));
  EXPECT_EQ(QuantizeRow(row, DType::kF8E5M2).codes[0], 0x7e);
  EXPECT_EQ(QuantizeRow(row, DType::kF8E5M2Fnuz).codes[0], 0x80);
  EXPECT_EQ(QuantizeRow(row, DType::kI8).codes[0], 0);
  const RowResult all = QuantizeRow({kNaN, kNaN}, DType::kF8E4M3Fn);
  EXPECT_THAT(all.codes, ElementsAre(0x7f, 0x7f));
  EXPECT_EQ(all.scale, MinScale(448.0f));
}

TEST(Quantize, InfinitySaturatesAndDoesNotChangeTheScale) {
  const RowResult row =
      QuantizeRow({kInf, 2.0f, -kInf, 1.0f}, DType::kF8E4M3Fn);
  EXPECT_EQ(row.scale, 2.0f / 448.0f);
  EXPECT_THAT(row.codes, ElementsAre(0x7e, 0x7e, 0xfe, 0x76));
}

TEST(Quantize, AbsmaxEqualToTheMaximumGivesScaleOne) {
  EXPECT_EQ(QuantizeRow({-448.0f, 3.0f}, DType::kF8E4M3Fn).scale, 1.0f);
  EXPECT_EQ(QuantizeRow({240.0f, 3.0f}, DType::kF8E4M3Fnuz).scale, 1.0f);
  EXPECT_EQ(QuantizeRow({57344.0f}, DType::kF8E5M2).scale, 1.0f);
  EXPECT_EQ(QuantizeRow({127.0f}, DType::kI8).scale, 1.0f);
}

TEST(Quantize, QmaxIsWhatAmaxMapsToAndTheLargestCode) {
  const RowResult row =
      QuantizeRow({240.0f, -kInf, kInf}, DType::kF8E4M3Fnuz, 0, 224.0f);
  EXPECT_EQ(row.scale, 240.0f / 224.0f);
  EXPECT_THAT(row.codes, ElementsAre(0x7e, 0xfe, 0x7e));  // ±224
  EXPECT_THAT(QuantizeRow({10.0f, -kInf}, DType::kI8).codes,
              ElementsAre(0x7f, 0x81));  // -127, not -128
}

TEST(Quantize, ScaleUbBoundsAmax) {
  const RowResult row =
      QuantizeRow({10.0f, 1.0f, -10.0f}, DType::kF8E4M3Fn, 0, 0, 2.0f);
  EXPECT_EQ(row.scale, 2.0f / 448.0f);
  EXPECT_THAT(row.codes, ElementsAre(0x7e, 0x76, 0xfe));
  EXPECT_EQ(QuantizeRow({1.0f}, DType::kF8E4M3Fn, 0, 0, 2.0f).scale,
            1.0f / 448.0f);
  EXPECT_EQ(QuantizeRow({1.0f}, DType::kF8E4M3Fn, 0, 0, 1e-30f).scale,
            MinScale(448.0f));
  EXPECT_EQ(QuantizeRow({1.0f}, DType::kF8E4M3Fn, 0, 0, kInf).scale,
            1.0f / 448.0f);
}

TEST(Quantize, StaticScaleIsHonoured) {
  EXPECT_THAT(QuantizeRow({1.0f}, DType::kF8E4M3Fn, 1.0f).codes,
              ElementsAre(0x38));
  EXPECT_THAT(QuantizeRow({1.0f}, DType::kF8E4M3Fn, 0.5f).codes,
              ElementsAre(0x40));
}

TEST(Quantize, TheInverseIsFormedOnceAndMultiplied) {
  // A value and a scale for which v * (1 / scale) and v / scale round to
  // different codes; the rule is the product.
  Random random(5);
  int found = 0;
  for (int i = 0; i < 200000; ++i) {
    const float scale = random.Normal(0.01f, 0.001f);
    // A midpoint between two neighbouring codes, times the scale.
    const float v =
        (16.0f + 2.0f * static_cast<float>(random.Integer(0, 7)) + 1.0f) *
        scale;
    const auto product = FromFloat<F8E4M3Fn>(v * (1.0f / scale));
    if (product == FromFloat<F8E4M3Fn>(v / scale)) continue;
    ++found;
    ASSERT_THAT(QuantizeRow({v}, DType::kF8E4M3Fn, scale).codes,
                ElementsAre(product.bits));
  }
  EXPECT_GT(found, 100);
}

TEST(Quantize, ZerosGiveZeroCodesAndTheMinimumScaleEverywhere) {
  // Row 3 of 8 and one block of row 5 are zero.
  std::vector<float> x(8 * 256, 1.0f);
  std::fill_n(x.begin() + 3 * 256, 256, 0.0f);
  std::fill_n(x.begin() + 5 * 256 + 128, 128, -0.0f);
  for (const DType type : {DType::kF8E4M3Fn, DType::kF8E5M2, DType::kF8E4M3Fnuz,
                           DType::kF8E5M2Fnuz, DType::kI8}) {
    for (const ScaleLayout& layout : AllLayouts()) {
      SCOPED_TRACE(::testing::Message()
                   << Name(type) << " " << Name(layout.granularity));
      GuardedMatrix codes(type, 8, 256);
      GuardedScales scales(layout, 8, 256);
      ASSERT_TRUE(RunQuantize({.x = Matrix(x.data(), 8, 256),
                               .out = {.codes = codes.view(),
                                       .scales = scales.view(),
                                       .dynamic = true}},
                              testing::TestStream(2))
                      .ok());
      for (int64_t c = 0; c < 256; ++c) {
        ASSERT_EQ(codes.At<uint8_t>(3, c), 0);
        ASSERT_EQ((codes.At<uint8_t>(5, c) & 0x7f) == 0, c >= 128);
        ASSERT_NE(codes.At<uint8_t>(2, c), 0);
      }
      for (const float scale : scales.Values()) {
        ASSERT_TRUE(std::isfinite(scale));
        ASSERT_GT(scale, 0.0f);
      }
      if (layout.dtype == DType::kF32 && layout.granularity == kPerRow) {
        EXPECT_EQ(LoadScale(scales.view(), 3, 0), MinScale(MaxFinite(type)));
      }
    }
  }
  // All of a tensor zero.
  std::vector<float> zeros(300, 0.0f);
  GuardedMatrix codes(DType::kF8E4M3Fn, 3, 100);
  float scale = kNaN;
  ASSERT_TRUE(RunQuantize({.x = Matrix(zeros.data(), 3, 100),
                           .out = {.codes = codes.view(),
                                   .scales = PerTensor(&scale),
                                   .dynamic = true}},
                          testing::TestStream(2))
                  .ok());
  EXPECT_EQ(scale, MinScale(448.0f));
  EXPECT_EQ(codes.Dense<uint8_t>(), std::vector<uint8_t>(300, 0));
}

TEST(Quantize, PowerOfTwoScalesRoundUpSoThatNothingOverflows) {
  for (const float amax :
       {448.0f, 449.0f, 7.0f * 64.0f * 1.0001f, 896.0f, 897.0f, 1e-2f, 3e38f}) {
    std::vector<float> x = {amax, -amax, 0.1f * amax};
    F8E8M0 scale{0x55};
    std::vector<F8E4M3Fn> codes(3);
    ASSERT_TRUE(RunQuantize({.x = Matrix(x.data(), 1, 3),
                             .out = {.codes = Matrix(codes.data(), 1, 3),
                                     .scales = PerRow(&scale),
                                     .dynamic = true}},
                            testing::TestStream(1))
                    .ok());
    const float s = ToFloat(scale);
    EXPECT_GE(s, amax / 448.0f) << amax;
    EXPECT_LT(s, 2.0f * amax / 448.0f) << amax;
    int exponent = 0;
    EXPECT_EQ(std::frexp(s, &exponent), 0.5f) << amax;
    EXPECT_LE(codes[0].bits, 0x7e) << amax;
    EXPECT_NEAR(ToFloat(codes[0]) * s, amax, amax / 16.0f);
  }
}

// ---- Shapes -----------------------------------------------------------------

TEST(Quantize, BatchedViewsWithGapsAndInterleavedHeads) {
  constexpr int64_t kBatch = 3, kRows = 4, kCols = 70;
  Random random(3);
  std::vector<BF16> x = testing::NormalVector<BF16>(random, 20000);
  struct Strides {
    int64_t row, batch;
  };
  // Gaps in both dimensions; heads interleaved; a singleton row whose stride
  // is nonsense.
  for (const Strides& s :
       {Strides{80, 1000}, Strides{70 * 3, 70}, Strides{71, 4 * 71}}) {
    ConstMatrixView view = Matrix(std::as_const(x).data(), kRows, kCols, s.row);
    view.batch = kBatch;
    view.batch_stride = s.batch;
    for (const ScaleLayout& layout : AllLayouts()) {
      for (const bool dynamic : {false, true}) {
        SCOPED_TRACE(::testing::Message()
                     << s.row << " " << Name(layout.granularity));
        std::vector<uint8_t> got(4000, 0xa5), want(4000, 0xa5);
        GuardedScales scales(layout, kBatch * kRows, kCols);
        GuardedScales want_scales(layout, kBatch * kRows, kCols);
        if (!dynamic) {
          scales.FillStatic(0.02f, 1.3f);
          want_scales.FillStatic(0.02f, 1.3f);
        }
        QuantizedOutput out{
            .codes = Matrix(reinterpret_cast<F8E4M3Fn*>(got.data()), kRows,
                            kCols, 77),
            .scales = scales.view(),
            .dynamic = dynamic};
        out.codes.batch = kBatch;
        out.codes.batch_stride = 77 * kRows + 5;
        ASSERT_EQ(RunQuantize({.x = view, .out = out}, testing::TestStream(3)),
                  absl::OkStatus());
        out.codes.data = want.data();
        out.scales = want_scales.view();
        testing::QuantizeReference(ValuesOf(view), DType::kBF16, out);
        ASSERT_EQ(got, want);  // gaps included
        ASSERT_EQ(FirstDifference(scales.Values(), want_scales.Values()), -1);
        ASSERT_TRUE(scales.matrix().GuardsIntact());
      }
    }
  }
}

TEST(Quantize, StrideOfASingletonDimensionIsNotUsed) {
  Random random(9);
  const std::vector<float> x = testing::NormalVector<float>(random, 8 * 16);
  std::vector<int8_t> codes(8 * 16), want(8 * 16);
  std::vector<float> scales(8), want_scales(8);
  ConstMatrixView view = Matrix(x.data(), 1, 16, int64_t{1} << 50);
  view.batch = 8;
  view.batch_stride = 16;
  MatrixView out = Matrix(codes.data(), 1, 16, -7 + (int64_t{1} << 51));
  out.batch = 8;
  out.batch_stride = 16;
  ASSERT_EQ(RunQuantize({.x = view,
                         .out = {.codes = out,
                                 .scales = PerRow(scales.data()),
                                 .dynamic = true}},
                        testing::TestStream(1)),
            absl::OkStatus());
  ASSERT_EQ(RunQuantize({.x = Matrix(x.data(), 8, 16),
                         .out = {.codes = Matrix(want.data(), 8, 16),
                                 .scales = PerRow(want_scales.data()),
                                 .dynamic = true}},
                        testing::TestStream(1)),
            absl::OkStatus());
  EXPECT_EQ(codes, want);
  EXPECT_EQ(scales, want_scales);
}

TEST(Quantize, CodesAndScalesMayShareRowsOfOneBuffer) {
  // Each row: 64 codes, then one fp32 scale; 80 bytes a row.
  Random random(11);
  const std::vector<float> x = testing::NormalVector<float>(random, 5 * 64);
  alignas(4) std::array<uint8_t, 5 * 80> buffer;
  buffer.fill(0xa5);
  ScaleView scales{
      .data = buffer.data() + 64, .granularity = kPerRow, .row_stride = 20};
  QuantizedOutput out{
      .codes = Matrix(reinterpret_cast<F8E4M3Fn*>(buffer.data()), 5, 64, 80),
      .scales = scales,
      .dynamic = true};
  ASSERT_EQ(RunQuantize({.x = Matrix(x.data(), 5, 64), .out = out},
                        testing::TestStream(1)),
            absl::OkStatus());
  alignas(4) std::array<uint8_t, 5 * 80> want;
  want.fill(0xa5);
  out.codes.data = want.data();
  out.scales.data = want.data() + 64;
  testing::QuantizeReference(x, DType::kF32, out);
  EXPECT_EQ(buffer, want);
}

TEST(Quantize, TransposedScalesWithAlignedPitchLeavePaddingAlone) {
  // 5 tokens, blocks of 128, column pitch 8: rows 5..7 of the grid are padding.
  Random random(13);
  const std::vector<BF16> x = testing::NormalVector<BF16>(random, 5 * 384);
  std::vector<F8E4M3Fn> codes(5 * 384);
  std::vector<float> scales(3 * 8, -7.0f);
  ASSERT_EQ(RunQuantize({.x = Matrix(x.data(), 5, 384),
                         .out = {.codes = Matrix(codes.data(), 5, 384),
                                 .scales = {.data = scales.data(),
                                            .granularity = kPerBlock,
                                            .block_cols = 128,
                                            .row_stride = 1,
                                            .col_stride = 8},
                                 .dynamic = true}},
                        testing::TestStream(1)),
            absl::OkStatus());
  for (int64_t block = 0; block < 3; ++block) {
    for (int64_t row = 0; row < 8; ++row) {
      const float got = scales[static_cast<size_t>(block * 8 + row)];
      if (row >= 5) {
        EXPECT_EQ(got, -7.0f);
        continue;
      }
      float amax = 0;
      for (int64_t c = block * 128; c < block * 128 + 128; ++c) {
        amax = std::max(
            amax, std::fabs(ToFloat(x[static_cast<size_t>(row * 384 + c)])));
      }
      EXPECT_EQ(got, amax / 448.0f) << row << ", " << block;
    }
  }
}

TEST(Quantize, SeventeenBlocksAndOddBlockCounts) {
  for (const int64_t cols : {17 * 128, 1152, 5120, 4097, 6143, 769}) {
    for (const int64_t block : {32, 64, 128}) {
      ForEachTarget([&] {
        ExpectEqualsModel(
            {.rows = 1,
             .cols = cols,
             .scales = {.granularity = kPerBlock, .block_cols = block}});
      });
    }
  }
}

TEST(Quantize, EnoughRowsThatALaneOwnsSeveralOctets) {
  for (const int64_t cols : {5128, 5131}) {
    ExpectEqualsModel({.rows = 130, .cols = cols, .dynamic = false});
    ExpectEqualsModel({.rows = 130,
                       .cols = cols,
                       .scales = {.granularity = kPerBlock, .block_cols = 64}});
  }
}

// 16-bit rows to the hardware's FP8 type, of whole octets or nearly: around
// every switch of quant/lean_rows_policy.h for the 16 units of host SIMT.
TEST(Quantize, HoweverRowsAreSplit) {
  const ScaleLayout layouts[] = {
      {.granularity = kPerTensor},
      {.granularity = kPerRow},
      {.granularity = kPerBlock, .block_cols = 32},
      {.granularity = kPerBlock, .block_cols = 128, .transposed = true}};
  struct Size {
    int64_t rows, cols;
  };
  // Short rows; one, two and four pieces a lane; clusters; too long ones.
  for (const Size size : {Size{3, 248},
                          {3, 256},
                          {5, 2048},
                          {5, 2056},
                          {12, 1544},
                          {3, 16384},
                          {2, 16392},
                          {3, 16392},
                          {1, 32768},
                          {3, 32776},
                          {1, 65544},
                          {4, 4100}}) {
    for (const ScaleLayout& layout : layouts) {
      for (const DType type : {DType::kBF16, DType::kF16}) {
        for (const DType codes : {DType::kF8E4M3Fn, DType::kF8E4M3Fnuz}) {
          ExpectEqualsModel({.x = type,
                             .codes = codes,
                             .rows = size.rows,
                             .cols = size.cols,
                             .scales = layout,
                             .dynamic = layout.granularity != kPerTensor,
                             .x_pitch_extra = 8,
                             .codes_pitch_extra = 24});
        }
      }
    }
  }
}

TEST(Quantize, MoreRowsThanSixteenBitsCount) {
  ExpectEqualsModel({.rows = 70001,
                     // Whole octets take one lane a row.
                     .cols = testing::OnSimt() ? 8 : 3,
                     .scales = {.granularity = kPerRow},
                     .threads = 2});
}

TEST(Quantize, TheExampleOfTheHeader) {
  constexpr int64_t rows = 2, cols = 3;
  std::vector<float> x(rows * cols), scales(rows);
  std::vector<F8E4M3Fn> codes(rows * cols);
  absl::Status status =
      RunQuantize({.x = Matrix(x.data(), rows, cols),
                   .out = {.codes = Matrix(codes.data(), rows, cols),
                           .scales = PerRow(scales.data()),
                           .dynamic = true}},
                  testing::TestStream(2));
  EXPECT_EQ(status, absl::OkStatus());
}

TEST(Quantize, EmptyMatricesWriteNothing) {
  std::vector<float> x(4);
  std::vector<int8_t> codes(4, 9);
  float scale = -7.0f;
  struct Size {
    int64_t rows, cols;
  };
  for (const Size& size : {Size{0, 4}, Size{4, 0}, Size{0, 0}}) {
    for (const bool dynamic : {false, true}) {
      EXPECT_EQ(
          RunQuantize(
              {.x = Matrix(x.data(), size.rows, size.cols),
               .out = {.codes = Matrix(codes.data(), size.rows, size.cols),
                       .scales = PerTensor(&scale),
                       .dynamic = dynamic}},
              testing::TestStream(1)),
          absl::OkStatus());
      // Null pointers are fine when there is nothing to point at.
      EXPECT_EQ(
          RunQuantize(
              {.x = Matrix<float>(nullptr, size.rows, size.cols),
               .out = {.codes = Matrix<int8_t>(nullptr, size.rows, size.cols),
                       .scales = PerRow<float>(nullptr),
                       .dynamic = dynamic}},
              testing::TestStream(1)),
          absl::OkStatus());
    }
  }
  EXPECT_EQ(scale, -7.0f);
  EXPECT_EQ(codes, std::vector<int8_t>(4, 9));
}

TEST(Quantize, OffsetsBeyondTwoToTheThirtyTwoElements) {
  constexpr int64_t kPitch = (int64_t{1} << 31) + 8;
  constexpr int64_t kRows = 3, kCols = 128;
  const testing::SparseMemory x_bytes(2 * (2 * kPitch + kCols));
  const testing::SparseMemory codes_bytes(2 * kPitch + kCols);
  const testing::SparseMemory scales_bytes(4 * (2 * kPitch + 4));
  if (!x_bytes.ok() || !codes_bytes.ok() || !scales_bytes.ok()) {
    GTEST_SKIP() << "no address space for the sparse matrices";
  }
  Random random(17);
  const std::vector<BF16> dense = testing::NormalVector<BF16>(random, 3 * 128);
  const MatrixView x = Matrix(x_bytes.as<BF16>(), kRows, kCols, kPitch);
  for (int64_t r = 0; r < kRows; ++r) {
    std::copy_n(dense.begin() + r * kCols, kCols, x.Row<BF16>(r));
  }
  std::vector<F8E4M3Fn> want(3 * 128);
  for (const ScaleGranularity granularity : {kPerRow, kPerBlock}) {
    std::vector<float> want_scales(3 * 4);
    ScaleView scales{.data = scales_bytes.as<float>(),
                     .granularity = granularity,
                     .block_cols = granularity == kPerBlock ? 32 : 0,
                     .row_stride = kPitch};
    ScaleView dense_scales = scales;
    dense_scales.data = want_scales.data();
    dense_scales.row_stride = 4;
    const MatrixView codes =
        Matrix(codes_bytes.as<F8E4M3Fn>(), kRows, kCols, kPitch);
    ASSERT_EQ(RunQuantize(
                  {.x = x,
                   .out = {.codes = codes, .scales = scales, .dynamic = true}},
                  testing::TestStream(1)),
              absl::OkStatus());
    ASSERT_EQ(RunQuantize({.x = Matrix(dense.data(), kRows, kCols),
                           .out = {.codes = Matrix(want.data(), kRows, kCols),
                                   .scales = dense_scales,
                                   .dynamic = true}},
                          testing::TestStream(1)),
              absl::OkStatus());
    for (int64_t r = 0; r < kRows; ++r) {
      for (int64_t c = 0; c < kCols; ++c) {
        ASSERT_EQ(codes.Row<F8E4M3Fn>(r)[c],
                  want[static_cast<size_t>(r * kCols + c)]);
        ASSERT_EQ(LoadScale(scales, r, c), LoadScale(dense_scales, r, c));
      }
    }
  }
}

// ---- Determinism ------------------------------------------------------------

TEST(Quantize, ARowDoesNotDependOnTheOtherRows) {
  constexpr int64_t kRows = 300, kCols = 193;
  GuardedMatrix x(DType::kBF16, kRows, kCols);
  FillX(x, 21, /*wild=*/true);
  for (const ScaleLayout& layout :
       {ScaleLayout{.granularity = kPerRow},
        ScaleLayout{.granularity = kPerBlock, .block_cols = 64}}) {
    GuardedMatrix codes(DType::kF8E4M3Fn, kRows, kCols);
    GuardedScales scales(layout, kRows, kCols);
    ASSERT_TRUE(RunQuantize({.x = x.view(),
                             .out = {.codes = codes.view(),
                                     .scales = scales.view(),
                                     .dynamic = true}},
                            testing::TestStream(2))
                    .ok());
    for (int64_t r = 0; r < kRows; r += 37) {
      GuardedMatrix alone(DType::kF8E4M3Fn, 1, kCols);
      GuardedScales alone_scales(layout, 1, kCols);
      ASSERT_TRUE(RunQuantize({.x = Matrix(x.Row<BF16>(r), 1, kCols),
                               .out = {.codes = alone.view(),
                                       .scales = alone_scales.view(),
                                       .dynamic = true}},
                              testing::TestStream(2))
                      .ok());
      for (int64_t c = 0; c < kCols; ++c) {
        ASSERT_EQ(codes.At<uint8_t>(r, c), alone.At<uint8_t>(0, c));
        ASSERT_EQ(LoadScale(scales.view(), r, c),
                  LoadScale(alone_scales.view(), 0, c));
      }
    }
  }
}

TEST(Quantize, ThreadsRunsAndTargetsGiveTheSameBits) {
  constexpr int64_t kRows = 700, kCols = 321;
  GuardedMatrix x(DType::kF32, kRows, kCols);
  FillX(x, 23, /*wild=*/true);
  for (const ScaleLayout& layout : AllLayouts()) {
    std::vector<uint8_t> first;
    std::vector<float> first_scales;
    ForEachTarget([&] {
      for (const int threads : testing::ThreadsOfRuns()) {
        GuardedMatrix codes(DType::kF8E5M2, kRows, kCols);
        GuardedScales scales(layout, kRows, kCols);
        ASSERT_TRUE(RunQuantize({.x = x.view(),
                                 .out = {.codes = codes.view(),
                                         .scales = scales.view(),
                                         .dynamic = true}},
                                testing::TestStream(threads))
                        .ok());
        if (first.empty()) {
          first = codes.Dense<uint8_t>();
          first_scales = scales.Values();
        }
        ASSERT_EQ(FirstDifference(codes.Dense<uint8_t>(), first), -1);
        ASSERT_EQ(FirstDifference(scales.Values(), first_scales), -1);
      }
    });
  }
}

TEST(Quantize, TwoHostThreadsAtOnce) {
  const auto work = [](uint64_t seed) {
    for (int i = 0; i < 20; ++i) {
      for (const ScaleGranularity granularity : {kPerTensor, kPerRow}) {
        ExpectEqualsModel({.rows = 200,
                           .cols = 333,
                           .scales = {.granularity = granularity},
                           .threads = 2,
                           .seed = seed + static_cast<uint64_t>(i)});
      }
    }
  };
  std::thread a(work, 100), b(work, 200);
  a.join();
  b.join();
}

// ---- Errors -----------------------------------------------------------------

class QuantizeErrors : public ::testing::Test {
 protected:
  QuantizeArgs Good() {
    return {.x = Matrix(std::as_const(x_).data(), 4, 256),
            .out = {.codes = Matrix(codes_.data(), 4, 256),
                    .scales = PerBlock(scales_.data(), 256, 128),
                    .dynamic = true}};
  }
  void Expect(const QuantizeArgs& args, absl::StatusCode code,
              const std::string& message) {
    const absl::Status status = Quantize(args, testing::TestStream(1));
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_EQ(std::string(status.message()), message);
    EXPECT_EQ(codes_, std::vector<F8E4M3Fn>(4 * 256, F8E4M3Fn{0x11}));
    EXPECT_EQ(scales_, std::vector<float>(1024, 3.0f));
  }
  void ExpectInvalid(const QuantizeArgs& args, const std::string& message) {
    Expect(args, absl::StatusCode::kInvalidArgument, message);
  }

  std::vector<BF16> x_ = std::vector<BF16>(4 * 256);
  std::vector<F8E4M3Fn> codes_ = std::vector<F8E4M3Fn>(4 * 256, F8E4M3Fn{0x11});
  std::vector<float> scales_ = std::vector<float>(1024, 3.0f);
};

TEST_F(QuantizeErrors, TheGoodArgumentsAreGood) {
  EXPECT_EQ(Quantize(Good(), testing::TestStream(1)), absl::OkStatus());
}

TEST_F(QuantizeErrors, NameTheArgumentTheGivenAndTheWanted) {
  QuantizeArgs args = Good();
  args.x.data = nullptr;
  ExpectInvalid(args, "Quantize: x.data: given null, want a pointer");
  args = Good();
  args.out.codes.data = nullptr;
  ExpectInvalid(args, "Quantize: out.codes.data: given null, want a pointer");
  args = Good();
  args.out.codes.cols = 255;
  ExpectInvalid(args, "Quantize: out.codes.cols: given 255, want 256");
  args = Good();
  args.x.row_stride = 255;
  ExpectInvalid(args, "Quantize: x.row_stride: given 255, want >= 256 (cols)");
  args = Good();
  args.out.codes.dtype = DType::kBF16;
  args.out.codes.row_stride = 256;
  ExpectInvalid(args,
                "Quantize: out.codes.dtype: given bf16, want f8e4m3fn, f8e5m2, "
                "f8e4m3fnuz, f8e5m2fnuz or i8");
  args = Good();
  args.x.dtype = DType::kI32;
  args.x.data = scales_.data();
  args.x.rows = args.out.codes.rows = 1;
  Expect(args, absl::StatusCode::kUnimplemented,
         "Quantize: x -> out.codes: given i32 -> f8e4m3fn; supported: " +
             SupportedRows(quant_internal::QuantizeTable{}));
  args = Good();
  args.x.rows = -1;
  ExpectInvalid(args, "Quantize: x.rows: given -1, want >= 0");
}

TEST_F(QuantizeErrors, Scales) {
  QuantizeArgs args = Good();
  args.out.scales.data = nullptr;
  ExpectInvalid(args, "Quantize: out.scales.data: given null, want a pointer");
  args = Good();
  args.out.scales.dtype = DType::kBF16;
  ExpectInvalid(args,
                "Quantize: out.scales.dtype: given bf16, want f32 or f8e8m0");
  args = Good();
  args.out.scales.block_cols = 16;
  ExpectInvalid(
      args, "Quantize: out.scales.block_cols: given 16, want 32, 64 or 128");
  args = Good();
  args.out.scales.granularity = kPerTile;
  ExpectInvalid(args, "Quantize: out.scales.block_rows: given 0, want 128");
  args.out.scales.block_rows = 128;
  args.out.scales.block_cols = 64;
  ExpectInvalid(args, "Quantize: out.scales.block_cols: given 64, want 128");
  args = Good();
  args.out.scales.granularity = static_cast<ScaleGranularity>(9);
  ExpectInvalid(
      args,
      "Quantize: out.scales.granularity: given 9, want a ScaleGranularity");
  args = Good();
  args.out.scales.data = reinterpret_cast<char*>(scales_.data()) + 1;
  ExpectInvalid(args,
                "Quantize: out.scales.data: given a misaligned pointer, want "
                "alignment of one f32 (4 bytes)");
  args = Good();
  args.out.scales.row_stride = 1;
  ExpectInvalid(args,
                "Quantize: out.scales.row_stride: given 1 with col_stride 1, "
                "want row_stride >= 2, or col_stride >= 4 with row_stride >= "
                "1: one element a scale");
  args = Good();
  args.out.scales.col_stride = -1;
  ExpectInvalid(args, "Quantize: out.scales.col_stride: given -1, want >= 0");
  args = Good();
  args.out.scales = PerRow(scales_.data());
  args.out.scales.row_stride = 0;
  ExpectInvalid(args, "Quantize: out.scales.row_stride: given 0, want >= 1");
  args.out.scales.row_stride = std::numeric_limits<int64_t>::max() / 4;
  ExpectInvalid(args,
                "Quantize: out.scales: given grid * stride, want an extent "
                "that fits 64 bits");
}

TEST_F(QuantizeErrors, Options) {
  QuantizeArgs args = Good();
  args.out.qmax = 449.0f;
  ExpectInvalid(args,
                "Quantize: out.qmax: given 449, want 0, or from 1 to 448");
  args.out.qmax = 0.5f;
  ExpectInvalid(args,
                "Quantize: out.qmax: given 0.5, want 0, or from 1 to 448");
  args.out.qmax = kNaN;
  ExpectInvalid(args,
                "Quantize: out.qmax: given nan, want 0, or from 1 to 448");
  args = Good();
  for (const float bound : {0.0f, -1.0f}) {
    args.out.scale_ub = bound;
    ExpectInvalid(args, "Quantize: out.scale_ub: given " +
                            std::string(bound == 0 ? "0" : "-1") +
                            ", want a bound on amax, > 0");
  }
  args.out.scale_ub = kNaN;
  ExpectInvalid(args,
                "Quantize: out.scale_ub: given nan, want a bound on amax, > 0");
  args = Good();
  args.out.dynamic = false;
  args.out.qmax = 224.0f;
  ExpectInvalid(args,
                "Quantize: out.qmax: given 224, want 0 (a static scale has no "
                "qmax)");
  args.out.qmax = 0;
  args.out.scale_ub = 1.0f;
  ExpectInvalid(args,
                "Quantize: out.scale_ub: given 1, want none (a static scale "
                "has no bound)");
}

TEST_F(QuantizeErrors, Overlap) {
  QuantizeArgs args = Good();
  args.out.codes.data = x_.data();
  ExpectInvalid(args,
                "Quantize: out.codes: given memory that overlaps x, want other "
                "memory");
  args = Good();
  args.out.scales.data = x_.data() + 4;
  ExpectInvalid(args,
                "Quantize: out.scales: given memory that overlaps x, want "
                "other memory");
  args = Good();
  args.out.codes.data = scales_.data();
  ExpectInvalid(args,
                "Quantize: out.scales: given memory that overlaps out.codes, "
                "want other memory");
  args = Good();
  args.out.scales.row_stride = 0;  // repeated static scales are legal
  args.out.dynamic = false;
  EXPECT_EQ(Quantize(args, testing::TestStream(1)), absl::OkStatus());
}

TEST_F(QuantizeErrors, GpuStreamWithoutABackend) {
  const absl::Status status = Quantize(Good(), testing::MissingStream());
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(status.message(), testing::NoBackend("Quantize: stream"));
}

TEST(QuantizeWorkspace, TooLittleIsAnErrorOnAGpu) {
  if (testing::OnCpu()) GTEST_SKIP() << "the CPU needs none";
  const Stream stream = testing::TestStream();
  const std::vector<float> x(300 * 100, 1.0f);
  std::vector<F8E4M3Fn> codes(x.size());
  float scale = 0;
  std::vector<float> memory(1024);
  QuantizeArgs args{.x = Matrix(x.data(), 300, 100),
                    .out = {.codes = Matrix(codes.data(), 300, 100),
                            .scales = PerTensor(&scale),
                            .dynamic = true}};
  const int64_t bytes =
      *QuantizeWorkspaceBytes({.total_rows = 300, .cols = 100, .dynamic = true},
                              GetDeviceInfo(stream.device()));
  ASSERT_GT(bytes, 0);
  ASSERT_LE(bytes, 2048);
  const auto expect_invalid = [&](const std::string& argument) {
    const absl::Status status = Quantize(args, stream);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("Quantize: " + argument));
  };
  expect_invalid("workspace_bytes: given 0");
  args.workspace_bytes = bytes;
  expect_invalid("workspace: given null");
  args.workspace = reinterpret_cast<char*>(memory.data()) + 1;
  expect_invalid("workspace: given a misaligned pointer");
  args.workspace = codes.data();
  expect_invalid("out.codes");
  args.workspace = memory.data();
  EXPECT_EQ(Quantize(args, stream), absl::OkStatus());
  EXPECT_EQ(scale, 1.0f / 448.0f);
}

TEST(QuantizeWorkspaceErrors, IsZeroOnTheCpuAndChecksItsArguments) {
  DeviceInfo cpu{};
  EXPECT_EQ(*QuantizeWorkspaceBytes(
                {.total_rows = 8, .cols = 8, .dynamic = true}, cpu),
            0);
  EXPECT_EQ(QuantizeWorkspaceBytes({.total_rows = -1}, cpu).status().code(),
            absl::StatusCode::kInvalidArgument);
  cpu.device.backend = Backend::kHip;
  EXPECT_EQ(QuantizeWorkspaceBytes({}, cpu).status().code(),
            absl::StatusCode::kUnimplemented);
}

}  // namespace
}  // namespace lamina
