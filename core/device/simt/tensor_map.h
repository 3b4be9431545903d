#pragma once

// What a TensorMap is on host SIMT.

#include <cstdint>

#include "lamina/core/device/runtime.h"
#include "lamina/core/device/tensor_map.h"

namespace lamina::simt {

inline constexpr uint64_t kTensorMapState = 0x6c616d696e612e74;

struct TensorMapModel {
  uint64_t state = kTensorMapState;
  gpu_runtime::TensorMapArgs args;
};
static_assert(sizeof(TensorMapModel) <= sizeof(gpu::TensorMap));

}  // namespace lamina::simt
