#pragma once

// Matrices for tests whose surroundings are watched: guard bytes before and
// after, padding between rows, a base pointer at any element offset, contents
// poisoned until written.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "lamina/core/dtype.h"
#include "lamina/core/views.h"

namespace lamina::testing {

class GuardedMatrix {
 public:
  // All bytes are poison (0xA5: no plausible value of any type) at first.
  // `offset` elements lie between a 64-byte boundary and element (0, 0).
  GuardedMatrix(DType dtype, int64_t rows, int64_t cols,
                int64_t row_stride = -1, int64_t offset = 0);

  MatrixView view() const;
  template <class T>
  T* Row(int64_t row) const {
    return view().Row<T>(row);
  }
  template <class T>
  T& At(int64_t row, int64_t col) const {
    return Row<T>(row)[col];
  }
  // Copies values (rows * cols of them, dense) in.
  template <class T>
  void Fill(const std::vector<T>& values) const {
    for (int64_t r = 0; r < rows_; ++r) {
      for (int64_t c = 0; c < cols_; ++c) {
        At<T>(r, c) = values[static_cast<std::size_t>(r * cols_ + c)];
      }
    }
  }
  template <class T>
  std::vector<T> Dense() const {
    std::vector<T> values;
    for (int64_t r = 0; r < rows_; ++r) {
      for (int64_t c = 0; c < cols_; ++c) values.push_back(At<T>(r, c));
    }
    return values;
  }

  // True while every byte outside the elements still holds the poison.
  bool GuardsIntact() const;
  // Sets all elements back to poison.
  void Poison();

 private:
  int64_t ElementByte(int64_t row) const;

  DType dtype_;
  int64_t rows_, cols_, row_stride_;
  std::vector<uint8_t> bytes_;
  int64_t begin_;  // byte of element (0, 0)
};

// Index of the first element whose bits differ, or -1. NaN equals itself when
// the bits do.
template <class T>
int64_t FirstDifference(const std::vector<T>& a, const std::vector<T>& b) {
  if (a.size() != b.size()) return 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (__builtin_memcmp(&a[i], &b[i], sizeof(T)) != 0) {
      return static_cast<int64_t>(i);
    }
  }
  return -1;
}

}  // namespace lamina::testing
