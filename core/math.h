#pragma once

#include <cstdint>

#include "lamina/core/device/host_device.h"

namespace lamina {

// For a >= 0 and b > 0.
LAMINA_HD constexpr int64_t CeilDiv(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

LAMINA_HD constexpr int64_t RoundUp(int64_t a, int64_t b) {
  return CeilDiv(a, b) * b;
}

// Division of 31-bit numbers by one that is known before, as a product:
// n / d = n * ceil(2^(31 + l) / d) >> (31 + l) with l = ceil(log2 d) (Granlund
// and Montgomery, "Division by invariant integers using multiplication", 1994).
struct FastDivisor {
  uint32_t divisor = 1;
  uint32_t multiplier = 0x80000001u;
  int shift = 31;

  // For 0 <= n < 2^31.
  LAMINA_HD constexpr uint32_t Quotient(uint32_t n) const {
    return static_cast<uint32_t>((uint64_t{n} * multiplier) >> shift);
  }
};
// For 1 <= divisor < 2^31.
constexpr FastDivisor MakeFastDivisor(int64_t divisor) {
  int log2 = 0;
  while ((int64_t{1} << log2) < divisor) ++log2;
  const uint64_t power = uint64_t{1} << (31 + log2);
  return {.divisor = static_cast<uint32_t>(divisor),
          .multiplier =
              static_cast<uint32_t>(power / static_cast<uint64_t>(divisor) + 1),
          .shift = 31 + log2};
}

}  // namespace lamina
