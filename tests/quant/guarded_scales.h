#pragma once

// A scale grid for tests: guard bytes around it, padding between its rows (or
// columns, when it is transposed), poisoned until written.

#include <cstdint>
#include <vector>

#include "lamina/quant/scale.h"
#include "tests/support/memory.h"

namespace lamina::testing {

struct ScaleLayout {
  ScaleGranularity granularity = ScaleGranularity::kPerTensor;
  int64_t block_cols = 0;
  DType dtype = DType::kF32;
  bool transposed = false;
  int64_t padding = 0;
};

class GuardedScales {
 public:
  // For a matrix of `rows` flat rows.
  GuardedScales(const ScaleLayout& layout, int64_t rows, int64_t cols)
      : layout_(layout),
        grid_rows_(GridRows(layout, rows)),
        grid_cols_(GridCols(layout, cols)),
        grid_(layout.dtype, layout.transposed ? grid_cols_ : grid_rows_,
              layout.transposed ? grid_rows_ : grid_cols_,
              (layout.transposed ? grid_rows_ : grid_cols_) + layout.padding,
              /*offset=*/1) {}

  ScaleView view() const {
    const MatrixView grid = grid_.view();
    return {.data = grid.data,
            .dtype = layout_.dtype,
            .granularity = layout_.granularity,
            .block_cols = layout_.block_cols,
            .block_rows =
                layout_.granularity == ScaleGranularity::kPerTile ? 128 : 0,
            .row_stride = layout_.transposed ? 1 : grid.row_stride,
            .col_stride = layout_.transposed ? grid.row_stride : 1};
  }
  GuardedMatrix& matrix() { return grid_; }
  std::vector<float> Values() const {
    return layout_.dtype == DType::kF32 ? ToFloats<float>()
                                        : ToFloats<F8E8M0>();
  }
  // Scale number i (in memory order) becomes first * ratio^(i % 7).
  void FillStatic(float first, float ratio) const {
    const MatrixView grid = grid_.view();
    int64_t i = 0;
    for (int64_t r = 0; r < grid.rows; ++r) {
      for (int64_t c = 0; c < grid.cols; ++c, ++i) {
        float scale = first;
        for (int64_t k = 0; k < i % 7; ++k) scale *= ratio;
        if (layout_.dtype == DType::kF32) {
          grid_.At<float>(r, c) = scale;
        } else {
          grid_.At<F8E8M0>(r, c) = FromFloat<F8E8M0>(scale);
        }
      }
    }
  }

 private:
  static int64_t GridRows(const ScaleLayout& layout, int64_t rows) {
    switch (layout.granularity) {
      case ScaleGranularity::kPerTensor:
        return 1;
      case ScaleGranularity::kPerTile:
        return CeilDiv(rows, 128);
      default:
        return rows;
    }
  }
  static int64_t GridCols(const ScaleLayout& layout, int64_t cols) {
    return layout.granularity == ScaleGranularity::kPerBlock ||
                   layout.granularity == ScaleGranularity::kPerTile
               ? CeilDiv(cols, layout.block_cols)
               : 1;
  }
  template <class T>
  std::vector<float> ToFloats() const {
    std::vector<float> values;
    for (const T value : grid_.Dense<T>()) values.push_back(ToFloat(value));
    return values;
  }

  ScaleLayout layout_;
  int64_t grid_rows_, grid_cols_;
  GuardedMatrix grid_;
};

}  // namespace lamina::testing
