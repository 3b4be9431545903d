#pragma once

#include <cstdint>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lamina/core/stream.h"

namespace lamina {

// A point in a stream's order, to time what lies between two of them. On the
// CPU it is a reading of the steady clock. Movable, not copyable.
class Event {
 public:
  Event() = default;
  Event(Event&& other) noexcept { *this = std::move(other); }
  Event& operator=(Event&& other) noexcept;
  ~Event() { Destroy(); }

  // May be called again: the last recording counts.
  absl::Status Record(const Stream& stream);

  // Until what was enqueued before the last recording is done.
  // FailedPrecondition when there is none.
  absl::Status Wait() const;

  // Microseconds from `start` to `end`; waits for both. FailedPrecondition
  // when one was not recorded, InvalidArgument when they are on two devices.
  static absl::StatusOr<double> ElapsedMicros(const Event& start,
                                              const Event& end);

 private:
  void Destroy();

  Device device_;
  bool recorded_ = false;
  int64_t nanoseconds_ = 0;  // on the CPU
  void* handle_ = nullptr;   // the GPU vendor's; created by the first Record
};

}  // namespace lamina
