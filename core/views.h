#pragma once

// Non-owning views of typed memory. Strides and sizes count elements, so that
// types below one byte fit.

#include <cstdint>
#include <type_traits>

#include "lamina/core/device/host_device.h"
#include "lamina/core/dtype.h"

namespace lamina {

namespace views_internal {
struct RowOfBatch {
  int64_t batch;
  int64_t row;
};
// NOTE: out of line: a 64-bit division takes some 70 instructions on a GPU, a
// 32-bit one 20, and most kernels never get here.
[[gnu::noinline]] LAMINA_HD inline RowOfBatch SplitRow(int64_t flat_row,
                                                       int64_t rows) {
  int64_t batch;
  if (((flat_row | rows) >> 32) == 0) {
    batch = static_cast<uint32_t>(flat_row) / static_cast<uint32_t>(rows);
  } else {
    batch = flat_row / rows;
  }
  return {batch, flat_row - batch * rows};
}
}  // namespace views_internal

// A stack of `batch` row-major matrices: element (b, r, c) is element
// b * batch_stride + r * row_stride + c from `data`. Columns are adjacent.
// The stride of a dimension of size 1 is never used.
// `batch` is 1 for an ordinary matrix; for heads it is [tokens, heads,
// head_dim].
template <class Void>
struct BasicMatrixView {
  Void* data = nullptr;
  DType dtype = DType::kF32;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t row_stride = 0;
  int64_t batch = 1;
  int64_t batch_stride = 0;

  // True when the caller gave a matrix at all (optional arguments).
  LAMINA_HD constexpr bool has_value() const { return data != nullptr; }
  LAMINA_HD constexpr int64_t total_rows() const { return batch * rows; }

  // First element of the row with the flat index batch_index * rows + row.
  template <class T>
  LAMINA_HD auto* Row(int64_t flat_row) const {
    using Element = std::conditional_t<std::is_const_v<Void>, const T, T>;
    Element* const first = static_cast<Element*>(data);
    if (batch == 1) return first + flat_row * row_stride;
    const views_internal::RowOfBatch at =
        views_internal::SplitRow(flat_row, rows);
    return first + at.batch * batch_stride + at.row * row_stride;
  }

  // NOLINTNEXTLINE(google-explicit-constructor): a view may lose mutability.
  LAMINA_HD constexpr operator BasicMatrixView<const void>() const
      requires(!std::is_const_v<Void>) {
    return {data, dtype, rows, cols, row_stride, batch, batch_stride};
  }
};
using MatrixView = BasicMatrixView<void>;
using ConstMatrixView = BasicMatrixView<const void>;

// A dense vector.
template <class Void>
struct BasicVectorView {
  Void* data = nullptr;
  DType dtype = DType::kF32;
  int64_t size = 0;

  LAMINA_HD constexpr bool has_value() const { return data != nullptr; }
  // NOLINTNEXTLINE(google-explicit-constructor): a view may lose mutability.
  LAMINA_HD constexpr operator BasicVectorView<const void>() const
      requires(!std::is_const_v<Void>) {
    return {data, dtype, size};
  }
};
using VectorView = BasicVectorView<void>;
using ConstVectorView = BasicVectorView<const void>;

// The same rows in the same order as one matrix, where the strides allow it:
// finding a row of it takes no division.
template <class Void>
constexpr BasicMatrixView<Void> Flattened(BasicMatrixView<Void> view) {
  if (view.batch == 1) return view;
  if (view.rows == 1) {
    view.row_stride = view.batch_stride;
  } else if (view.batch_stride != view.rows * view.row_stride) {
    return view;
  }
  view.rows *= view.batch;
  view.batch = 1;
  return view;
}

// True when the first element of every row is aligned to `bytes`. Of types of
// at least one byte.
template <class Void>
inline bool RowsAreAligned(const BasicMatrixView<Void>& view, int64_t bytes) {
  const auto aligned = [&](int64_t elements) {
    return BytesFor(view.dtype, elements) % bytes == 0;
  };
  return reinterpret_cast<uintptr_t>(view.data) %
                 static_cast<uintptr_t>(bytes) ==
             0 &&
         (view.rows <= 1 || aligned(view.row_stride)) &&
         (view.batch <= 1 || aligned(view.batch_stride));
}

// Views of typed pointers: Matrix(p, rows, cols) is dense, a fourth argument
// gives the row pitch.
template <class T>
constexpr auto Matrix(T* data, int64_t rows, int64_t cols,
                      int64_t row_stride = -1) {
  using Void = std::conditional_t<std::is_const_v<T>, const void, void>;
  return BasicMatrixView<Void>{
      .data = data,
      .dtype = DTypeOf<std::remove_const_t<T>>::value,
      .rows = rows,
      .cols = cols,
      .row_stride = row_stride < 0 ? cols : row_stride};
}

// [tokens, heads, head_dim], dense.
template <class T>
constexpr auto Heads(T* data, int64_t tokens, int64_t heads, int64_t head_dim) {
  auto view = Matrix(data, heads, head_dim);
  view.batch = tokens;
  view.batch_stride = heads * head_dim;
  return view;
}

template <class T>
constexpr auto Vector(T* data, int64_t size) {
  using Void = std::conditional_t<std::is_const_v<T>, const void, void>;
  return BasicVectorView<Void>{.data = data,
                               .dtype = DTypeOf<std::remove_const_t<T>>::value,
                               .size = size};
}

}  // namespace lamina
