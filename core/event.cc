#include "lamina/core/event.h"

#include <chrono>

namespace lamina {

absl::Status Event::Record(const Stream& stream) {
  if (stream.device().backend != Backend::kCpu) {
    return absl::UnimplementedError(
        "Event: stream: this build has the cpu backend only");
  }
  device_ = stream.device();
  nanoseconds_ = std::chrono::duration_cast<std::chrono::nanoseconds>(
                     std::chrono::steady_clock::now().time_since_epoch())
                     .count();
  recorded_ = true;
  return absl::OkStatus();
}

absl::StatusOr<double> Event::ElapsedMicros(const Event& start,
                                            const Event& end) {
  if (!start.recorded_ || !end.recorded_) {
    return absl::FailedPreconditionError(
        "Event: both events must be recorded before they are compared");
  }
  if (start.device_ != end.device_) {
    return absl::InvalidArgumentError("Event: events of two devices");
  }
  return static_cast<double>(end.nanoseconds_ - start.nanoseconds_) * 1e-3;
}

}  // namespace lamina
