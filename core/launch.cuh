#pragma once

// Launch(kernel, shape, target, args): the one place where kernels are
// launched, or written down where the target says so. A kernel takes one plain
// struct by value.

#include "lamina/core/launch.h"

#if defined(LAMINA_SIMT)
#include "lamina/core/device/simt/launch.cuh"
#elif defined(__HIP__)
#include "lamina/core/device/hip/launch.cuh"
#else
#include "lamina/core/device/cuda/launch.cuh"
#endif

namespace lamina::gpu {

// Nothing is launched for zero blocks.
template <class Args>
Error Launch(void (*kernel)(Args), const LaunchShape& shape,
             const LaunchTarget& target, const Args& args) {
  if (shape.blocks == 0) return {};
  if (target.recording != nullptr) {
    target.recording->launches.push_back({args, shape});
    return {};
  }
  return Enqueue(kernel, shape, target, args);
}

}  // namespace lamina::gpu
