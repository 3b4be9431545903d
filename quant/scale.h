#pragma once

// Scales, and the quantised output that Quantize, the norms, the activations
// and SkinnyGemm share.
//
// A scale is always the dequantisation scale: real = code * scale. The store
// computes, in fp32,
//   inverse = 1 / scale                                   once for a group
//   code    = convert(v * inverse)                        static scale
//   code    = convert(clamp(v * inverse, -qmax, qmax))    dynamic scale
// where convert is FromFloat of quant/fp8.h: nearest, ties to even, ±Inf and
// large values saturate to ±max, NaN stays NaN (0 for int8). int8 reaches -128
// with a static scale only. v is the operator's fp32 result, or that result
// rounded to the operator's type T and back (`round_before_quant`).
//
// Dynamic scales are computed from the values that are quantised:
//   amax  = largest |v| over the finite elements of the group, 0 if none
//   amax  = min(amax, scale_ub)                         if scale_ub is given
//   scale = max(amax / qmax, 1 / (qmax * 512))          one fp32 division each
//   UE8M0: the smallest power of two >= that scale
// so a group of zeros gets the minimum scale and zero codes. ±Inf saturates,
// NaN stays NaN; neither changes the scale. (Rounding to f16 can make a large
// value infinite: with round_before_quant it then counts as ±Inf.)
//
// A static scale should be finite and > 0; other values give no error, but the
// codes that the formula gives (scale 0: ±max, and NaN for v = 0).
//
// On the CPU, quant/store_quantized.h and quant/store_quantized-inl.h hold the
// store; tests/support/quantize_reference.h is its scalar model.

#include <cstdint>
#include <limits>
#include <optional>

#include "absl/status/status.h"
#include "lamina/core/dispatch.h"
#include "lamina/core/dtype.h"
#include "lamina/core/math.h"
#include "lamina/core/views.h"
#include "lamina/quant/fp8.h"
#include "lamina/quant/scale_view.h"

namespace lamina {

// The element types of quantised outputs.
using CodeTable = Table<Types<F8E4M3Fn>, Types<F8E5M2>, Types<F8E4M3Fnuz>,
                        Types<F8E5M2Fnuz>, Types<int8_t>>;

// A quantised output of an operator; absent when codes.data is null.
struct QuantizedOutput {
  MatrixView codes;  // an FP8 type or kI8
  ScaleView scales;  // read if !dynamic, written if dynamic
  bool dynamic = false;
  // The value that amax maps to, and the largest code: 0 = the type's largest
  // finite value (127 for int8). A smaller one, >= 1 (224 for e4m3fnuz is
  // vLLM's), is for dynamic scales only.
  float qmax = 0;
  // Upper bound on amax, > 0; dynamic only.
  std::optional<float> scale_ub = std::nullopt;
  // Round the value to the input type before it is quantised, as unfused
  // kernels do. By default it is quantised straight from fp32.
  bool round_before_quant = false;

  constexpr bool has_value() const { return codes.data != nullptr; }
};

// The qmax of `out` with its default filled in.
constexpr float ResolvedQmax(const QuantizedOutput& out) {
  return out.qmax != 0 ? out.qmax : MaxFinite(out.codes.dtype);
}
// Dynamic scale of a group of `out`, before any UE8M0 rounding.
constexpr float DynamicScale(float amax, const QuantizedOutput& out) {
  return DynamicScale(
      amax, ResolvedQmax(out),
      out.scale_ub.value_or(std::numeric_limits<float>::infinity()));
}

// The scale of matrix element (flat row, col) on the host.
inline float LoadScale(const ConstScaleView& scales, int64_t row, int64_t col) {
  const int64_t index = scales.Index(row, col);
  return scales.dtype == DType::kF32
             ? static_cast<const float*>(scales.data)[index]
             : ToFloat(static_cast<const F8E8M0*>(scales.data)[index]);
}
// Writes a scale and returns it as stored: UE8M0 rounds it up.
inline float StoreScale(const ScaleView& scales, int64_t row, int64_t col,
                        float scale) {
  const int64_t index = scales.Index(row, col);
  if (scales.dtype == DType::kF32) {
    static_cast<float*>(scales.data)[index] = scale;
    return scale;
  }
  const F8E8M0 rounded = FromFloat<F8E8M0>(scale);
  static_cast<F8E8M0*>(scales.data)[index] = rounded;
  return ToFloat(rounded);
}

// The scale grid of a [rows, cols] matrix as a matrix, for CheckOverlap. The
// view's blocks must have been checked.
ConstMatrixView ScaleGridView(const ConstScaleView& scales, int64_t rows,
                              int64_t cols);

// ---- Validation, shared by all operators with quantised outputs. -----------
// `argument` is the name of the operator's field ("quantized", "out"); errors
// name its parts ("quantized.codes.cols"). `rows` of scales counts flat rows.

// Codes, scales and options of `out` for a [batch, rows, cols] result: shapes,
// dtypes, block sizes, strides, qmax and scale_ub (> 0), codes and scales
// apart. The caller has checked that the sizes are not negative.
absl::Status CheckQuantizedOutput(const char* op, const char* argument,
                                  const QuantizedOutput& out, int64_t batch,
                                  int64_t rows, int64_t cols);
// The same for an operator that works row by row: Unimplemented for dynamic
// scales that several rows share.
absl::Status CheckRowwiseQuantizedOutput(const char* op, const char* argument,
                                         const QuantizedOutput& out,
                                         int64_t batch, int64_t rows,
                                         int64_t cols);
// An error when what is written to `out` overlaps `in`. `out` has been checked.
absl::Status CheckQuantizedOverlap(const char* op, const char* argument,
                                   const QuantizedOutput& out,
                                   const char* in_name,
                                   const ConstMatrixView& in);

// Scales that are only read, and scales that are written.
absl::Status CheckScales(const char* op, const char* argument,
                         const ConstScaleView& scales, int64_t rows,
                         int64_t cols);
absl::Status CheckWrittenScales(const char* op, const char* argument,
                                const ConstScaleView& scales, int64_t rows,
                                int64_t cols);

}  // namespace lamina
