#pragma once

// HIP's part of core/device/counters.cuh.

#include <cstdint>

namespace lamina::gpu {

__device__ inline uint32_t AddShared(uint32_t* pointer, uint32_t value) {
  using Shared = __attribute__((address_space(3))) uint32_t;
  return __hip_atomic_fetch_add((Shared*)pointer, value, __ATOMIC_RELAXED,
                                __HIP_MEMORY_SCOPE_WORKGROUP);
}

__device__ inline bool Uniform(bool condition) {
  return __builtin_amdgcn_readfirstlane(condition ? 1 : 0) != 0;
}

}  // namespace lamina::gpu
