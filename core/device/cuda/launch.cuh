#pragma once

// CUDA's part of core/launch.cuh.

#include <cuda_runtime.h>

#include "lamina/core/launch.h"

namespace lamina::gpu {

namespace launch_internal {
// The stream's device is current while it lives.
class DeviceGuard {
 public:
  explicit DeviceGuard(int device) {
    error_ = cudaGetDevice(&previous_);
    if (error_ == cudaSuccess && previous_ != device) {
      error_ = cudaSetDevice(device);
      changed_ = error_ == cudaSuccess;
    }
  }
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;
  ~DeviceGuard() {
    if (changed_) cudaSetDevice(previous_);
  }
  cudaError_t error() const { return error_; }

 private:
  int previous_ = 0;
  bool changed_ = false;
  cudaError_t error_;
};
}  // namespace launch_internal

// Enqueues the kernel. Nothing is launched for zero blocks. Errors are
// returned and not left behind in the runtime.
template <class Args>
Error Launch(void (*kernel)(Args), const LaunchShape& shape,
             const LaunchTarget& target, const Args& args) {
  if (shape.blocks == 0) return {};
  const launch_internal::DeviceGuard guard(target.device);
  if (guard.error() != cudaSuccess) return {static_cast<int>(guard.error())};

  cudaLaunchAttribute attributes[2];
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
  const cudaError_t error = cudaLaunchKernelEx(&config, kernel, args);
  if (error != cudaSuccess) cudaGetLastError();  // not sticky
  return {static_cast<int>(error)};
}

}  // namespace lamina::gpu
