// Host SIMT as a backend: one device of each kind, on the host's memory.

#include "lamina/core/device/runtime.h"

#include "absl/strings/str_cat.h"

namespace lamina::gpu_runtime {

std::vector<DeviceInfo> QueryDevices() {
  DeviceInfo info;
  info.name = "host SIMT";
  info.arch = "simt";
  info.num_units = 16;
  info.memory_bytes = GetDeviceInfo(Device{}).memory_bytes;
  info.shared_memory_bytes = 48 << 10;
  DeviceInfo cuda = info;
  cuda.device = {Backend::kCuda, 0};
  cuda.wave_size = 32;
  cuda.max_cluster_blocks = 8;
  DeviceInfo hip = info;
  hip.device = {Backend::kHip, 0};
  hip.wave_size = 64;
  return {cuda, hip};
}

absl::Status ErrorStatus(const char* op, int code) {
  return absl::InternalError(absl::StrCat(op, ": host SIMT error ", code));
}

}  // namespace lamina::gpu_runtime
