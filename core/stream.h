#pragma once

#include "lamina/core/device.h"

namespace lamina {

// Where an operator runs: a device and a queue on it. Does not own the queue.
// Cheap to copy.
//
// A CPU stream runs an operator before the call returns, on `num_threads`
// threads; results do not depend on their number. A GPU stream wraps the
// vendor's own stream (cudaStream_t, hipStream_t) and only enqueues.
class Stream {
 public:
  // threads <= 0: as many as GetDeviceInfo(cpu).num_units.
  static Stream Cpu(int threads = 0);
  static Stream Gpu(Device device, void* handle) {
    return Stream(device, handle, 1);
  }

  Device device() const { return device_; }
  void* handle() const { return handle_; }

  // The same stream, whose kernels may start while the kernel before them in
  // the stream is still running: each one waits for the whole of its
  // predecessor before it reads anything that the predecessor may have written
  // and before it writes, but not before it reads weights (norm weights and
  // biases, weight matrices) and static scales. So with overlap the operation
  // right before in the stream must not write the weights and static scales of
  // this call. Results are the same. Worth 0.3 to 0.5 us a kernel in a chain of
  // small ones. On the CPU it does nothing.
  Stream WithOverlap(bool overlap = true) const {
    Stream stream = *this;
    stream.overlap_ = overlap;
    return stream;
  }
  bool overlap() const { return overlap_; }
  int num_threads() const { return num_threads_; }

 private:
  Stream(Device device, void* handle, int num_threads)
      : device_(device), handle_(handle), num_threads_(num_threads) {}

  Device device_;
  void* handle_;
  int num_threads_;
  bool overlap_ = false;
};

}  // namespace lamina
