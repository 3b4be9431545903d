#include "lamina/core/event.h"

#include <chrono>

#include "lamina/core/device/built_backends.h"
#include "lamina/core/device/runtime.h"
#include "lamina/core/status.h"

namespace lamina {

absl::Status Event::Record(const Stream& stream) {
  LAMINA_RETURN_IF_ERROR(CheckStream("Event", stream));
  if (handle_ != nullptr && device_ != stream.device()) Destroy();
  recorded_ = false;
  device_ = stream.device();
  if (device_.backend == Backend::kCpu) {
    nanoseconds_ = std::chrono::duration_cast<std::chrono::nanoseconds>(
                       std::chrono::steady_clock::now().time_since_epoch())
                       .count();
  } else if constexpr (kHasGpu) {
    if (handle_ == nullptr) {
      LAMINA_RETURN_IF_ERROR(
          ToStatus("Event", gpu_runtime::CreateEvent(device_, &handle_)));
    }
    LAMINA_RETURN_IF_ERROR(
        ToStatus("Event", gpu_runtime::RecordEvent(handle_, stream)));
  }
  recorded_ = true;
  return absl::OkStatus();
}

absl::Status Event::Wait() const {
  return ElapsedMicros(*this, *this).status();
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
  double micros =
      static_cast<double>(end.nanoseconds_ - start.nanoseconds_) * 1e-3;
  if constexpr (kHasGpu) {
    if (start.device_.backend != Backend::kCpu) {
      LAMINA_RETURN_IF_ERROR(ToStatus(
          "Event", gpu_runtime::ElapsedMicros(start.device_, start.handle_,
                                              end.handle_, &micros)));
    }
  }
  return micros;
}

Event& Event::operator=(Event&& other) noexcept {
  if (this == &other) return *this;
  Destroy();
  device_ = other.device_;
  recorded_ = std::exchange(other.recorded_, false);
  nanoseconds_ = other.nanoseconds_;
  handle_ = std::exchange(other.handle_, nullptr);
  return *this;
}

void Event::Destroy() {
  if (handle_ == nullptr) return;
  if constexpr (kHasGpu) gpu_runtime::DestroyEvent(device_, handle_);
  handle_ = nullptr;
}

}  // namespace lamina
