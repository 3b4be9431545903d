#pragma once

// Scalar model of the canonical sum (see core/simd-inl.h): what every backend
// must equal, bit for bit.

#include <cstdint>

#include "lamina/core/device/host_device.h"

namespace lamina {

inline constexpr int64_t kCanonicalChunk = 256;

namespace core_internal {
// Balanced tree over neighbours of value(i) for i in [begin, begin + size);
// columns at or past `cols` are +0. `size` is a power of two.
template <class Value>
constexpr float TreeSum(int64_t begin, int64_t size, int64_t cols,
                        Value&& value) {
  if (begin >= cols) return 0.0f;
  if (size == 1) return value(begin);
  const int64_t half = size / 2;
  return TreeSum(begin, half, cols, value) +
         TreeSum(begin + half, half, cols, value);
}
}  // namespace core_internal

// Sum of value(0) … value(cols - 1) in the canonical order.
template <class Value>
constexpr float CanonicalSum(int64_t cols, Value&& value) {
  float total = 0.0f;
  for (int64_t begin = 0; begin < cols; begin += kCanonicalChunk) {
    total += core_internal::TreeSum(begin, kCanonicalChunk, cols, value);
  }
  return total;
}

}  // namespace lamina
