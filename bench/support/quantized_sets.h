#pragma once

// FP8 outputs of a benchmark, one for each working set.

#include <cstdint>
#include <string>

#include "bench/support/working_sets.h"
#include "lamina/core/math.h"
#include "lamina/core/views.h"
#include "lamina/quant/scale.h"

namespace lamina::bench {

enum class Scaling { kStatic, kPerRow, kPerBlock };
inline constexpr int64_t kBlockCols = 128;

inline const char* Name(Scaling scaling) {
  switch (scaling) {
    case Scaling::kStatic:
      return "static";
    case Scaling::kPerRow:
      return "per_row";
    case Scaling::kPerBlock:
      return "per_block";
  }
  return "invalid";
}

class QuantizedSets {
 public:
  QuantizedSets(const Stream& stream, int64_t sets, int64_t rows, int64_t cols,
                Scaling scaling)
      : rows_(rows),
        cols_(cols),
        scaling_(scaling),
        codes_(stream, sets, rows * cols),
        scales_(stream, sets, ScaleCount(rows, cols, scaling), kScale, kScale) {
  }

  static int64_t ScaleCount(int64_t rows, int64_t cols, Scaling scaling) {
    switch (scaling) {
      case Scaling::kStatic:
        return 1;
      case Scaling::kPerRow:
        return rows;
      case Scaling::kPerBlock:
        return rows * CeilDiv(cols, kBlockCols);
    }
    return 0;
  }
  // Read or written by a call.
  static int64_t Bytes(int64_t rows, int64_t cols, Scaling scaling) {
    return rows * cols + 4 * ScaleCount(rows, cols, scaling);
  }

  QuantizedOutput operator[](int64_t set) const {
    return {.codes = Matrix(codes_[set], rows_, cols_),
            .scales = scaling_ == Scaling::kStatic ? PerTensor(scales_[0])
                      : scaling_ == Scaling::kPerRow
                          ? PerRow(scales_[set])
                          : PerBlock(scales_[set], cols_, kBlockCols),
            .dynamic = scaling_ != Scaling::kStatic};
  }
  F8E4M3Fn* codes(int64_t set) const { return codes_[set]; }
  float* scales(int64_t set) const { return scales_[set]; }
  ConstVectorView Codes(int64_t set) const {
    return Vector(codes_[set], rows_ * cols_);
  }

 private:
  static constexpr float kScale = 0.05f;

  int64_t rows_;
  int64_t cols_;
  Scaling scaling_;
  WorkingSets<F8E4M3Fn> codes_;
  WorkingSets<float> scales_;
};

// "bf16_f8e4m3fn/static/rows:1/cols:4096"
inline std::string ShapeName(const std::string& what, int64_t rows,
                             int64_t cols) {
  return what + "/rows:" + std::to_string(rows) +
         "/cols:" + std::to_string(cols);
}

}  // namespace lamina::bench
