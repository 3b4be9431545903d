#pragma once

// CUDA's part of core/launch.cuh.

#include <cuda_runtime.h>

#include "lamina/core/device/cuda/device_guard.h"
#include "lamina/core/launch.h"

namespace lamina::gpu {

// Blocks of a launch at most where rows may be cut into several launches.
inline constexpr int64_t kGridBlocks = kMaxBlocks;

// Shared memory that a kernel gets without asking.
inline constexpr int64_t kDefaultSharedBytes = 48 << 10;

// Enqueues the kernel. Nothing is launched for zero blocks. Errors are
// returned and not left behind in the runtime.
template <class Args>
Error Enqueue(void (*kernel)(Args), const LaunchShape& shape,
              const LaunchTarget& target, const Args& args) {
  const DeviceGuard guard(target.device);
  if (!guard.ok()) return guard.error();

  if (shape.shared_bytes > kDefaultSharedBytes) {
    const Error error = Taken(cudaFuncSetAttribute(
        kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
        static_cast<int>(shape.shared_bytes)));
    if (!error.ok()) return error;
  }

  cudaLaunchAttribute attributes[3];
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(shape.blocks));
  config.blockDim = dim3(static_cast<unsigned>(shape.threads));
  config.dynamicSmemBytes = static_cast<size_t>(shape.shared_bytes);
  config.stream = static_cast<cudaStream_t>(target.stream);
  config.attrs = attributes;
  if (shape.cluster_blocks > 1) {
    cudaLaunchAttribute& cluster = attributes[config.numAttrs++];
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim.x = static_cast<unsigned>(shape.cluster_blocks);
    cluster.val.clusterDim.y = 1;
    cluster.val.clusterDim.z = 1;
  }
  if (target.overlap) {
    cudaLaunchAttribute& overlap = attributes[config.numAttrs++];
    overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    overlap.val.programmaticStreamSerializationAllowed = 1;
  }
  if (shape.together) {
    cudaLaunchAttribute& together = attributes[config.numAttrs++];
    together.id = cudaLaunchAttributeCooperative;
    together.val.cooperative = 1;
  }
  return Taken(cudaLaunchKernelEx(&config, kernel, args));
}

}  // namespace lamina::gpu
