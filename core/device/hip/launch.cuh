#pragma once

// HIP's part of core/launch.cuh.

#include <cstddef>

#include "lamina/core/launch.h"

// NOTE: the compiler wants to see this function of the runtime, and its type,
// where kernels are; the runtime's headers would triple the time of compiling
// a kernel and differ from release to release.
#if !defined(HIP_INCLUDE_HIP_HIP_RUNTIME_API_H)
struct dim3 {
  unsigned x, y, z;
};
extern "C" int hipLaunchKernel(const void* kernel, dim3 blocks, dim3 threads,
                               void** args, std::size_t shared_bytes,
                               struct ihipStream_t* stream);
#endif

namespace lamina::gpu {

// Blocks of a launch at most where rows may be cut into several launches.
inline constexpr int64_t kGridBlocks = kMaxBlocks;

// core/device/hip/runtime.cc. Errors are not left behind in the runtime.
Error LaunchKernel(const void* kernel, const LaunchShape& shape,
                   const LaunchTarget& target, void** args);

// Enqueues the kernel. Nothing is launched for zero blocks. There is no
// overlap: a kernel starts when its predecessor has ended.
template <class Args>
Error Enqueue(void (*kernel)(Args), const LaunchShape& shape,
              const LaunchTarget& target, const Args& args) {
  void* parameters[] = {const_cast<Args*>(&args)};
  return LaunchKernel(reinterpret_cast<const void*>(kernel), shape, target,
                      parameters);
}

}  // namespace lamina::gpu
