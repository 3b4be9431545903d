// Activation: the fp32 rule bit for bit on every SIMD target, in place and out
// of place, quantised outputs, shapes and errors. The functions themselves are
// tested in tests/core/elementary_test.cc.

#include "lamina/activation/activation.h"

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "lamina/activation/activation/activation_policy.h"
#include "lamina/core/float16.h"
#include "tests/support/memory.h"
#include "tests/support/quantize_reference.h"
#include "tests/support/random.h"
#include "tests/support/targets.h"
#include "tests/support/test_device.h"

namespace lamina {
namespace {

using testing::ForEachTarget;
using testing::GuardedMatrix;

constexpr ActivationKind kKinds[] = {
    ActivationKind::kSilu, ActivationKind::kGelu, ActivationKind::kGeluTanh,
    ActivationKind::kRelu, ActivationKind::kIdentity};

template <class Row>
class ActivationOf;
template <class TypeOfX>
class ActivationOf<Types<TypeOfX>> : public ::testing::Test {
 public:
  using Element = TypeOfX;

  static std::vector<float> Model(ActivationKind kind,
                                  const std::vector<Element>& x) {
    std::vector<float> values;
    for (const Element value : x)
      values.push_back(Activate(kind, ToFloat(value)));
    return values;
  }
  static std::vector<Element> Rounded(const std::vector<float>& values) {
    std::vector<Element> rounded;
    for (const float value : values) {
      rounded.push_back(FromFloat<Element>(value));
    }
    return rounded;
  }
};
TYPED_TEST_SUITE(ActivationOf, testing::TestTypesOf<ActivationTable>::type,
                 testing::TypeNames);

TYPED_TEST(ActivationOf, EqualsTheRule) {
  using T = typename TestFixture::Element;
  testing::Random random(1);
  for (const int64_t cols : {1, 7, 64, 111, 769, 1025, 3420}) {
    for (const int64_t pad : {int64_t{0}, int64_t{1}, int64_t{8}, cols}) {
      const GuardedMatrix x(DTypeOf<T>::value, 3, cols, cols + pad, cols % 5);
      x.Fill(testing::NormalVector<T>(random, 3 * cols, 4.0f));
      for (const ActivationKind kind : kKinds) {
        const std::vector<T> want = TestFixture::Rounded(
            TestFixture::Model(kind, x.template Dense<T>()));
        ForEachTarget([&] {
          const GuardedMatrix y(DTypeOf<T>::value, 3, cols, cols + pad,
                                (cols + 1) % 5);
          ASSERT_TRUE(Activation({.x = x.view(), .kind = kind, .y = y.view()},
                                 testing::TestStream(2))
                          .ok());
          ASSERT_EQ(testing::FirstDifference(y.template Dense<T>(), want), -1)
              << Name(kind) << " cols " << cols;
          ASSERT_TRUE(y.GuardsIntact());
        });
      }
    }
  }
}

TYPED_TEST(ActivationOf, InPlaceWithAndWithoutCodes) {
  using T = typename TestFixture::Element;
  constexpr int64_t kRows = 2;
  // 16385: with a scale a row, x is read twice before it is overwritten.
  for (const int64_t cols : {int64_t{500}, int64_t{16385}}) {
    testing::Random random(2);
    const std::vector<T> x = testing::NormalVector<T>(random, kRows * cols);
    const std::vector<float> values =
        TestFixture::Model(ActivationKind::kGelu, x);
    for (const bool quantized : {false, true}) {
      const GuardedMatrix y(DTypeOf<T>::value, kRows, cols, cols + 3, 1);
      y.Fill(x);
      const GuardedMatrix codes(DType::kF8E4M3Fn, kRows, cols);
      const GuardedMatrix want_codes(DType::kF8E4M3Fn, kRows, cols);
      float scales[kRows], want_scales[kRows];
      QuantizedOutput out{
          .codes = codes.view(), .scales = PerRow(scales), .dynamic = true};
      ASSERT_TRUE(Activation({.x = y.view(),
                              .kind = ActivationKind::kGelu,
                              .y = y.view(),
                              .quantized = quantized ? out : QuantizedOutput{}},
                             testing::TestStream(2))
                      .ok());
      EXPECT_EQ(testing::FirstDifference(y.template Dense<T>(),
                                         TestFixture::Rounded(values)),
                -1);
      EXPECT_TRUE(y.GuardsIntact());
      if (!quantized) continue;
      out.codes = want_codes.view();
      out.scales = PerRow(want_scales);
      testing::QuantizeReference(values, DTypeOf<T>::value, out);
      EXPECT_EQ(codes.template Dense<uint8_t>(),
                want_codes.template Dense<uint8_t>());
      for (int row = 0; row < kRows; ++row) {
        EXPECT_EQ(scales[row], want_scales[row]);
      }
    }
  }
}

TYPED_TEST(ActivationOf, RowsAndThreadsDoNotMatter) {
  using T = typename TestFixture::Element;
  constexpr int64_t kRows = 300, kCols = 257;
  testing::Random random(3);
  const std::vector<T> x = testing::NormalVector<T>(random, kRows * kCols);
  const auto run = [&](const T* from, int64_t rows, int threads) {
    std::vector<T> y(static_cast<size_t>(rows * kCols));
    EXPECT_TRUE(Activation({.x = Matrix(from, rows, kCols),
                            .y = Matrix(y.data(), rows, kCols)},
                           testing::TestStream(threads))
                    .ok());
    return y;
  };
  const std::vector<T> all = run(x.data(), kRows, 1);
  for (const int threads : {1, 2, 3, 7}) {
    EXPECT_EQ(testing::FirstDifference(run(x.data(), kRows, threads), all), -1);
  }
  const std::vector<T> alone = run(&x[299 * kCols], 1, 2);
  EXPECT_TRUE(std::equal(alone.begin(), alone.end(), &all[299 * kCols]));
}

TEST(Activation, Errors) {
  float x[8] = {};
  float y[8] = {};
  const auto error = [](const ActivationArgs& args) {
    return std::string(Activation(args, testing::TestStream(2)).ToString());
  };
  EXPECT_EQ(error({.x = Matrix(x, 2, 4)}),
            "INVALID_ARGUMENT: Activation: y: given no output, want y, "
            "quantized or both");
  EXPECT_EQ(error({.x = Matrix(x, 2, 4), .y = Matrix(y, 4, 2)}),
            "INVALID_ARGUMENT: Activation: y.rows: given 4, want 2");
  EXPECT_EQ(error({.x = Matrix(x, 1, 4), .y = Matrix(x + 1, 1, 4)}),
            "INVALID_ARGUMENT: Activation: y: given memory that overlaps x, "
            "want the very view of x (in place) or other memory");
  EXPECT_EQ(error({.x = Matrix(x, 2, 4),
                   .kind = static_cast<ActivationKind>(7),
                   .y = Matrix(y, 2, 4)}),
            "INVALID_ARGUMENT: Activation: kind: given 7, want an "
            "ActivationKind");
  int32_t integers[8] = {};
  EXPECT_EQ(error({.x = Matrix(integers, 2, 4), .y = Matrix(integers, 2, 4)}),
            "UNIMPLEMENTED: Activation: x.dtype: given i32; supported: f32, "
            "f16, bf16");
  EXPECT_EQ(Activation({.x = Matrix(x, 0, 4), .y = Matrix(y, 0, 4)},
                       testing::TestStream(2)),
            absl::OkStatus());
}

}  // namespace
}  // namespace lamina
