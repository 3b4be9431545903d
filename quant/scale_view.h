#pragma once

// Scales in memory, and the size of a dynamic scale: plain values that kernels
// share with the host. quant/scale.h has the whole rule.

#include <cstdint>
#include <type_traits>

#include "lamina/core/device/host_device.h"
#include "lamina/core/dtype.h"
#include "lamina/core/math.h"

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
// The stride of a dimension of size 1 is never used. Scales that are read may
// repeat (stride 0); scales that are written take an element each.
// For batched (3-D) matrices, rows are counted flat: batch * rows.
template <class Void>
struct BasicScaleView {
  Void* data = nullptr;
  DType dtype = DType::kF32;  // kF32 or kF8E8M0
  ScaleGranularity granularity = ScaleGranularity::kPerTensor;
  int64_t block_cols = 0;  // kPerBlock: 32, 64 or 128; kPerTile: 128
  int64_t block_rows = 0;  // kPerTile: 128
  int64_t row_stride = 0;
  int64_t col_stride = 1;

  constexpr bool has_value() const { return data != nullptr; }
  // NOLINTNEXTLINE(google-explicit-constructor): a view may lose mutability.
  constexpr operator BasicScaleView<const void>() const
      requires(!std::is_const_v<Void>) {
    return {data,       dtype,      granularity, block_cols,
            block_rows, row_stride, col_stride};
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
  return BasicScaleView<Void>{.data = scales,
                              .dtype = DTypeOf<std::remove_const_t<T>>::value,
                              .granularity = ScaleGranularity::kPerRow,
                              .row_stride = 1};
}
template <class T>
constexpr auto PerBlock(T* scales, int64_t cols, int64_t block_cols) {
  using Void = std::conditional_t<std::is_const_v<T>, const void, void>;
  return BasicScaleView<Void>{.data = scales,
                              .dtype = DTypeOf<std::remove_const_t<T>>::value,
                              .granularity = ScaleGranularity::kPerBlock,
                              .block_cols = block_cols,
                              .row_stride = CeilDiv(cols, block_cols)};
}
template <class T>
constexpr auto PerTile(T* scales, int64_t cols, int64_t block_rows = 128,
                       int64_t block_cols = 128) {
  using Void = std::conditional_t<std::is_const_v<T>, const void, void>;
  return BasicScaleView<Void>{.data = scales,
                              .dtype = DTypeOf<std::remove_const_t<T>>::value,
                              .granularity = ScaleGranularity::kPerTile,
                              .block_cols = block_cols,
                              .block_rows = block_rows,
                              .row_stride = CeilDiv(cols, block_cols)};
}

// First column past `col`, at most `end`, whose scale (in the same row) is
// another one.
template <class Void>
constexpr int64_t GroupEnd(const BasicScaleView<Void>& scales, int64_t col,
                           int64_t end) {
  if (scales.granularity == ScaleGranularity::kPerTensor ||
      scales.granularity == ScaleGranularity::kPerRow) {
    return end;
  }
  const int64_t next = (col / scales.block_cols + 1) * scales.block_cols;
  return next < end ? next : end;
}

// Smallest dynamic scale: 1 / (qmax * 512), formed in fp32.
LAMINA_HD constexpr float MinScale(float qmax) {
  return 1.0f / (qmax * 512.0f);
}

// Dynamic scale of a group with the given amax, before any UE8M0 rounding.
LAMINA_HD constexpr float DynamicScale(float amax, float qmax, float scale_ub) {
  const float bounded = amax < scale_ub ? amax : scale_ub;
  const float scale = bounded / qmax;
  const float minimum = MinScale(qmax);
  return scale > minimum ? scale : minimum;
}

}  // namespace lamina
