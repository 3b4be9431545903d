#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "lamina/core/device.h"

namespace lamina {

// Owns device memory, aligned to 256 bytes; large CPU buffers ask for huge
// pages, which streaming kernels read faster. GPU memory is not the host's:
// core/copy.h. Movable, not copyable. Operators never allocate: Buffers belong
// to the caller. Freeing GPU memory waits for the device.
class Buffer {
 public:
  // ResourceExhausted when there is not enough memory, InvalidArgument for a
  // negative size; see CheckDevice for a device that is not there. Contents are
  // undefined. Zero bytes are allowed.
  static absl::StatusOr<Buffer> Allocate(Device device, int64_t bytes);

  Buffer() = default;
  Buffer(Buffer&& other) noexcept { *this = static_cast<Buffer&&>(other); }
  Buffer& operator=(Buffer&& other) noexcept;
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() { Free(); }

  void* data() const { return data_; }
  template <class T>
  T* as() const {
    return static_cast<T*>(data_);
  }
  int64_t bytes() const { return bytes_; }
  Device device() const { return device_; }

 private:
  void Free();

  void* data_ = nullptr;
  int64_t bytes_ = 0;
  Device device_;
};

}  // namespace lamina
