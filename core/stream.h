#pragma once

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lamina/core/device.h"

namespace lamina {

namespace gpu {
struct Recording;  // core/launch.h
}  // namespace gpu

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
  // biases, weight matrices) and static scales. Kernels let the next one start
  // before they wait themselves, so that several may be under way. Hence no
  // operation since the last one without overlap (or since the stream was
  // waited for) may write the weights and static scales of this call. Results
  // are the same. Worth 0.3 to 0.5 us a kernel in a chain of small ones. On the
  // CPU it does nothing.
  Stream WithOverlap(bool overlap = true) const {
    Stream stream = *this;
    stream.overlap_ = overlap;
    return stream;
  }
  bool overlap() const { return overlap_; }

  // The same stream, on which operators write their kernels' launches down in
  // `recording` instead of making them: for whoever makes something else of
  // them (persistent/persistent_chain.h). On the CPU it does nothing.
  Stream WithRecording(gpu::Recording* recording) const {
    Stream stream = *this;
    stream.recording_ = recording;
    return stream;
  }
  gpu::Recording* recording() const { return recording_; }
  int num_threads() const { return num_threads_; }

 private:
  Stream(Device device, void* handle, int num_threads)
      : device_(device), handle_(handle), num_threads_(num_threads) {}

  Device device_;
  void* handle_;
  int num_threads_;
  bool overlap_ = false;
  gpu::Recording* recording_ = nullptr;
};

// Waits until everything enqueued on the stream is done, and reports what went
// wrong with it. A CPU stream is always done.
absl::Status Synchronize(const Stream& stream);

// A stream of its own, for a program that has none. Movable; the destructor
// does not wait.
class OwnedStream {
 public:
  static absl::StatusOr<OwnedStream> Create(Device device);

  OwnedStream(OwnedStream&& other) noexcept
      : stream_(other.stream_),
        handle_(std::exchange(other.handle_, nullptr)) {}
  OwnedStream& operator=(OwnedStream&& other) noexcept {
    std::swap(stream_, other.stream_);
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~OwnedStream();

  const Stream& stream() const { return stream_; }

 private:
  OwnedStream(Stream stream, void* handle) : stream_(stream), handle_(handle) {}

  Stream stream_;
  void* handle_;  // null on the CPU
};

}  // namespace lamina
