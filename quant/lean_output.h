#pragma once

#include <cstdint>

namespace lamina {

// The one output of kernels for common cases: y, or codes with f32 scales
// (static: one).
enum class LeanOutput : uint8_t { kY, kStatic, kPerRow, kPerBlock };

}  // namespace lamina
