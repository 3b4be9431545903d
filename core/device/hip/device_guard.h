#pragma once

#include <hip/hip_runtime_api.h>

#include "lamina/core/launch.h"

namespace lamina::gpu {

// An error to hand on, not left behind in the runtime.
inline Error Taken(hipError_t error) {
  if (error != hipSuccess) static_cast<void>(hipGetLastError());
  return {static_cast<int>(error)};
}

// The device is current while the guard lives.
class DeviceGuard {
 public:
  explicit DeviceGuard(int device) {
    error_ = hipGetDevice(&previous_);
    if (error_ == hipSuccess && previous_ != device) {
      error_ = hipSetDevice(device);
      changed_ = error_ == hipSuccess;
    }
  }
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;
  ~DeviceGuard() {
    if (changed_) static_cast<void>(hipSetDevice(previous_));
  }
  bool ok() const { return error_ == hipSuccess; }
  Error error() const { return Taken(error_); }

 private:
  int previous_ = 0;
  bool changed_ = false;
  hipError_t error_;
};

}  // namespace lamina::gpu
