#pragma once

#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lamina/core/stream.h"

namespace lamina {

// What was enqueued on a GPU stream, recorded once and launched many times at
// the cost of one call. Pointers and sizes are those of the recording; the
// memory must still be there at each launch. Movable, not copyable.
//
//   absl::StatusOr<Graph> step = Graph::Capture(stream, [&] {
//     LAMINA_RETURN_IF_ERROR(RmsNorm(…, stream));
//     return GatedActivation(…, stream);
//   });
//   absl::Status status = step->Launch(stream);
class Graph {
 public:
  // Records what `body` enqueues on `stream`, which is not executed. A wait
  // within is an error. After an error, of body or of the recording, the stream
  // can be used as before. InvalidArgument for the null handle (the vendor's
  // default stream cannot be recorded), Unimplemented on the CPU.
  static absl::StatusOr<Graph> Capture(const Stream& stream,
                                       absl::FunctionRef<absl::Status()> body);

  Graph(Graph&& other) noexcept
      : device_(other.device_),
        handle_(std::exchange(other.handle_, nullptr)) {}
  Graph& operator=(Graph&& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Graph();

  // Enqueues the recording on any stream of the same device. Launches of one
  // Graph run one after the other.
  absl::Status Launch(const Stream& stream) const;

 private:
  Graph(Device device, void* handle) : device_(device), handle_(handle) {}

  Device device_;
  void* handle_;  // the vendor's executable graph
};

}  // namespace lamina
