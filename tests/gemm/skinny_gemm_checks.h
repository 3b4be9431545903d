#pragma once

// What tests of SkinnyGemm want of one problem on the device at hand.

#include <cmath>
#include <cstdint>
#include <vector>

#include "gtest/gtest.h"
#include "lamina/gemm/skinny_gemm.h"
#include "tests/gemm/skinny_gemm_case.h"
#include "tests/gemm/skinny_gemm_reference.h"
#include "tests/support/quantize_reference.h"
#include "tests/support/test_device.h"

namespace lamina::testing {

inline SumRule RuleOfDevice() {
  return OnCpu() ? SumRule::kCpu : SumRule::kGpu;
}

inline ::testing::Message Describe(const GemmSpec& spec) {
  ::testing::Message message;
  message << "m " << spec.m << " n " << spec.n << " k " << spec.k << " x "
          << Name(spec.x) << " w " << Name(spec.w) << " y " << Name(spec.y)
          << " pad " << spec.pad << " offset " << spec.offset;
  if (spec.codes) message << " codes " << Name(*spec.codes);
  return message;
}

// Bit for bit the scalar model: the CPU with any values, GPUs where sums are
// exact or by the general kernel.
inline void ExpectEqualsModel(GemmSpec spec, int threads = 2) {
  SCOPED_TRACE(Describe(spec) << " threads " << threads);
  spec.exact = spec.exact && !OnCpu();
  GemmCase test(spec);
  if (spec.in_place && spec.exact) FillIntegers(test.random, test.y);
  if (spec.in_place && !spec.exact) FillNormal(test.random, test.y);
  const std::vector<float> want =
      SkinnyGemmReference(test.Args(), RuleOfDevice());
  const absl::Status status = test.Run(threads);
  ASSERT_TRUE(status.ok()) << status.ToString();
  if (!spec.no_y) ExpectY(test.y.view(), want);
  if (!spec.codes) return;
  GemmCase model(spec);
  QuantizeReference(want, spec.y, model.Args().quantized);
  for (int64_t r = 0; r < spec.m; ++r) {
    for (int64_t c = 0; c < spec.out_cols(); ++c) {
      ASSERT_EQ(test.codes.At<uint8_t>(r, c), model.codes.At<uint8_t>(r, c))
          << "code of row " << r << " col " << c;
    }
    const ScaleView got = test.code_scales.view();
    const ScaleView scale = model.code_scales.view();
    for (const int64_t c : {int64_t{0}, spec.out_cols() - 1}) {
      ASSERT_EQ(LoadScale(got, r, c), LoadScale(scale, r, c)) << "row " << r;
    }
  }
}

// Close to the sum in double: y f32, no epilogue. `bound` is of the sum of
// magnitudes.
inline void ExpectCloseToDouble(const GemmSpec& spec, double bound) {
  SCOPED_TRACE(Describe(spec));
  GemmCase test(spec);
  const DoubleSums want = SkinnyGemmDouble(test.Args());
  const absl::Status status = test.Run();
  ASSERT_TRUE(status.ok()) << status.ToString();
  for (size_t i = 0; i < want.sums.size(); ++i) {
    const auto at = static_cast<int64_t>(i);
    ASSERT_NEAR(test.y.At<float>(at / spec.n, at % spec.n), want.sums[i],
                bound * want.magnitudes[i])
        << "row " << at / spec.n << " col " << at % spec.n;
  }
}

}  // namespace lamina::testing
