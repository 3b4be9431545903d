// GatedActivation: the fp32 rule bit for bit on every SIMD target, a tolerance
// against double precision, quantised outputs, shapes, strides, offsets,
// invariances and errors.

#include "lamina/activation/gated_activation.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lamina/activation/gated_activation/gated_activation_policy.h"
#include "lamina/core/float16.h"
#include "tests/support/memory.h"
#include "tests/support/missing_backend.h"
#include "tests/support/quantize_reference.h"
#include "tests/support/random.h"
#include "tests/support/sparse_memory.h"
#include "tests/support/targets.h"
#include "tests/support/test_device.h"

namespace lamina {
namespace {

using testing::ForEachTarget;
using testing::GuardedMatrix;
using ::testing::HasSubstr;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

constexpr GateLayout kLayouts[] = {
    GateLayout::kGateFirst, GateLayout::kGateSecond, GateLayout::kInterleaved};
constexpr ActivationKind kKinds[] = {
    ActivationKind::kSilu, ActivationKind::kGelu, ActivationKind::kGeluTanh,
    ActivationKind::kRelu, ActivationKind::kIdentity};

std::string NameOf(const GateSpec& spec) {
  return std::string(spec.clamped ? "clamped" : Name(spec.kind)) + " " +
         Name(spec.layout);
}

std::vector<GateSpec> AllSpecs() {
  std::vector<GateSpec> specs;
  for (const GateLayout layout : kLayouts) {
    for (const ActivationKind kind : kKinds) {
      specs.push_back({.kind = kind, .layout = layout});
    }
    specs.push_back({.layout = layout, .clamped = true});
    specs.push_back({.layout = layout,
                     .clamped = true,
                     .alpha = 1,
                     .limit = 0,
                     .up_offset = 0});
  }
  return specs;
}

// Gate and up of column `col` in a row of 2 * cols elements.
template <class T>
std::pair<float, float> PairAt(GateLayout layout, const T* row, int64_t cols,
                               int64_t col) {
  switch (layout) {
    case GateLayout::kGateFirst:
      return {ToFloat(row[col]), ToFloat(row[cols + col])};
    case GateLayout::kGateSecond:
      return {ToFloat(row[cols + col]), ToFloat(row[col])};
    case GateLayout::kInterleaved:
      return {ToFloat(row[2 * col]), ToFloat(row[2 * col + 1])};
  }
  return {0, 0};
}

// The rule in plain loops: fp32 results, dense.
template <class T>
std::vector<float> Model(const GateSpec& spec, const ConstMatrixView& x) {
  std::vector<float> values;
  const int64_t cols = x.cols / 2;
  for (int64_t row = 0; row < x.total_rows(); ++row) {
    for (int64_t col = 0; col < cols; ++col) {
      const auto [gate, up] = PairAt(spec.layout, x.Row<T>(row), cols, col);
      values.push_back(GatedProduct(spec, gate, up));
    }
  }
  return values;
}

template <class T>
std::vector<T> RoundedTo(const std::vector<float>& values) {
  std::vector<T> rounded;
  for (const float value : values) rounded.push_back(FromFloat<T>(value));
  return rounded;
}

template <class T>
GuardedMatrix RandomMatrix(uint64_t seed, int64_t rows, int64_t cols,
                           int64_t row_stride = -1, int64_t offset = 0) {
  testing::Random random(seed);
  GuardedMatrix x(DTypeOf<T>::value, rows, cols, row_stride, offset);
  x.Fill(testing::NormalVector<T>(random, rows * cols, 4.0f));
  return x;
}

template <class Row>
class GatedActivationOf;
template <class TypeOfX>
class GatedActivationOf<Types<TypeOfX>> : public ::testing::Test {
 public:
  using Element = TypeOfX;
};
TYPED_TEST_SUITE(GatedActivationOf,
                 testing::TestTypesOf<GatedActivationTable>::type,
                 testing::TypeNames);

TYPED_TEST(GatedActivationOf, EqualsTheRule) {
  using T = typename TestFixture::Element;
  // 3420, 4 and 1234: the second half starts off a 16-byte boundary.
  for (const int64_t cols :
       {1, 3, 4, 7, 8, 31, 64, 111, 500, 1024, 1025, 1234, 2047, 3420}) {
    for (const GateSpec& spec : AllSpecs()) {
      SCOPED_TRACE(NameOf(spec) + " cols " + std::to_string(cols));
      const GuardedMatrix x = RandomMatrix<T>(cols, 3, 2 * cols);
      const std::vector<T> want = RoundedTo<T>(Model<T>(spec, x.view()));
      ForEachTarget([&] {
        const GuardedMatrix y(DTypeOf<T>::value, 3, cols);
        ASSERT_TRUE(
            GatedActivation({.x = x.view(), .gate = spec, .y = y.view()},
                            testing::TestStream(2))
                .ok());
        ASSERT_EQ(testing::FirstDifference(y.template Dense<T>(), want), -1);
        ASSERT_TRUE(y.GuardsIntact());
        ASSERT_TRUE(x.GuardsIntact());
      });
    }
  }
}

TYPED_TEST(GatedActivationOf, AnyOffsetAndPitch) {
  using T = typename TestFixture::Element;
  constexpr int64_t kRows = 3;
  for (const int64_t cols : {1, 8, 111, 1025}) {
    for (const int64_t pad : {int64_t{0}, int64_t{1}, int64_t{8}, cols}) {
      for (const int64_t offset : {0, 1, 2, 3, 4}) {
        for (const GateLayout layout : kLayouts) {
          const GuardedMatrix x =
              RandomMatrix<T>(7, kRows, 2 * cols, 2 * cols + pad, offset);
          const GuardedMatrix y(DTypeOf<T>::value, kRows, cols, cols + pad,
                                (offset + 3) % 5);
          const GateSpec spec{.layout = layout};
          ASSERT_TRUE(
              GatedActivation({.x = x.view(), .gate = spec, .y = y.view()},
                              testing::TestStream(1))
                  .ok());
          ASSERT_EQ(
              testing::FirstDifference(y.template Dense<T>(),
                                       RoundedTo<T>(Model<T>(spec, x.view()))),
              -1)
              << NameOf(spec) << " cols " << cols << " pad " << pad;
          ASSERT_TRUE(y.GuardsIntact());
        }
      }
    }
  }
}

TYPED_TEST(GatedActivationOf, IsCloseToTheDoubleReference) {
  using T = typename TestFixture::Element;
  constexpr int64_t kCols = 4096;
  const double half_ulp = std::is_same_v<T, float> ? 1e-6
                          : std::is_same_v<T, F16> ? 0x1p-11
                                                   : 0x1p-8;
  const GuardedMatrix x = RandomMatrix<T>(11, 1, 2 * kCols);
  for (const GateSpec& spec : AllSpecs()) {
    SCOPED_TRACE(NameOf(spec));
    const GuardedMatrix y(DTypeOf<T>::value, 1, kCols);
    ASSERT_TRUE(GatedActivation({.x = x.view(), .gate = spec, .y = y.view()},
                                testing::TestStream(2))
                    .ok());
    for (int64_t col = 0; col < kCols; ++col) {
      const auto [gate32, up32] =
          PairAt(spec.layout, x.template Row<T>(0), kCols, col);
      double gate = gate32;
      double up = up32;
      double want = 0;
      if (spec.clamped) {
        if (spec.limit != 0) {
          gate = std::min<double>(gate, spec.limit);
          up = std::clamp<double>(up, -spec.limit, spec.limit);
        }
        want =
            gate / (1 + std::exp(-spec.alpha * gate)) * (up + spec.up_offset);
      } else {
        const double v =
            2 * std::sqrt(2 / M_PI) * (gate + 0.044715 * gate * gate * gate);
        const double act[] = {gate / (1 + std::exp(-gate)),
                              0.5 * gate * std::erfc(-gate * M_SQRT1_2),
                              gate / (1 + std::exp(-v)), std::max(gate, 0.0),
                              gate};
        want = act[static_cast<int>(spec.kind)] * up;
      }
      ASSERT_NEAR(ToFloat(y.template At<T>(0, col)), want,
                  (half_ulp + 2e-6) * std::fabs(want) + 0x1p-24)
          << gate << " " << up;
    }
  }
}

// [batch, rows, cols] in both orders of memory.
TYPED_TEST(GatedActivationOf, ThreeDimensionalViews) {
  using T = typename TestFixture::Element;
  constexpr int64_t kBatch = 3, kRows = 5, kCols = 37;
  const auto view_of = [&](const GuardedMatrix& m, int64_t cols,
                           bool interleaved) -> MatrixView {
    MatrixView view = m.view();
    view.cols = cols;
    view.batch = kBatch;
    view.rows = kRows;
    view.batch_stride = (interleaved ? 1 : kRows) * m.view().row_stride;
    view.row_stride = (interleaved ? kBatch : 1) * m.view().row_stride;
    return view;
  };
  const GuardedMatrix x =
      RandomMatrix<T>(13, kBatch * kRows, 2 * kCols, 2 * kCols + 5, 1);
  for (const bool x_interleaved : {false, true}) {
    for (const bool y_interleaved : {false, true}) {
      const GuardedMatrix y(DTypeOf<T>::value, kBatch * kRows, kCols, kCols + 3,
                            2);
      const ConstMatrixView x_view = view_of(x, 2 * kCols, x_interleaved);
      const MatrixView y_view = view_of(y, kCols, y_interleaved);
      ASSERT_TRUE(
          GatedActivation({.x = x_view, .y = y_view}, testing::TestStream(3))
              .ok());
      const std::vector<float> want = Model<T>({}, x_view);
      for (int64_t row = 0; row < kBatch * kRows; ++row) {
        for (int64_t col = 0; col < kCols; ++col) {
          ASSERT_EQ(y_view.Row<T>(row)[col],
                    FromFloat<T>(want[row * kCols + col]));
        }
      }
      ASSERT_TRUE(y.GuardsIntact());
    }
  }
}

TYPED_TEST(GatedActivationOf, RowsThreadsAndRunsDoNotMatter) {
  using T = typename TestFixture::Element;
  constexpr int64_t kRows = 300, kCols = 1300;
  const GuardedMatrix x = RandomMatrix<T>(17, kRows, 2 * kCols);
  const auto run = [&](ConstMatrixView view, int threads) {
    const GuardedMatrix y(DTypeOf<T>::value, view.rows, kCols);
    EXPECT_TRUE(GatedActivation({.x = view, .y = y.view()},
                                testing::TestStream(threads))
                    .ok());
    return y.template Dense<T>();
  };
  const std::vector<T> all = run(x.view(), 1);
  for (const int threads : {1, 2, 3, 7}) {
    EXPECT_EQ(testing::FirstDifference(run(x.view(), threads), all), -1);
  }
  for (const int64_t row : {0, 1, 255, 256, 257, 299}) {
    const std::vector<T> alone = run(
        Matrix(static_cast<const T*>(x.template Row<T>(row)), 1, 2 * kCols), 2);
    EXPECT_TRUE(
        std::equal(alone.begin(), alone.end(), all.begin() + row * kCols));
  }
  std::vector<T> first, second;
  std::thread other([&] { first = run(x.view(), 2); });
  second = run(x.view(), 2);
  other.join();
  EXPECT_EQ(testing::FirstDifference(first, all), -1);
  EXPECT_EQ(testing::FirstDifference(second, all), -1);
}

TYPED_TEST(GatedActivationOf, NanInfAndHugeValues) {
  using T = typename TestFixture::Element;
  const float edges[] = {0.0f, -0.0f, 1.0f, -88.5f, -1e4f, -65504.0f, kInf,
                         -kInf, kNan, 65504.0f, 10.5f, -13.24f, 20.0f, 40.0f,
                         1e4f, -3e38f,
                         // 1 + e^-x is 2 less an ULP: core/quick_divide.cuh.
                         0x1p-23f, -0x1p-23f};
  const int64_t cols = std::size(edges) * std::size(edges);
  for (const GateSpec& spec : AllSpecs()) {
    SCOPED_TRACE(NameOf(spec));
    std::vector<T> row(2 * cols);
    for (int64_t col = 0; col < cols; ++col) {
      const T gate = FromFloat<T>(edges[col / std::size(edges)]);
      const T up = FromFloat<T>(edges[col % std::size(edges)]);
      const bool pairs = spec.layout == GateLayout::kInterleaved;
      const bool second = spec.layout == GateLayout::kGateSecond;
      row[pairs ? 2 * col : second ? cols + col : col] = gate;
      row[pairs ? 2 * col + 1 : second ? col : cols + col] = up;
    }
    const ConstMatrixView x = Matrix(row.data(), 1, 2 * cols);
    const std::vector<float> want = Model<T>(spec, x);
    ForEachTarget([&] {
      const GuardedMatrix y(DTypeOf<T>::value, 1, cols);
      ASSERT_TRUE(GatedActivation({.x = x, .gate = spec, .y = y.view()},
                                  testing::TestStream(1))
                      .ok());
      for (int64_t col = 0; col < cols; ++col) {
        const T got = y.template At<T>(0, col);
        const T rounded = FromFloat<T>(want[col]);
        ASSERT_TRUE(got == rounded ||
                    (std::isnan(ToFloat(got)) && std::isnan(ToFloat(rounded))))
            << "column " << col << ": " << ToFloat(got) << " want "
            << ToFloat(rounded);
      }
    });
  }
}

// Rows 2^31 elements apart: offsets pass 2^32 bytes, and 2^31 elements.
TYPED_TEST(GatedActivationOf, OffsetsBeyond32Bits) {
  using T = typename TestFixture::Element;
  constexpr int64_t kStride = (int64_t{1} << 31) + 8;
  constexpr int64_t kRows = 3, kCols = 5;
  constexpr int64_t kBytes = kRows * kStride * int64_t{sizeof(T)};
  const testing::SparseMemory x_memory(kBytes);
  const testing::SparseMemory y_memory(kBytes);
  if (!x_memory.ok() || !y_memory.ok()) GTEST_SKIP() << "no address space";
  MatrixView x = Matrix(x_memory.as<T>(), kRows, 2 * kCols, kStride);
  const MatrixView y = Matrix(y_memory.as<T>(), kRows, kCols, kStride);
  testing::Random random(19);
  for (int64_t row = 0; row < kRows; ++row) {
    for (int64_t col = 0; col < 2 * kCols; ++col) {
      x.Row<T>(row)[col] = FromFloat<T>(random.Normal());
    }
  }
  ASSERT_TRUE(GatedActivation({.x = x, .y = y}, testing::TestStream(1)).ok());
  const std::vector<float> want = Model<T>({}, x);
  for (int64_t row = 0; row < kRows; ++row) {
    for (int64_t col = 0; col < kCols; ++col) {
      EXPECT_EQ(y.Row<T>(row)[col], FromFloat<T>(want[row * kCols + col]));
    }
  }
}

// ---- Quantised outputs ------------------------------------------------------

struct ScaleCase {
  const char* name;
  ScaleGranularity granularity;
  int64_t block_cols;
  DType dtype;
  bool dynamic;
};
constexpr ScaleCase kScaleCases[] = {
    {"static per tensor", ScaleGranularity::kPerTensor, 0, DType::kF32, false},
    {"static per row", ScaleGranularity::kPerRow, 0, DType::kF32, false},
    {"static per block", ScaleGranularity::kPerBlock, 64, DType::kF32, false},
    {"static per tile", ScaleGranularity::kPerTile, 128, DType::kF32, false},
    {"dynamic per row", ScaleGranularity::kPerRow, 0, DType::kF32, true},
    {"dynamic per row, ue8m0", ScaleGranularity::kPerRow, 0, DType::kF8E8M0,
     true},
    {"dynamic per 32", ScaleGranularity::kPerBlock, 32, DType::kF8E8M0, true},
    {"dynamic per 64", ScaleGranularity::kPerBlock, 64, DType::kF32, true},
    {"dynamic per 128", ScaleGranularity::kPerBlock, 128, DType::kF32, true},
};
constexpr DType kCodeTypes[] = {DType::kF8E4M3Fn, DType::kF8E5M2,
                                DType::kF8E4M3Fnuz, DType::kF8E5M2Fnuz,
                                DType::kI8};

// Codes and scales of one case, poisoned; static scales filled in.
struct Quantized {
  Quantized(const ScaleCase& c, DType code_type, int64_t rows, int64_t cols,
            int64_t pad = 3, int64_t offset = 1)
      : codes(code_type, rows, cols, cols + pad, offset),
        scales(c.dtype, rows, CeilDiv(cols, 32), -1, 1) {
    out.codes = codes.view();
    out.scales = {.data = scales.view().data,
                  .dtype = c.dtype,
                  .granularity = c.granularity,
                  .block_cols = c.block_cols,
                  .block_rows = c.block_cols,
                  .row_stride = scales.view().row_stride};
    out.dynamic = c.dynamic;
    if (c.dynamic) return;
    testing::Random random(23);
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t col = 0; col < scales.view().cols; ++col) {
        scales.At<float>(row, col) =
            static_cast<float>(random.Uniform(0.01, 0.2));
      }
    }
  }
  // Every byte, padding included.
  bool operator==(const Quantized& other) const {
    return codes.Dense<uint8_t>() == other.codes.Dense<uint8_t>() &&
           BytesOf(scales) == BytesOf(other.scales);
  }
  static std::vector<uint8_t> BytesOf(const GuardedMatrix& m) {
    const uint8_t* begin = m.Row<uint8_t>(0);
    const MatrixView view = m.view();
    return {begin, begin + BytesFor(view.dtype, view.rows * view.row_stride)};
  }

  GuardedMatrix codes;
  GuardedMatrix scales;
  QuantizedOutput out;
};

TYPED_TEST(GatedActivationOf, QuantizedEqualsTheRule) {
  using T = typename TestFixture::Element;
  constexpr int64_t kRows = 3;
  for (const int64_t cols : {1, 70, 1024, 2500}) {
    const GuardedMatrix x = RandomMatrix<T>(29, kRows, 2 * cols);
    for (const GateLayout layout : kLayouts) {
      const GateSpec spec{.layout = layout};
      const std::vector<float> values = Model<T>(spec, x.view());
      for (const ScaleCase& scale_case : kScaleCases) {
        for (const DType code_type : kCodeTypes) {
          for (const bool round : {false, true}) {
            SCOPED_TRACE(std::string(scale_case.name) + " " + Name(code_type) +
                         " cols " + std::to_string(cols));
            Quantized want(scale_case, code_type, kRows, cols);
            Quantized got(scale_case, code_type, kRows, cols);
            want.out.round_before_quant = got.out.round_before_quant = round;
            testing::QuantizeReference(values, DTypeOf<T>::value, want.out);
            const GuardedMatrix y(DTypeOf<T>::value, kRows, cols);
            const bool with_y = code_type != DType::kI8;
            ASSERT_TRUE(GatedActivation({.x = x.view(),
                                         .gate = spec,
                                         .y = with_y ? y.view() : MatrixView{},
                                         .quantized = got.out},
                                        testing::TestStream(2))
                            .ok());
            ASSERT_TRUE(got == want);
            ASSERT_TRUE(got.codes.GuardsIntact());
            ASSERT_TRUE(got.scales.GuardsIntact());
            if (with_y) {
              ASSERT_EQ(testing::FirstDifference(y.template Dense<T>(),
                                                 RoundedTo<T>(values)),
                        -1);
            }
          }
        }
      }
    }
  }
}

// A row that does not fit the buffer is computed twice; one that just fits,
// once.
TYPED_TEST(GatedActivationOf, LongRowsWithAScaleEach) {
  using T = typename TestFixture::Element;
  const ScaleCase scale_case{"", ScaleGranularity::kPerRow, 0, DType::kF32,
                             true};
  for (const int64_t cols : {16384, 16385, 20003}) {
    GuardedMatrix x = RandomMatrix<T>(31, 2, 2 * cols);
    // The largest value is in the last span, and there are NaN and Inf.
    x.template At<T>(0, cols - 1) = FromFloat<T>(30.0f);
    x.template At<T>(1, 3) = FromFloat<T>(kNan);
    x.template At<T>(1, 2000) = FromFloat<T>(kInf);
    const std::vector<float> values = Model<T>({}, x.view());
    for (const bool round : {false, true}) {
      for (const float qmax : {0.0f, 224.0f}) {
        for (const bool bounded : {false, true}) {
          Quantized want(scale_case, DType::kF8E4M3Fn, 2, cols);
          Quantized got(scale_case, DType::kF8E4M3Fn, 2, cols);
          for (QuantizedOutput* out : {&want.out, &got.out}) {
            out->round_before_quant = round;
            out->qmax = qmax;
            if (bounded) out->scale_ub = 2.0f;
          }
          testing::QuantizeReference(values, DTypeOf<T>::value, want.out);
          ForEachTarget([&] {
            const GuardedMatrix y(DTypeOf<T>::value, 2, cols);
            got.codes.Poison();
            ASSERT_TRUE(
                GatedActivation(
                    {.x = x.view(), .y = y.view(), .quantized = got.out},
                    testing::TestStream(2))
                    .ok());
            ASSERT_EQ(got.codes.template Dense<uint8_t>(),
                      want.codes.template Dense<uint8_t>());
            ASSERT_EQ(got.scales.template At<float>(0, 0),
                      want.scales.template At<float>(0, 0));
            ASSERT_EQ(got.scales.template At<float>(1, 0),
                      want.scales.template At<float>(1, 0));
            ASSERT_EQ(y.template At<T>(0, cols - 1),
                      FromFloat<T>(values[cols - 1]));
          });
        }
      }
    }
  }
}

// SwiGLU as decoders have it: around every switch of quant/lean_rows_policy.h
// for the 16 units of host SIMT, from matrices that can be moved by octets and
// from others.
TYPED_TEST(GatedActivationOf, SwiGluHoweverRowsAreSplit) {
  using T = typename TestFixture::Element;
  constexpr ScaleCase kCases[] = {
      {"y alone", ScaleGranularity::kPerTensor, 0, DType::kF32, false},
      {"static", ScaleGranularity::kPerTensor, 0, DType::kF32, false},
      {"per row", ScaleGranularity::kPerRow, 0, DType::kF32, true},
      {"per 32", ScaleGranularity::kPerBlock, 32, DType::kF32, true},
      {"per 64", ScaleGranularity::kPerBlock, 64, DType::kF32, true},
      {"per 128", ScaleGranularity::kPerBlock, 128, DType::kF32, true},
  };
  struct Size {
    int64_t rows;
    int64_t cols;
  };
  // Short rows; four columns a lane, or eight; loops over rows. Blocks and
  // clusters for a scale a row, rows that one and two octets a lane just hold
  // and just do not.
  for (const Size size :
       {Size{1, 248}, {1, 256},   {2, 1000},   {1, 4096},   {1, 4104},
        {16, 4096},   {17, 4096}, {2175, 264}, {2177, 264}, {11, 1536},
        {12, 1536},   {600, 264}, {35, 8192},  {35, 8200},  {12, 16384},
        {12, 16392},  {3, 16392}, {9, 16392},  {1, 32776},  {1, 65544}}) {
    const auto [rows, cols] = size;
    for (const int64_t pad : {int64_t{8}, int64_t{4}}) {
      // What the others do is tested above.
      if (pad % 8 != 0 && rows * cols > 50000) continue;
      const GateSpec spec{.layout = rows % 2 == 0 ? GateLayout::kGateSecond
                                                  : GateLayout::kGateFirst};
      const GuardedMatrix x =
          RandomMatrix<T>(37, rows, 2 * cols, 2 * cols + pad);
      // Past the quick exponential, and infinite.
      x.template At<T>(0, cols - 1) = FromFloat<T>(-80.0f);
      x.template At<T>(rows - 1, 0) = FromFloat<T>(300.0f);
      x.template At<T>(rows / 2, cols / 2) = FromFloat<T>(kInf);
      const std::vector<float> values = Model<T>(spec, x.view());
      for (const ScaleCase& scale_case : kCases) {
        SCOPED_TRACE(std::string(scale_case.name) + " rows " +
                     std::to_string(rows) + " cols " + std::to_string(cols) +
                     " pad " + std::to_string(pad));
        if (&scale_case == &kCases[0]) {
          const GuardedMatrix y(DTypeOf<T>::value, rows, cols, cols + pad);
          ASSERT_TRUE(
              GatedActivation({.x = x.view(), .gate = spec, .y = y.view()},
                              testing::TestStream(2))
                  .ok());
          ASSERT_EQ(testing::FirstDifference(y.template Dense<T>(),
                                             RoundedTo<T>(values)),
                    -1);
          ASSERT_TRUE(y.GuardsIntact());
          continue;
        }
        Quantized want(scale_case, DType::kF8E4M3Fn, rows, cols, pad, 0);
        Quantized got(scale_case, DType::kF8E4M3Fn, rows, cols, pad, 0);
        for (Quantized* q : {&want, &got}) {
          if (scale_case.dynamic && rows % 2 == 0) q->out.scale_ub = 2.0f;
          if (scale_case.block_cols == 128) {  // scales column by column
            q->out.scales.row_stride = 1;
            q->out.scales.col_stride = rows;
          }
        }
        testing::QuantizeReference(values, DTypeOf<T>::value, want.out);
        ASSERT_TRUE(
            GatedActivation({.x = x.view(), .gate = spec, .quantized = got.out},
                            testing::TestStream(2))
                .ok());
        ASSERT_TRUE(got == want);
        ASSERT_TRUE(got.codes.GuardsIntact());
        ASSERT_TRUE(got.scales.GuardsIntact());
      }
      ASSERT_TRUE(x.GuardsIntact());
    }
  }
}

// What is near the common case and is not: it must not be taken for it.
TYPED_TEST(GatedActivationOf, NeighboursOfTheCommonCase) {
  using T = typename TestFixture::Element;
  constexpr int64_t kRows = 3, kCols = 512;
  const GuardedMatrix x = RandomMatrix<T>(41, kRows, 2 * kCols);
  constexpr ScaleCase kPerRow{"", ScaleGranularity::kPerRow, 0, DType::kF32,
                              true};
  for (const GateSpec& spec : AllSpecs()) {
    const std::vector<float> values = Model<T>(spec, x.view());
    for (const DType code_type : kCodeTypes) {
      for (const float qmax : {0.0f, 100.0f}) {
        for (const bool round : {false, true}) {
          for (const bool with_y : {false, true}) {
            SCOPED_TRACE(NameOf(spec) + " " + Name(code_type));
            Quantized want(kPerRow, code_type, kRows, kCols, 0, 0);
            Quantized got(kPerRow, code_type, kRows, kCols, 0, 0);
            for (Quantized* q : {&want, &got}) {
              q->out.qmax = qmax;
              q->out.round_before_quant = round;
            }
            testing::QuantizeReference(values, DTypeOf<T>::value, want.out);
            const GuardedMatrix y(DTypeOf<T>::value, kRows, kCols);
            ASSERT_TRUE(GatedActivation({.x = x.view(),
                                         .gate = spec,
                                         .y = with_y ? y.view() : MatrixView{},
                                         .quantized = got.out},
                                        testing::TestStream(1))
                            .ok());
            ASSERT_TRUE(got == want);
            if (!with_y) continue;
            ASSERT_EQ(testing::FirstDifference(y.template Dense<T>(),
                                               RoundedTo<T>(values)),
                      -1);
          }
        }
      }
    }
  }
}

TEST(GatedActivation, AZeroRowGetsTheSmallestScale) {
  const std::vector<BF16> x(2 * 200);
  F8E4M3Fn codes[200];
  float scale = -1;
  ASSERT_TRUE(GatedActivation({.x = Matrix(x.data(), 1, 400),
                               .quantized = {.codes = Matrix(codes, 1, 200),
                                             .scales = PerRow(&scale),
                                             .dynamic = true}},
                              testing::TestStream(2))
                  .ok());
  EXPECT_EQ(scale, MinScale(448.0f));
  for (const F8E4M3Fn code : codes) EXPECT_EQ(code.bits, 0);
}

TEST(GatedActivation, InfinitySaturatesAndNanStaysNan) {
  const float x[] = {kInf, kNan, 2.0f, 1.0f, 1.0f, 1.0f};
  F8E4M3Fn codes[3];
  float scale = -1;
  ASSERT_TRUE(GatedActivation({.x = Matrix(x, 1, 6),
                               .quantized = {.codes = Matrix(codes, 1, 3),
                                             .scales = PerRow(&scale),
                                             .dynamic = true}},
                              testing::TestStream(2))
                  .ok());
  EXPECT_EQ(ToFloat(codes[0]), 448.0f);
  EXPECT_TRUE(std::isnan(ToFloat(codes[1])));
  EXPECT_EQ(ToFloat(codes[2]), 448.0f);
  EXPECT_EQ(scale, Activate(ActivationKind::kSilu, 2.0f) / 448.0f);
}

// ---- Empty views and errors -------------------------------------------------

TEST(GatedActivation, NothingToDoIsOk) {
  float x[8] = {};
  float y[4] = {};
  EXPECT_TRUE(GatedActivation({.x = Matrix(x, 0, 8), .y = Matrix(y, 0, 4)},
                              testing::TestStream(2))
                  .ok());
  EXPECT_TRUE(GatedActivation({.x = Matrix(x, 3, 0), .y = Matrix(y, 3, 0)},
                              testing::TestStream(2))
                  .ok());
  EXPECT_TRUE(GatedActivation({.x = Matrix(static_cast<float*>(nullptr), 0, 8)},
                              testing::TestStream(2))
                  .ok());
}

class GatedActivationErrors : public ::testing::Test {
 protected:
  GatedActivationErrors() {
    args_ = {.x = Matrix(x_, 2, 8), .y = Matrix(y_, 2, 4)};
  }
  std::string Error(absl::StatusCode code,
                    Stream stream = testing::TestStream(2)) {
    const absl::Status status = GatedActivation(args_, stream);
    EXPECT_EQ(status.code(), code) << status;
    return std::string(status.message());
  }
  std::string Invalid() { return Error(absl::StatusCode::kInvalidArgument); }

  float x_[16] = {};
  float y_[8] = {};
  F8E4M3Fn codes_[8];
  float scales_[8] = {1, 1, 1, 1, 1, 1, 1, 1};
  GatedActivationArgs args_;
};

TEST_F(GatedActivationErrors, Shapes) {
  args_.x.cols = 7;
  EXPECT_EQ(Invalid(),
            "GatedActivation: x.cols: given 7, want an even number (gate and "
            "up)");
  args_.x.cols = 6;
  EXPECT_EQ(Invalid(), "GatedActivation: y.cols: given 4, want 3");
  args_.x.cols = 8;
  args_.y.rows = 1;
  EXPECT_EQ(Invalid(), "GatedActivation: y.rows: given 1, want 2");
  args_.y.rows = 2;
  args_.x.row_stride = 7;
  EXPECT_EQ(Invalid(),
            "GatedActivation: x.row_stride: given 7, want >= 8 (cols)");
  args_.x.row_stride = 8;
  args_.x.data = nullptr;
  EXPECT_EQ(Invalid(), "GatedActivation: x.data: given null, want a pointer");
}

TEST_F(GatedActivationErrors, Types) {
  args_.y.dtype = DType::kBF16;
  EXPECT_EQ(Invalid(), "GatedActivation: y.dtype: given bf16, want f32");
  args_.y.dtype = DType::kI32;
  args_.x.dtype = DType::kI32;
  EXPECT_EQ(Error(absl::StatusCode::kUnimplemented),
            "GatedActivation: x.dtype: given i32; supported: f32, f16, bf16");
}

TEST_F(GatedActivationErrors, Outputs) {
  args_.y = {};
  EXPECT_EQ(Invalid(),
            "GatedActivation: y: given no output, want y, quantized or both");
}

TEST_F(GatedActivationErrors, Gate) {
  args_.gate.kind = static_cast<ActivationKind>(9);
  EXPECT_EQ(Invalid(),
            "GatedActivation: gate.kind: given 9, want an ActivationKind");
  args_.gate = {.layout = static_cast<GateLayout>(3)};
  EXPECT_EQ(Invalid(),
            "GatedActivation: gate.layout: given 3, want a GateLayout");
  args_.gate = {.clamped = true, .alpha = kNan};
  EXPECT_THAT(Invalid(), HasSubstr("gate.alpha: given nan"));
  args_.gate = {.clamped = true, .limit = -7};
  EXPECT_EQ(Invalid(),
            "GatedActivation: gate.limit: given -7, want >= 0 (0: no clamp)");
  args_.gate = {.clamped = true, .limit = kNan};
  EXPECT_THAT(Invalid(), HasSubstr("gate.limit"));
  args_.gate = {.clamped = true, .up_offset = kInf};
  EXPECT_THAT(Invalid(), HasSubstr("gate.up_offset: given inf"));
  // They are not read without `clamped`.
  args_.gate = {.alpha = kNan, .limit = -1, .up_offset = kInf};
  EXPECT_TRUE(GatedActivation(args_, testing::TestStream(2)).ok());
}

TEST_F(GatedActivationErrors, Overlap) {
  args_.y = Matrix(x_, 2, 4, 8);  // on the gate half: not in place
  EXPECT_EQ(Invalid(),
            "GatedActivation: y: given memory that overlaps x, want other "
            "memory");
  args_.y = Matrix(y_, 2, 4);
  args_.quantized = {.codes = Matrix(reinterpret_cast<F8E4M3Fn*>(x_), 2, 4),
                     .scales = PerTensor(scales_)};
  EXPECT_THAT(Invalid(), HasSubstr("quantized.codes: given memory that "
                                   "overlaps x"));
  args_.quantized.codes = Matrix(reinterpret_cast<F8E4M3Fn*>(y_), 2, 4);
  EXPECT_THAT(Invalid(), HasSubstr("quantized.codes: given memory that "
                                   "overlaps y"));
  args_.quantized = {
      .codes = Matrix(codes_, 2, 4), .scales = PerRow(x_ + 3), .dynamic = true};
  EXPECT_THAT(Invalid(), HasSubstr("quantized.scales: given memory that "
                                   "overlaps x"));
  args_.quantized = {.codes = Matrix(codes_, 2, 4), .scales = PerTensor(y_)};
  EXPECT_THAT(Invalid(), HasSubstr("y: given memory that overlaps "
                                   "quantized.scales"));
}

TEST_F(GatedActivationErrors, Quantized) {
  args_.quantized = {.codes = Matrix(codes_, 2, 3), .scales = PerRow(scales_)};
  EXPECT_THAT(Invalid(), HasSubstr("quantized.codes.cols: given 3, want 4"));
  args_.quantized = {.codes = Matrix(codes_, 2, 4),
                     .scales = PerTensor(scales_),
                     .dynamic = true};
  EXPECT_THAT(Error(absl::StatusCode::kUnimplemented),
              HasSubstr("quantized.scales.granularity: given dynamic "
                        "per_tensor"));
}

TEST_F(GatedActivationErrors, Stream) {
  EXPECT_EQ(Error(absl::StatusCode::kUnimplemented, testing::MissingStream()),
            testing::NoBackend("GatedActivation: stream"));
}

}  // namespace
}  // namespace lamina
