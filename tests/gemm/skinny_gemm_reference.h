#pragma once

// Scalar model of SkinnyGemm's rules (gemm/skinny_gemm.h): plain loops, the
// constexpr conversions and std::fma. The CPU backend and the GPUs' general
// kernel equal theirs bit for bit.

#include <vector>

#include "lamina/gemm/skinny_gemm.h"

namespace lamina::testing {

enum class SumRule { kCpu, kGpu };

// The fp32 values before the one rounding to y, dense [m, out_cols].
std::vector<float> SkinnyGemmReference(const SkinnyGemmArgs& args,
                                       SumRule rule = SumRule::kCpu);

// The same sums in double, before bias, gate and residual: [m, n]; and the
// sums of magnitudes that bound their error.
struct DoubleSums {
  std::vector<double> sums;
  std::vector<double> magnitudes;
};
DoubleSums SkinnyGemmDouble(const SkinnyGemmArgs& args);

}  // namespace lamina::testing
