#pragma once

// SkinnyGemm by a kernel that the test names, on a GPU or host SIMT.

#include <cstdint>
#include <vector>

#include "gtest/gtest.h"
#include "lamina/gemm/skinny_gemm/skinny_gemm_gpu.h"
#include "tests/gemm/skinny_gemm_checks.h"

#if !defined(LAMINA_TEST_GPU)
namespace lamina::gemm_internal {

// NOTE: weak, for builds without a GPU have none, and skip every test.
__attribute__((weak)) absl::Status SkinnyGemmGpu(const SkinnyGemmArgs& args,
                                                 const Stream& stream,
                                                 const SkinnyGemmGpuPlan& plan);

}  // namespace lamina::gemm_internal
#endif

namespace lamina::testing {

// Calls f with a value of y's type.
template <class F>
auto WithType(DType y, F f) {
  return y == DType::kF16 ? f(F16{}) : y == DType::kBF16 ? f(BF16{}) : f(0.0f);
}

// y, which is f32, f16 or bf16.
inline std::vector<float> RunWithPlan(
    GemmCase& test, const gemm_internal::SkinnyGemmGpuPlan& plan) {
  test.y.Poison();
  const absl::Status status =
      gemm_internal::SkinnyGemmGpu(test.Args(), TestStream(), plan);
  EXPECT_TRUE(status.ok()) << status.ToString();
  EXPECT_TRUE(test.x.GuardsIntact() && test.w.GuardsIntact() &&
              test.y.GuardsIntact() && test.codes.GuardsIntact() &&
              test.residual.GuardsIntact() && test.bias.GuardsIntact());
  return WithType(test.spec.y, [&]<class T>(T) {
    std::vector<float> y;
    for (const T value : test.y.template Dense<T>()) {
      y.push_back(ToFloat(value));
    }
    return y;
  });
}

// Sums are exact.
inline void ExpectExact(const GemmSpec& spec,
                        const gemm_internal::SkinnyGemmGpuPlan& plan) {
  SCOPED_TRACE(Describe(spec));
  GemmCase test(spec);
  const std::vector<float> want = SkinnyGemmReference(test.Args());
  const std::vector<float> got = RunWithPlan(test, plan);
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) {
    const float rounded = WithType(
        spec.y, [&]<class T>(T) { return ToFloat(FromFloat<T>(want[i])); });
    ASSERT_EQ(got[i], rounded)
        << "row " << static_cast<int64_t>(i) / spec.out_cols() << " col "
        << static_cast<int64_t>(i) % spec.out_cols();
  }
}

// Close to the sum in double.
inline void ExpectCloseToDouble(const GemmSpec& spec,
                                const gemm_internal::SkinnyGemmGpuPlan& plan,
                                double bound) {
  SCOPED_TRACE(Describe(spec));
  GemmCase test(spec);
  const DoubleSums want = SkinnyGemmDouble(test.Args());
  const std::vector<float> got = RunWithPlan(test, plan);
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_NEAR(got[i], want.sums[i], bound * want.magnitudes[i]) << i;
  }
}

// `rows` rows of `all` from `first` on, in reverse, with the same weights: bits
// as if all were there.
inline void ExpectRowsAlone(GemmCase& all, const std::vector<float>& want,
                            int64_t first, int64_t rows,
                            const gemm_internal::SkinnyGemmGpuPlan& plan) {
  GemmSpec spec = all.spec;
  spec.m = rows;
  GemmCase few(spec);
  const int64_t row_bytes = BytesFor(spec.x, spec.k);
  const int64_t last = first + rows - 1;
  for (int64_t r = 0; r < rows; ++r) {
    std::copy_n(
        static_cast<const char*>(all.x.view().data) + (last - r) * row_bytes,
        row_bytes, static_cast<char*>(few.x.view().data) + r * row_bytes);
  }
  SkinnyGemmArgs args = few.Args();
  args.w = all.w.view();
  ASSERT_TRUE(gemm_internal::SkinnyGemmGpu(args, TestStream(), plan).ok());
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < spec.n; ++c) {
      ASSERT_EQ(few.y.At<float>(r, c),
                want[static_cast<size_t>((last - r) * spec.n + c)])
          << Describe(spec) << " row " << r << " col " << c;
    }
  }
}

// One row of x is 1, every code of w meets it at a place of its own.
inline void ExpectEveryCode(GemmSpec spec,
                            const gemm_internal::SkinnyGemmGpuPlan& plan) {
  SCOPED_TRACE(Describe(spec));
  spec.m = 1;
  spec.n = 256;
  GemmCase test(spec);
  Dispatch(gemm_internal::WTable{}, std::array{spec.w}, [&]<class W>(Types<W>) {
    for (int64_t r = 0; r < 256; ++r) {
      for (int64_t c = 0; c < spec.k; ++c) {
        test.w.At<W>(r, c).bits = static_cast<uint8_t>(c == r % spec.k ? r : 0);
      }
    }
  });
  Dispatch(gemm_internal::XTable{}, std::array{spec.x}, [&]<class X>(Types<X>) {
    for (int64_t c = 0; c < spec.k; ++c) {
      test.x.At<X>(0, c) = FromFloat<X>(1.0f);
    }
  });
  const std::vector<float> got = RunWithPlan(test, plan);
  for (uint8_t code = 0; const float y : got) {
    const float want = spec.w == DType::kF8E5M2 ? ToFloat(F8E5M2{code})
                                                : ToFloat(F8E4M3Fn{code});
    EXPECT_TRUE(y == want || (y != y && want != want))
        << "code " << int{code} << ": " << y << ", want " << want;
    ++code;
  }
}

}  // namespace lamina::testing
