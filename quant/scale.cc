#include "lamina/quant/scale.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>

#include "absl/strings/str_cat.h"
#include "lamina/core/status.h"

namespace lamina {
namespace {

// Rows and columns of the scale grid of a [rows, cols] matrix; an empty matrix
// has an empty grid.
struct Grid {
  int64_t rows;
  int64_t cols;
};

Grid GridOf(const ConstScaleView& scales, int64_t rows, int64_t cols) {
  if (rows <= 0 || cols <= 0) return {0, 0};
  switch (scales.granularity) {
    case ScaleGranularity::kPerTensor:
      return {1, 1};
    case ScaleGranularity::kPerRow:
      return {rows, 1};
    case ScaleGranularity::kPerBlock:
      return {rows, CeilDiv(cols, scales.block_cols)};
    case ScaleGranularity::kPerTile:
      return {CeilDiv(rows, scales.block_rows),
              CeilDiv(cols, scales.block_cols)};
  }
  return {0, 0};
}

class FieldNames {
 public:
  FieldNames(const char* op, const char* argument)
      : op_(op), argument_(argument) {}
  template <class Given>
  absl::Status Error(const char* field, Given given,
                     const std::string& want) const {
    return InvalidArgument(op_, absl::StrCat(argument_, ".", field).c_str(),
                           given, want);
  }

 private:
  const char* op_;
  const char* argument_;
};

absl::Status CheckBlocks(const FieldNames& names,
                         const ConstScaleView& scales) {
  switch (scales.granularity) {
    case ScaleGranularity::kPerTensor:
    case ScaleGranularity::kPerRow:
      return absl::OkStatus();
    case ScaleGranularity::kPerBlock:
      if (scales.block_cols != 32 && scales.block_cols != 64 &&
          scales.block_cols != 128) {
        return names.Error("block_cols", scales.block_cols, "32, 64 or 128");
      }
      return absl::OkStatus();
    case ScaleGranularity::kPerTile:
      if (scales.block_cols != 128) {
        return names.Error("block_cols", scales.block_cols, "128");
      }
      if (scales.block_rows != 128) {
        return names.Error("block_rows", scales.block_rows, "128");
      }
      return absl::OkStatus();
  }
  return names.Error("granularity", static_cast<int64_t>(scales.granularity),
                     "a ScaleGranularity");
}

enum class Access { kRead, kWrite };

absl::Status CheckScaleView(const char* op, const char* argument,
                            const ConstScaleView& scales, int64_t rows,
                            int64_t cols, Access access) {
  const FieldNames names(op, argument);
  if (scales.dtype != DType::kF32 && scales.dtype != DType::kF8E8M0) {
    return names.Error("dtype", std::string(Name(scales.dtype)),
                       "f32 or f8e8m0");
  }
  LAMINA_RETURN_IF_ERROR(CheckBlocks(names, scales));
  const Grid grid = GridOf(scales, rows, cols);
  if (grid.rows == 0) return absl::OkStatus();
  if (scales.data == nullptr) {
    return names.Error("data", std::string("null"), "a pointer");
  }
  if (scales.dtype == DType::kF32 &&
      reinterpret_cast<uintptr_t>(scales.data) % alignof(float) != 0) {
    return names.Error("data", std::string("a misaligned pointer"),
                       "alignment of one f32 (4 bytes)");
  }
  const int64_t row_stride = grid.rows > 1 ? scales.row_stride : 0;
  const int64_t col_stride = grid.cols > 1 ? scales.col_stride : 0;
  if (row_stride < 0) return names.Error("row_stride", row_stride, ">= 0");
  if (col_stride < 0) return names.Error("col_stride", col_stride, ">= 0");
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max() / 16;
  if ((row_stride > 0 && grid.rows - 1 > kMax / row_stride) ||
      (col_stride > 0 && grid.cols - 1 > kMax / col_stride)) {
    return InvalidArgument(op, argument, std::string("grid * stride"),
                           "an extent that fits 64 bits");
  }
  if (access == Access::kRead) return absl::OkStatus();
  // Written scales must not share memory: row-major or column-major order.
  const int64_t row_extent = (grid.cols - 1) * col_stride + 1;
  const int64_t col_extent = (grid.rows - 1) * row_stride + 1;
  const bool row_major = (grid.cols == 1 || col_stride >= 1) &&
                         (grid.rows == 1 || row_stride >= row_extent);
  const bool col_major = (grid.rows == 1 || row_stride >= 1) &&
                         (grid.cols == 1 || col_stride >= col_extent);
  if (row_major || col_major) return absl::OkStatus();
  if (grid.cols == 1) return names.Error("row_stride", row_stride, ">= 1");
  return names.Error(
      "row_stride", absl::StrCat(row_stride, " with col_stride ", col_stride),
      absl::StrCat("row_stride >= ", row_extent, ", or col_stride >= ",
                   col_extent, " with row_stride >= 1: one element a scale"));
}

}  // namespace

ConstMatrixView ScaleGridView(const ConstScaleView& scales, int64_t rows,
                              int64_t cols) {
  Grid grid = GridOf(scales, rows, cols);
  // Repeated scales are the same memory.
  if (scales.row_stride == 0) grid.rows = std::min<int64_t>(grid.rows, 1);
  if (scales.col_stride == 0) grid.cols = std::min<int64_t>(grid.cols, 1);
  ConstMatrixView view{.data = scales.data, .dtype = scales.dtype};
  if (grid.cols <= 1 || scales.col_stride == 1) {
    view.rows = grid.rows;
    view.cols = grid.cols;
    view.row_stride = scales.row_stride;
  } else if (grid.rows <= 1 || scales.row_stride == 1) {
    view.rows = grid.cols;
    view.cols = grid.rows;
    view.row_stride = scales.col_stride;
  } else {
    view.batch = grid.rows;
    view.batch_stride = scales.row_stride;
    view.rows = grid.cols;
    view.row_stride = scales.col_stride;
    view.cols = 1;
  }
  return view;
}

absl::Status CheckScales(const char* op, const char* argument,
                         const ConstScaleView& scales, int64_t rows,
                         int64_t cols) {
  return CheckScaleView(op, argument, scales, rows, cols, Access::kRead);
}

absl::Status CheckWrittenScales(const char* op, const char* argument,
                                const ConstScaleView& scales, int64_t rows,
                                int64_t cols) {
  return CheckScaleView(op, argument, scales, rows, cols, Access::kWrite);
}

absl::Status CheckQuantizedOutput(const char* op, const char* argument,
                                  const QuantizedOutput& out, int64_t batch,
                                  int64_t rows, int64_t cols) {
  const FieldNames names(op, argument);
  const std::string codes = absl::StrCat(argument, ".codes");
  const std::string scales = absl::StrCat(argument, ".scales");
  LAMINA_RETURN_IF_ERROR(
      CheckShape(op, codes.c_str(), out.codes, batch, rows, cols));
  if (!IsFp8(out.codes.dtype) && out.codes.dtype != DType::kI8) {
    return names.Error("codes.dtype", std::string(Name(out.codes.dtype)),
                       "f8e4m3fn, f8e5m2, f8e4m3fnuz, f8e5m2fnuz or i8");
  }
  LAMINA_RETURN_IF_ERROR(
      CheckScaleView(op, scales.c_str(), out.scales, batch * rows, cols,
                     out.dynamic ? Access::kWrite : Access::kRead));
  const float largest = MaxFinite(out.codes.dtype);
  if (out.qmax != 0 && !out.dynamic) {
    return names.Error("qmax", absl::StrCat(out.qmax),
                       "0 (a static scale has no qmax)");
  }
  if (out.qmax != 0 && !(out.qmax >= 1 && out.qmax <= largest)) {
    return names.Error("qmax", absl::StrCat(out.qmax),
                       absl::StrCat("0, or from 1 to ", largest));
  }
  if (out.scale_ub.has_value() && !out.dynamic) {
    return names.Error("scale_ub", absl::StrCat(*out.scale_ub),
                       "none (a static scale has no bound)");
  }
  if (out.scale_ub.has_value() && !(*out.scale_ub > 0)) {
    return names.Error("scale_ub", absl::StrCat(*out.scale_ub),
                       "a bound on amax, > 0");
  }
  return CheckOverlap(op, scales.c_str(),
                      ScaleGridView(out.scales, batch * rows, cols),
                      codes.c_str(), out.codes, /*in_place_ok=*/false);
}

absl::Status CheckRowwiseQuantizedOutput(const char* op, const char* argument,
                                         const QuantizedOutput& out,
                                         int64_t batch, int64_t rows,
                                         int64_t cols) {
  LAMINA_RETURN_IF_ERROR(
      CheckQuantizedOutput(op, argument, out, batch, rows, cols));
  if (out.dynamic && (out.scales.granularity == ScaleGranularity::kPerTensor ||
                      out.scales.granularity == ScaleGranularity::kPerTile)) {
    return absl::UnimplementedError(absl::StrCat(
        op, ": ", argument, ".scales.granularity: given dynamic ",
        Name(out.scales.granularity),
        "; supported: static per_tensor, per_row, per_block, per_tile; "
        "dynamic per_row, per_block (Quantize has the rest)"));
  }
  return absl::OkStatus();
}

absl::Status CheckQuantizedOverlap(const char* op, const char* argument,
                                   const QuantizedOutput& out,
                                   const char* in_name,
                                   const ConstMatrixView& in) {
  LAMINA_RETURN_IF_ERROR(
      CheckOverlap(op, absl::StrCat(argument, ".codes").c_str(), out.codes,
                   in_name, in, /*in_place_ok=*/false));
  if (!out.dynamic) return absl::OkStatus();
  return CheckOverlap(
      op, absl::StrCat(argument, ".scales").c_str(),
      ScaleGridView(out.scales, out.codes.total_rows(), out.codes.cols),
      in_name, in, /*in_place_ok=*/false);
}

}  // namespace lamina
