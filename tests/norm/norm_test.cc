// What the three norms have in common, for every norm and every pair of types:
// equality with the scalar model, bit for bit, in every memory layout.

#include <cmath>
#include <limits>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "lamina/norm/add_rms_norm.h"
#include "lamina/norm/add_rms_norm/add_rms_norm_policy.h"
#include "lamina/norm/layer_norm.h"
#include "lamina/norm/layer_norm/layer_norm_policy.h"
#include "lamina/norm/rms_norm.h"
#include "lamina/norm/rms_norm/rms_norm_policy.h"
#include "tests/norm/norm_harness.h"
#include "tests/support/quantize_reference.h"
#include "tests/support/random.h"
#include "tests/support/sparse_memory.h"
#include "tests/support/targets.h"
#include "tests/support/test_device.h"

namespace lamina::testing {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::vector<NormCase> AllNorms() {
  std::vector<NormCase> cases;
  const auto add = [&](NormOp op) {
    return [&cases, op]<class T, class W>(Types<T, W>) {
      cases.push_back({.op = op,
                       .type = DTypeOf<T>::value,
                       .weight_type = DTypeOf<W>::value});
    };
  };
  ForEachRow(RmsNormTable{}, add(NormOp::kRmsNorm));
  ForEachRow(AddRmsNormTable{}, add(NormOp::kAddRmsNorm));
  ForEachRow(LayerNormTable{}, add(NormOp::kLayerNorm));
  return cases;
}

class EveryNorm : public ::testing::TestWithParam<NormCase> {};
INSTANTIATE_TEST_SUITE_P(, EveryNorm, ::testing::ValuesIn(AllNorms()),
                         [](const auto& instance) {
                           return std::string(Name(instance.param.op)) + "_" +
                                  TypesName(instance.param);
                         });

// Weight, bias and 1 + w in all combinations as `index` counts up.
void ChooseWeights(int index, NormCase& c) {
  c.weight = index % 3 != 2;
  c.weight_plus_one = index % 3 == 1;
  c.bias = index % 2 == 0;
}

TEST_P(EveryNorm, MatchesTheModelForEveryWidth) {
  NormCase c = GetParam();
  ForEachTarget([&] {
    int index = 0;
    for (const int64_t cols :
         {1,    2,    3,    5,    7,    8,    9,     15,   16,
          17,   31,   33,   64,   111,  127,  128,   255,  256,
          257,  500,  511,  513,  769,  1025, 1076,  1152, 1280,
          1368, 2880, 3420, 4096, 5137, 8192, 16384, 20000}) {
      c.rows = cols > 2000 ? 1 : 3;
      c.cols = cols;
      c.seed = static_cast<uint64_t>(cols);
      ChooseWeights(index++, c);
      ASSERT_TRUE(MatchesModel(c)) << "cols " << cols;
    }
  });
}

TEST_P(EveryNorm, MatchesTheModelAtAnyAlignmentAndPitch) {
  NormCase c = GetParam();
  c.rows = 3;
  ForEachTarget([&] {
    int index = 0;
    for (const int64_t cols : {7, 64, 111, 1025}) {
      c.cols = cols;
      for (int64_t offset = 0; offset <= 4; ++offset) {
        for (const int64_t padding :
             {int64_t{0}, int64_t{1}, int64_t{8}, cols}) {
          ChooseWeights(index, c);
          c.seed = static_cast<uint64_t>(index++);
          // Every operand at another offset, all of them in turn.
          c.x_offset = offset;
          c.residual_offset = (offset + 1) % 5;
          c.weight_offset = (offset + 2) % 5;
          c.y_offset = (offset + 3) % 5;
          c.x_padding = padding;
          c.residual_padding = (padding + 3) % (cols + 1);
          c.y_padding = cols - padding < 0 ? 2 : cols - padding;
          ASSERT_TRUE(MatchesModel(c)) << "cols " << cols << ", offset "
                                       << offset << ", padding " << padding;
        }
      }
    }
  });
}

TEST_P(EveryNorm, NormalisesHeadsOfAFusedRow) {
  NormCase c = GetParam();
  for (const int64_t head_dim : {64, 80, 128}) {
    c.batch = 5;
    c.rows = 3;  // heads
    c.cols = head_dim;
    c.x_offset = 2 * head_dim + 1;  // within the fused row
    c.x_padding = 4 * head_dim;     // the other heads
    c.y_padding = 1;
    ASSERT_TRUE(MatchesModel(c)) << "head_dim " << head_dim;
  }
}

TEST_P(EveryNorm, WorksInPlace) {
  NormCase c = GetParam();
  c.rows = 4;
  c.cols = 777;
  c.x_padding = 5;
  c.y_is_x = true;
  EXPECT_TRUE(MatchesModel(c));
  c.batch = 3;
  EXPECT_TRUE(MatchesModel(c));
  // The codes come from x before y replaces it.
  c.quantized = QuantizedCase{};
  EXPECT_TRUE(MatchesModel(c));
  c.quantized = QuantizedCase{.granularity = ScaleGranularity::kPerBlock,
                              .block_cols = 64,
                              .round_before_quant = true};
  EXPECT_TRUE(MatchesModel(c));
}

TEST_P(EveryNorm, QuantisesToEveryTypeAndGranularity) {
  NormCase c = GetParam();
  struct Scaling {
    ScaleGranularity granularity;
    int64_t block_cols;
    bool dynamic;
  };
  const std::vector<Scaling> scalings = {
      {ScaleGranularity::kPerTensor, 0, false},
      {ScaleGranularity::kPerRow, 0, false},
      {ScaleGranularity::kPerBlock, 64, false},
      {ScaleGranularity::kPerTile, 128, false},
      {ScaleGranularity::kPerRow, 0, true},
      {ScaleGranularity::kPerBlock, 32, true},
      {ScaleGranularity::kPerBlock, 64, true},
      {ScaleGranularity::kPerBlock, 128, true}};
  ForEachTarget([&] {
    int index = 0;
    ForEachRow(CodeTable{}, [&]<class Code>(Types<Code>) {
      for (const Scaling& scaling : scalings) {
        for (const int64_t cols : {1, 100, 257, 600}) {
          QuantizedCase q{.code = DTypeOf<Code>::value,
                          .granularity = scaling.granularity,
                          .block_cols = scaling.block_cols,
                          .dynamic = scaling.dynamic};
          const int variant = index++;
          q.round_before_quant = variant % 2 == 1;
          q.transposed_scales = scaling.block_cols != 0 && variant % 3 == 1;
          if (variant % 5 == 2) q.scale_type = DType::kF8E8M0;
          if (scaling.dynamic && variant % 4 == 1) q.scale_ub = 0.75f;
          if (scaling.dynamic && variant % 4 == 2) {
            q.qmax = q.code == DType::kF8E4M3Fnuz ? 224.0f : 100.0f;
          }
          c.rows = 3;
          c.cols = cols;
          c.seed = static_cast<uint64_t>(variant);
          c.y = variant % 3 != 0;
          c.codes_offset = variant % 5;
          c.codes_padding = variant % 7;
          ChooseWeights(variant, c);
          c.quantized = q;
          ASSERT_TRUE(MatchesModel(c))
              << Name(q.code) << " " << Name(q.granularity) << " "
              << q.block_cols << (q.dynamic ? " dynamic" : " static")
              << ", cols " << cols << ", variant " << variant;
        }
      }
    });
  });
}

// Longer than the chunks in which rows reach the quantising store.
TEST_P(EveryNorm, QuantisesLongRows) {
  NormCase c = GetParam();
  c.rows = 2;
  for (const int64_t cols : {4096, 4097, 9000}) {
    c.cols = cols;
    c.quantized = QuantizedCase{};
    ASSERT_TRUE(MatchesModel(c)) << cols;
    c.quantized = QuantizedCase{.code = DType::kI8,
                                .granularity = ScaleGranularity::kPerBlock,
                                .block_cols = 128,
                                .round_before_quant = true};
    ASSERT_TRUE(MatchesModel(c)) << cols;
    c.quantized = QuantizedCase{.granularity = ScaleGranularity::kPerTensor,
                                .dynamic = false};
    c.y_is_x = true;
    ASSERT_TRUE(MatchesModel(c)) << cols;
    c.y_is_x = false;
  }
}

// What decoders do: one output, rows of whole octets at any pitch. It has
// kernels of its own on a GPU (norm/lean_norm_policy.h): a block with one or
// two octets a lane or a cluster a row, or blocks that take several rows each.
TEST_P(EveryNorm, OneOutputOfWholeOctets) {
  NormCase c = GetParam();
  if (c.op == NormOp::kLayerNorm || c.weight_type != c.type) return;
  constexpr struct {
    int64_t rows, cols;
  } kShapes[] = {{3, 1032},   {2, 8200}, {128, 1032}, {130, 1032},
                 {520, 1032}, {8, 8184}, {33, 8200},  {1, 16392},
                 {1, 32776},  {7, 1592}, {9, 5128}};
  const std::vector<std::optional<QuantizedCase>> outputs = {
      std::nullopt,
      QuantizedCase{.granularity = ScaleGranularity::kPerTensor,
                    .dynamic = false},
      QuantizedCase{.scale_ub = 2.0f},
      QuantizedCase{.code = DType::kI8,
                    .granularity = ScaleGranularity::kPerBlock,
                    .block_cols = 32},
      QuantizedCase{.code = DType::kF8E5M2,
                    .granularity = ScaleGranularity::kPerBlock,
                    .block_cols = 128,
                    .qmax = 100.0f,
                    .transposed_scales = true}};
  c.x_padding = 8;
  c.residual_padding = 16;
  c.y_padding = 24;
  c.codes_padding = 40;
  for (const auto& [rows, cols] : kShapes) {
    c.rows = rows;
    c.cols = cols;
    for (const std::optional<QuantizedCase>& output : outputs) {
      c.quantized = output;
      c.y = !output.has_value();
      c.weight_plus_one = !c.weight_plus_one;
      ++c.seed;
      ASSERT_TRUE(MatchesModel(c))
          << "[" << rows << ", " << cols << "] "
          << (output.has_value() ? Name(output->granularity) : "y");
    }
  }
}

TEST_P(EveryNorm, QuantisesHeads) {
  NormCase c = GetParam();
  c.batch = 4;
  c.rows = 3;
  c.cols = 128;
  c.codes_padding = 9;
  c.quantized = QuantizedCase{};
  EXPECT_TRUE(MatchesModel(c));
  c.quantized = QuantizedCase{.granularity = ScaleGranularity::kPerBlock,
                              .block_cols = 64};
  EXPECT_TRUE(MatchesModel(c));
}

TEST_P(EveryNorm, SpecialValuesStayInTheirRow) {
  NormCase c = GetParam();
  const int64_t cols = 333;
  const float largest = c.type == DType::kF16 ? 65504.0f : 0x1.fep127f;
  const std::vector<std::vector<float>> heads = {{kNan},
                                                 {kInfinity},
                                                 {-kInfinity},
                                                 {kInfinity, -kInfinity},
                                                 {kInfinity, kNan},
                                                 {largest},
                                                 {-largest},
                                                 {1e-30f, -1e-38f, 1e-45f},
                                                 {-0.0f, 0.0f},
                                                 {6e-8f}};
  Random random(3);
  std::vector<float> x;
  for (const std::vector<float>& head : heads) {
    // A row with the special values, an ordinary one, a row of nothing else.
    for (int kind = 0; kind < 3; ++kind) {
      for (int64_t i = 0; i < cols; ++i) {
        const size_t at = static_cast<size_t>(i) % head.size();
        const bool special =
            kind == 2 || (kind == 0 && i >= 40 &&
                          i < 40 + static_cast<int64_t>(head.size()));
        x.push_back(special ? head[at] : random.Normal());
      }
    }
  }
  c.rows = static_cast<int64_t>(heads.size()) * 3;
  c.cols = cols;
  c.x = x;
  ForEachTarget([&] {
    for (const float epsilon : {1e-5f, 0.0f}) {
      c.epsilon = epsilon;
      c.quantized = std::nullopt;
      ASSERT_TRUE(MatchesModel(c));
      ForEachRow(CodeTable{}, [&]<class Code>(Types<Code>) {
        c.quantized = QuantizedCase{.code = DTypeOf<Code>::value};
        ASSERT_TRUE(MatchesModel(c)) << Name(c.quantized->code);
        c.quantized->granularity = ScaleGranularity::kPerBlock;
        c.quantized->block_cols = 32;
        c.quantized->round_before_quant = true;
        ASSERT_TRUE(MatchesModel(c)) << Name(c.quantized->code);
      });
    }
  });
}

TEST_P(EveryNorm, ZeroRowsGiveZerosOrTheBias) {
  NormCase c = GetParam();
  c.op = c.op == NormOp::kAddRmsNorm ? NormOp::kRmsNorm : c.op;
  c.rows = 2;
  c.cols = 40;
  c.bias = false;
  c.x.assign(80, 0.0f);
  c.quantized = QuantizedCase{};
  NormResult result;
  ASSERT_TRUE(MatchesModel(c, testing::TestStream(1), &result));
  for (uint8_t byte : result.y) EXPECT_EQ(byte & 0x7f, 0);
  for (uint8_t code : result.codes) EXPECT_EQ(code & 0x7f, 0);
}

TEST_P(EveryNorm, ARowDoesNotDependOnTheRowsBesideIt) {
  NormCase c = GetParam();
  const int64_t rows = 300;
  c.rows = rows;
  c.cols = 530;
  c.quantized = QuantizedCase{};
  Random random(11);
  for (int64_t i = 0; i < rows * c.cols; ++i) {
    c.x.push_back(RoundToType(random.Normal(), c.type));
    c.residual.push_back(RoundToType(random.Normal(), c.type));
  }
  NormResult all;
  ASSERT_TRUE(MatchesModel(c, testing::TestStream(3), &all));
  NormCase alone = c;
  alone.rows = 1;
  for (const int64_t row : {0, 1, 149, 255, 256, 299}) {
    const auto of_row = [&](const std::vector<float>& values) {
      return std::vector<float>(values.begin() + row * c.cols,
                                values.begin() + (row + 1) * c.cols);
    };
    alone.x = of_row(c.x);
    alone.residual = of_row(c.residual);
    NormResult one;
    ASSERT_TRUE(MatchesModel(alone, testing::TestStream(1), &one));
    EXPECT_EQ(one, all.Row(row, rows)) << "row " << row;
  }
}

TEST_P(EveryNorm, RunsAndThreadsGiveTheSameBits) {
  NormCase c = GetParam();
  c.rows = 301;
  c.cols = 1030;
  c.quantized = QuantizedCase{};
  NormResult first;
  for (const int threads : testing::ThreadsOfRuns()) {
    NormResult again;
    ASSERT_TRUE(MatchesModel(c, testing::TestStream(threads), &again));
    if (first.codes.empty()) first = again;
    EXPECT_EQ(first, again) << threads << " threads";
  }
}

TEST_P(EveryNorm, TwoHostThreadsAtOnce) {
  NormCase c = GetParam();
  c.rows = 40;
  c.cols = 1100;
  c.quantized = QuantizedCase{};
  NormResult want;
  ASSERT_TRUE(MatchesModel(c, testing::TestStream(1), &want));
  std::vector<std::thread> threads;
  std::vector<int> equal(2);
  for (int t = 0; t < 2; ++t) {
    threads.emplace_back([&, t] {
      NormResult got;
      const bool matches =
          static_cast<bool>(MatchesModel(c, testing::TestStream(2), &got));
      equal[static_cast<size_t>(t)] = matches && got == want;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(equal, (std::vector<int>{1, 1}));
}

TEST_P(EveryNorm, OffsetsGoBeyond32Bits) {
  const NormCase c = GetParam();
  constexpr int64_t kPitch = (int64_t{1} << 31) + 5;
  constexpr int64_t kRows = 3;  // the last begins past 2^32 elements
  constexpr int64_t kCols = 70;
  const int64_t extent = (kRows - 1) * kPitch + kCols;
  const SparseMemory x(BytesFor(c.type, extent));
  const SparseMemory out(BytesFor(c.type, extent));
  const SparseMemory codes(extent);
  if (!x.ok() || !out.ok() || !codes.ok()) GTEST_SKIP() << "no address space";
  const auto view = [&](void* data, DType type) {
    return MatrixView{.data = data,
                      .dtype = type,
                      .rows = kRows,
                      .cols = kCols,
                      .row_stride = kPitch};
  };
  Random random(5);
  std::vector<float> values;
  for (int64_t r = 0; r < kRows; ++r) {
    for (int64_t i = 0; i < kCols; ++i) {
      values.push_back(RoundToType(random.Normal(), c.type));
      SetElement(x.data(), c.type, r * kPitch + i, values.back());
    }
  }
  std::vector<float> scales(kRows);
  const QuantizedOutput quantized{.codes = view(codes.data(), DType::kF8E4M3Fn),
                                  .scales = PerRow(scales.data()),
                                  .dynamic = true};
  const MatrixView x_view = view(x.data(), c.type);
  const MatrixView out_view = view(out.data(), c.type);
  const Stream stream = testing::TestStream(2);
  switch (c.op) {
    case NormOp::kRmsNorm:
      ASSERT_TRUE(
          RmsNorm({.x = x_view, .y = out_view, .quantized = quantized}, stream)
              .ok());
      break;
    case NormOp::kAddRmsNorm:  // z = x + x, in place
      for (float& value : values) value = RoundToType(2 * value, c.type);
      ASSERT_TRUE(AddRmsNorm({.x = x_view,
                              .residual = x_view,
                              .residual_out = x_view,
                              .y = out_view,
                              .quantized = quantized},
                             stream)
                      .ok());
      break;
    case NormOp::kLayerNorm:
      ASSERT_TRUE(
          LayerNorm({.x = x_view, .y = out_view, .quantized = quantized},
                    stream)
              .ok());
      break;
  }
  const std::vector<float> v =
      NormModel(c.op, values, kRows, kCols, {}, false, {}, 1e-5f);
  std::vector<F8E4M3Fn> want_codes(kRows * kCols);
  std::vector<float> want_scales(kRows);
  QuantizeReference(v, c.type,
                    {.codes = Matrix(want_codes.data(), kRows, kCols),
                     .scales = PerRow(want_scales.data()),
                     .dynamic = true});
  EXPECT_EQ(scales, want_scales);
  for (int64_t r = 0; r < kRows; ++r) {
    for (int64_t i = 0; i < kCols; ++i) {
      const size_t at = static_cast<size_t>(r * kCols + i);
      ASSERT_EQ(GetElement(out.data(), c.type, r * kPitch + i),
                RoundToType(v[at], c.type));
      ASSERT_EQ(static_cast<F8E4M3Fn*>(codes.data())[r * kPitch + i],
                want_codes[at]);
    }
  }
}

class EveryOperator : public ::testing::TestWithParam<NormOp> {};
INSTANTIATE_TEST_SUITE_P(, EveryOperator,
                         ::testing::Values(NormOp::kRmsNorm,
                                           NormOp::kAddRmsNorm,
                                           NormOp::kLayerNorm),
                         [](const auto& instance) {
                           return std::string(Name(instance.param));
                         });

// The error bounds of the headers, against double precision. In f32: rounding
// to T is all that the other types add.
TEST_P(EveryOperator, KeepsItsErrorBound) {
  const NormOp op = GetParam();
  constexpr double kUnit = 0x1p-24;
  Random random(17);
  for (const int64_t cols : {5, 300, 4096, 16384}) {
    for (const float mean : {0.0f, 3.0f, 100.0f}) {
      const size_t size = static_cast<size_t>(cols);
      const std::vector<float> z =
          NormalVector<float>(random, cols, 1.0f, mean);
      const std::vector<float> w = NormalVector<float>(random, cols);
      const std::vector<float> b = NormalVector<float>(random, cols);
      std::vector<float> y(size), sum(size), zero(size);
      const Stream stream = testing::TestStream(1);
      const bool centered = op == NormOp::kLayerNorm;
      if (centered) {
        ASSERT_TRUE(LayerNorm({.x = Matrix(z.data(), 1, cols),
                               .weight = Vector(w.data(), cols),
                               .bias = Vector(b.data(), cols),
                               .y = Matrix(y.data(), 1, cols)},
                              stream)
                        .ok());
      } else if (op == NormOp::kRmsNorm) {
        ASSERT_TRUE(RmsNorm({.x = Matrix(z.data(), 1, cols),
                             .weight = Vector(w.data(), cols),
                             .y = Matrix(y.data(), 1, cols)},
                            stream)
                        .ok());
      } else {
        ASSERT_TRUE(AddRmsNorm({.x = Matrix(z.data(), 1, cols),
                                .residual = Matrix(zero.data(), 1, cols),
                                .residual_out = Matrix(sum.data(), 1, cols),
                                .weight = Vector(w.data(), cols),
                                .y = Matrix(y.data(), 1, cols)},
                               stream)
                        .ok());
      }
      double exact_mean = 0, magnitude = 0, variance = 0;
      for (const float value : z) {
        exact_mean += value;
        magnitude += std::abs(value);
      }
      const double n = static_cast<double>(cols);
      exact_mean = centered ? exact_mean / n : 0;
      magnitude /= n;
      for (const float value : z) {
        variance += (value - exact_mean) * (value - exact_mean);
      }
      const double rstd = 1 / std::sqrt(variance / n + double{1e-5f});
      const double mean_error =
          centered ? (n / 256 + 10) * kUnit * magnitude : 0;
      const double relative = (n / 512 + (centered ? 14 : 11)) * kUnit;
      for (size_t i = 0; i < size; ++i) {
        const double scaled = (z[i] - exact_mean) * rstd * w[i];
        const double want = centered ? scaled + b[i] : scaled;
        const double bound = relative * std::abs(scaled) +
                             mean_error * rstd * std::abs(w[i]) *
                                 (1 + std::abs(z[i] - exact_mean) * rstd) +
                             (centered ? kUnit * std::abs(want) : 0);
        ASSERT_LE(std::abs(y[i] - want), bound)
            << "cols " << cols << ", mean " << mean << ", column " << i;
      }
    }
  }
}

}  // namespace
}  // namespace lamina::testing
