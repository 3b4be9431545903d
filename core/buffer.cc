#include "lamina/core/buffer.h"

#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lamina/core/math.h"

namespace lamina {

absl::StatusOr<Buffer> Buffer::Allocate(Device device, int64_t bytes) {
  constexpr int64_t kAlignment = 256;
  if (bytes < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("Buffer: bytes: given ", bytes, ", want >= 0"));
  }
  if (device.backend != Backend::kCpu) {
    return absl::UnimplementedError(absl::StrCat(
        "Buffer: device: this build has no ", Name(device.backend),
        " backend; built backends: cpu"));
  }
  Buffer buffer;
  buffer.device_ = device;
  buffer.bytes_ = bytes;
  if (bytes > 0) {
    buffer.data_ = bytes <= (int64_t{1} << 62)
                       ? std::aligned_alloc(kAlignment,
                                            RoundUp(bytes, kAlignment))
                       : nullptr;
    if (buffer.data_ == nullptr) {
      return absl::ResourceExhaustedError(
          absl::StrCat("Buffer: cannot allocate ", bytes, " bytes on cpu"));
    }
  }
  return buffer;
}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  if (this != &other) {
    Free();
    data_ = std::exchange(other.data_, nullptr);
    bytes_ = std::exchange(other.bytes_, 0);
    device_ = other.device_;
  }
  return *this;
}

void Buffer::Free() {
  std::free(data_);
  data_ = nullptr;
}

}  // namespace lamina
