#include "lamina/core/stream.h"

#include <algorithm>

#include "lamina/core/device/built_backends.h"
#include "lamina/core/device/runtime.h"
#include "lamina/core/status.h"

namespace lamina {

Stream Stream::Cpu(int threads) {
  const int usable = GetDeviceInfo(Device{}).num_units;
  return Stream(Device{}, nullptr, threads > 0 ? threads : std::max(1, usable));
}

absl::Status Synchronize(const Stream& stream) {
  LAMINA_RETURN_IF_ERROR(CheckStream("Synchronize", stream));
  if (stream.device().backend == Backend::kCpu) return absl::OkStatus();
  if constexpr (kHasGpu) {
    return ToStatus("Synchronize", gpu_runtime::Synchronize(stream));
  }
  return absl::OkStatus();
}

absl::StatusOr<OwnedStream> OwnedStream::Create(Device device) {
  LAMINA_RETURN_IF_ERROR(CheckDevice("OwnedStream", "device", device));
  if (device.backend == Backend::kCpu) {
    return OwnedStream(Stream::Cpu(), nullptr);
  }
  void* handle = nullptr;
  if constexpr (kHasGpu) {
    LAMINA_RETURN_IF_ERROR(
        ToStatus("OwnedStream", gpu_runtime::CreateStream(device, &handle)));
  }
  return OwnedStream(Stream::Gpu(device, handle), handle);
}

OwnedStream::~OwnedStream() {
  if (handle_ == nullptr) return;
  if constexpr (kHasGpu) {
    gpu_runtime::DestroyStream(stream_.device(), handle_);
  }
}

}  // namespace lamina
