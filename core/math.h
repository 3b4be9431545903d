#pragma once

#include <cstdint>

#include "lamina/core/attributes.h"

namespace lamina {

// For a >= 0 and b > 0.
LAMINA_HD constexpr int64_t CeilDiv(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

LAMINA_HD constexpr int64_t RoundUp(int64_t a, int64_t b) {
  return CeilDiv(a, b) * b;
}

}  // namespace lamina
