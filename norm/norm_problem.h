#pragma once

// What the three norms share on the host: their types, their arguments in one
// shape, and the checks.

#include <algorithm>
#include <array>
#include <cstdint>

#include "absl/status/status.h"
#include "lamina/core/dispatch.h"
#include "lamina/core/math.h"
#include "lamina/core/views.h"
#include "lamina/quant/scale.h"

namespace lamina::norm_internal {

// {x and y, weight and bias}. Every row may also have a quantised output of
// each type in CodeTable.
using NormTable = Table<Types<float, float>, Types<F16, F16>, Types<F16, float>,
                        Types<BF16, BF16>, Types<BF16, float>>;

// The arguments that every norm has.
struct NormProblem {
  const char* op = "";
  ConstMatrixView x;
  ConstVectorView weight = {};  // optional
  ConstVectorView bias = {};    // optional
  bool weight_plus_one = false;
  float epsilon = 0;
  MatrixView y = {};               // optional
  QuantizedOutput quantized = {};  // optional

  // Key in NormTable. Without weight and bias their type does not matter.
  std::array<DType, 2> types() const {
    if (weight.has_value()) return {x.dtype, weight.dtype};
    if (bias.has_value()) return {x.dtype, bias.dtype};
    return {x.dtype, x.dtype};
  }
  // Rows that repay waking a thread.
  int64_t rows_per_thread() const {
    constexpr int64_t kMinColumnsPerThread = 16384;
    return CeilDiv(kMinColumnsPerThread, std::max<int64_t>(1, x.cols));
  }
};

// AddRmsNorm's: norm.x + residual goes to residual_out and is normalised.
struct AddRmsNormProblem {
  NormProblem norm;
  ConstMatrixView residual;
  MatrixView residual_out;
};

absl::Status CheckNorm(const NormProblem& problem);

// An error when `out` overlaps weight or bias.
absl::Status CheckNotWeights(const NormProblem& problem, const char* out_name,
                             const ConstMatrixView& out);
// An error when y, codes or dynamic scales overlap `in`; y may be `in` itself
// if `in_place_ok`. The problem has been checked.
absl::Status CheckOutputsOverlap(const NormProblem& problem,
                                 const char* in_name, const ConstMatrixView& in,
                                 bool in_place_ok);

}  // namespace lamina::norm_internal
