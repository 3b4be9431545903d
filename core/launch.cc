#include "lamina/core/launch.h"

#include "absl/strings/str_cat.h"
#include "lamina/core/device/runtime.h"

namespace lamina {

gpu::LaunchTarget TargetOf(const Stream& stream) {
  return {.stream = stream.handle(),
          .device = stream.device().index,
          .wave_size = GetDeviceInfo(stream.device()).wave_size,
          .overlap = stream.overlap(),
          .recording = stream.recording()};
}

absl::Status ToStatus(const char* op, gpu::Error error) {
  if (error.ok()) return absl::OkStatus();
  if (error.code == gpu::kNoKernel.code) {
    return absl::InternalError(
        absl::StrCat(op, ": no kernel was compiled for the chosen plan"));
  }
  return gpu_runtime::ErrorStatus(op, error.code);
}

}  // namespace lamina
