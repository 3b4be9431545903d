#pragma once

// What a GPU backend gives to the host code: one implementation a vendor,
// core/device/<vendor>/runtime.cc. No vendor's type is seen here.

#include <vector>

#include "absl/status/status.h"
#include "lamina/core/device.h"
#include "lamina/core/launch.h"
#include "lamina/core/stream.h"

namespace lamina {

// ---- For operators: core/launch.cc. -----------------------------------------

gpu::LaunchTarget TargetOf(const Stream& stream);
// "op: cudaErrorInvalidValue: invalid argument", by kind: ResourceExhausted,
// Unimplemented (no code for this device), else Internal.
absl::Status ToStatus(const char* op, gpu::Error error);

// ---- The vendor's part. -----------------------------------------------------

namespace gpu_runtime {

// The devices of this backend in the order of their index; none without a
// driver.
std::vector<DeviceInfo> QueryDevices();

// The vendor's name and text for an error, and its kind.
absl::Status ErrorStatus(const char* op, int code);

}  // namespace gpu_runtime
}  // namespace lamina
