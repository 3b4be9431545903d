#pragma once

// Host SIMT's part of core/device/counters.cuh.

#include <cstdint>

namespace lamina::gpu {

// NOTE: a block's lanes take turns, and only where they meet.
inline uint32_t AddShared(uint32_t* pointer, uint32_t value) {
  const uint32_t before = *pointer;
  *pointer = before + value;
  return before;
}

inline bool Uniform(bool condition) { return condition; }

}  // namespace lamina::gpu
