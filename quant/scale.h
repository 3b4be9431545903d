#pragma once

// Scales, and the quantised output that Quantize, the norms, the activations
// and SkinnyGemm share.
//
// A scale is always the dequantisation scale: real = code * scale. The store
// computes inverse = 1 / scale once, in fp32, and code = convert(v * inverse).
//
// Dynamic scales are computed from the values that are quantised:
//   amax  = largest |v| over the finite elements of the group
//   amax  = min(amax, scale_ub)                         if scale_ub is given
//   scale = max(amax / qmax, 1 / (qmax * 512))          one fp32 division each
//   UE8M0: the smallest power of two >= that scale
// so a group of zeros gets the minimum scale and zero codes. ±Inf saturates,
// NaN stays NaN; neither changes the scale.

#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "lamina/core/dtype.h"
#include "lamina/core/math.h"
#include "lamina/core/views.h"
#include "lamina/quant/fp8.h"

namespace lamina {

// Which elements of a [rows, cols] matrix share a scale.
enum class ScaleGranularity : uint8_t {
  kPerTensor,  // one scale
  kPerRow,     // [rows]: per token for activations, per channel for weights
  kPerBlock,   // [rows, ceil(cols / block_cols)]: 1 x block_cols blocks
  kPerTile,    // [ceil(rows / block_rows), ceil(cols / block_cols)]
};
constexpr const char* Name(ScaleGranularity granularity) {
  switch (granularity) {
    case ScaleGranularity::kPerTensor:
      return "per_tensor";
    case ScaleGranularity::kPerRow:
      return "per_row";
    case ScaleGranularity::kPerBlock:
      return "per_block";
    case ScaleGranularity::kPerTile:
      return "per_tile";
  }
  return "invalid";
}

// Scales in memory. Element (i, j) of the scale grid is element
// i * row_stride + j * col_stride of `data`; a column-major (transposed) grid
// is row_stride = 1, col_stride = pitch. Padding is neither read nor written.
// For batched (3-D) matrices, rows are counted flat: batch * rows.
template <class Void>
struct BasicScaleView {
  Void* data = nullptr;
  DType dtype = DType::kF32;  // kF32, or kF8E8M0 where stated
  ScaleGranularity granularity = ScaleGranularity::kPerTensor;
  int64_t block_cols = 0;  // kPerBlock: 32, 64 or 128; kPerTile: 128
  int64_t block_rows = 0;  // kPerTile: 128
  int64_t row_stride = 0;
  int64_t col_stride = 1;

  constexpr bool has_value() const { return data != nullptr; }
  // NOLINTNEXTLINE(google-explicit-constructor): a view may lose mutability.
  constexpr operator BasicScaleView<const void>() const
    requires(!std::is_const_v<Void>)
  {
    return {data, dtype, granularity, block_cols, block_rows, row_stride,
            col_stride};
  }
  // Offset, in elements, of the scale of matrix element (row, col).
  constexpr int64_t Index(int64_t row, int64_t col) const {
    switch (granularity) {
      case ScaleGranularity::kPerTensor:
        return 0;
      case ScaleGranularity::kPerRow:
        return row * row_stride;
      case ScaleGranularity::kPerBlock:
        return row * row_stride + col / block_cols * col_stride;
      case ScaleGranularity::kPerTile:
        return row / block_rows * row_stride + col / block_cols * col_stride;
    }
    return 0;
  }
};
using ScaleView = BasicScaleView<void>;
using ConstScaleView = BasicScaleView<const void>;

// Dense scales of a [rows, cols] matrix, one constructor a granularity.
template <class T>
constexpr auto PerTensor(T* scale) {
  using Void = std::conditional_t<std::is_const_v<T>, const void, void>;
  return BasicScaleView<Void>{.data = scale,
                              .dtype = DTypeOf<std::remove_const_t<T>>::value};
}
template <class T>
constexpr auto PerRow(T* scales) {
  using Void = std::conditional_t<std::is_const_v<T>, const void, void>;
  return BasicScaleView<Void>{
      .data = scales,
      .dtype = DTypeOf<std::remove_const_t<T>>::value,
      .granularity = ScaleGranularity::kPerRow,
      .row_stride = 1};
}
template <class T>
constexpr auto PerBlock(T* scales, int64_t cols, int64_t block_cols) {
  using Void = std::conditional_t<std::is_const_v<T>, const void, void>;
  return BasicScaleView<Void>{
      .data = scales,
      .dtype = DTypeOf<std::remove_const_t<T>>::value,
      .granularity = ScaleGranularity::kPerBlock,
      .block_cols = block_cols,
      .row_stride = CeilDiv(cols, block_cols)};
}
template <class T>
constexpr auto PerTile(T* scales, int64_t cols, int64_t block_rows = 128,
                       int64_t block_cols = 128) {
  using Void = std::conditional_t<std::is_const_v<T>, const void, void>;
  return BasicScaleView<Void>{
      .data = scales,
      .dtype = DTypeOf<std::remove_const_t<T>>::value,
      .granularity = ScaleGranularity::kPerTile,
      .block_cols = block_cols,
      .block_rows = block_rows,
      .row_stride = CeilDiv(cols, block_cols)};
}

// A quantised output of an operator; absent when codes.data is null.
struct QuantizedOutput {
  MatrixView codes;  // an FP8 type or kI8
  ScaleView scales;  // read if !dynamic, written if dynamic
  bool dynamic = false;
  // The value that amax maps to: 0 = the type's largest finite value. A
  // smaller one (224 for e4m3fnuz is vLLM's) is for dynamic scales only.
  float qmax = 0;
  std::optional<float> scale_ub;  // upper bound on amax, > 0; dynamic only
  // Round the value to the input type before it is quantised, as unfused
  // kernels do. By default it is quantised straight from fp32.
  bool round_before_quant = false;

  constexpr bool has_value() const { return codes.data != nullptr; }
};

// Smallest dynamic scale: 1 / (qmax * 512), formed in fp32.
LAMINA_HD constexpr float MinScale(float qmax) { return 1.0f / (qmax * 512.0f); }

// Dynamic scale of a group with the given amax, before any UE8M0 rounding.
LAMINA_HD constexpr float DynamicScale(float amax, float qmax, float scale_ub) {
  const float bounded = amax < scale_ub ? amax : scale_ub;
  const float scale = bounded / qmax;
  const float minimum = MinScale(qmax);
  return scale > minimum ? scale : minimum;
}

// Checks codes, scales and options of `out` for a [batch, rows, cols] result:
// shapes, dtypes, block sizes, strides, scale_ub > 0, qmax > 0.
absl::Status CheckQuantizedOutput(const char* op, const QuantizedOutput& out,
                                  int64_t batch, int64_t rows, int64_t cols);

// Checks scales that are only read.
absl::Status CheckScales(const char* op, const char* argument,
                         const ConstScaleView& scales, int64_t rows,
                         int64_t cols);

}  // namespace lamina
