#pragma once

#include <cuda_runtime_api.h>

#include "lamina/core/launch.h"

namespace lamina::gpu {

// An error to hand on, not left behind in the runtime.
inline Error Taken(cudaError_t error) {
  if (error != cudaSuccess) cudaGetLastError();
  return {static_cast<int>(error)};
}

// The device is current while the guard lives.
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
  bool ok() const { return error_ == cudaSuccess; }
  Error error() const { return Taken(error_); }

 private:
  int previous_ = 0;
  bool changed_ = false;
  cudaError_t error_;
};

}  // namespace lamina::gpu
