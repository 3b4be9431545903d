#pragma once

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lamina/core/stream.h"

namespace lamina {

// A point in a stream's order, to time what lies between two of them. On the
// CPU it is a reading of the steady clock.
class Event {
 public:
  absl::Status Record(const Stream& stream);

  // Microseconds from `start` to `end`; waits for both. FailedPrecondition
  // when one was not recorded, InvalidArgument when they are on two devices.
  static absl::StatusOr<double> ElapsedMicros(const Event& start,
                                              const Event& end);

 private:
  Device device_;
  bool recorded_ = false;
  int64_t nanoseconds_ = 0;
};

}  // namespace lamina
