#include "tests/support/memory.h"

#include <algorithm>

namespace lamina::testing {
namespace {
constexpr uint8_t kPoison = 0xa5;
constexpr int64_t kGuardBytes = 256;
}  // namespace

GuardedMatrix::GuardedMatrix(DType dtype, int64_t rows, int64_t cols,
                             int64_t row_stride, int64_t offset)
    : dtype_(dtype),
      rows_(rows),
      cols_(cols),
      row_stride_(row_stride < 0 ? cols : row_stride) {
  const int64_t extent = rows == 0 ? 0 : (rows - 1) * row_stride_ + cols;
  bytes_.assign(static_cast<size_t>(BytesFor(dtype, extent + offset) +
                                    2 * kGuardBytes + 64),
                kPoison);
  const int64_t base =
      static_cast<int64_t>(reinterpret_cast<uintptr_t>(bytes_.data()) % 64);
  begin_ = kGuardBytes + (64 - base) % 64 + BytesFor(dtype, offset);
}

MatrixView GuardedMatrix::view() const {
  return {.data = const_cast<uint8_t*>(bytes_.data()) + begin_,
          .dtype = dtype_,
          .rows = rows_,
          .cols = cols_,
          .row_stride = row_stride_};
}

int64_t GuardedMatrix::ElementByte(int64_t row) const {
  return begin_ + BytesFor(dtype_, row * row_stride_);
}

bool GuardedMatrix::GuardsIntact() const {
  int64_t position = 0;
  const auto clean_until = [&](int64_t end) {
    const bool clean =
        std::all_of(bytes_.begin() + position, bytes_.begin() + end,
                    [](uint8_t b) { return b == kPoison; });
    position = end;
    return clean;
  };
  for (int64_t row = 0; row < rows_; ++row) {
    if (!clean_until(ElementByte(row))) return false;
    position += BytesFor(dtype_, cols_);
  }
  return clean_until(static_cast<int64_t>(bytes_.size()));
}

void GuardedMatrix::Poison() {
  for (int64_t row = 0; row < rows_; ++row) {
    std::fill_n(bytes_.begin() + ElementByte(row), BytesFor(dtype_, cols_),
                kPoison);
  }
}

}  // namespace lamina::testing
