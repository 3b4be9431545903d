#pragma once

// CUDA's part of core/device/counters.cuh.

#include <cstdint>

namespace lamina::gpu {

__device__ inline uint32_t AddShared(uint32_t* pointer, uint32_t value) {
  uint32_t before;
  asm volatile("atom.shared.add.u32 %0, [%1], %2;"
               : "=r"(before)
               : "r"(static_cast<uint32_t>(__cvta_generic_to_shared(pointer))),
                 "r"(value)
               : "memory");
  return before;
}

__device__ inline bool Uniform(bool condition) { return condition; }

}  // namespace lamina::gpu
