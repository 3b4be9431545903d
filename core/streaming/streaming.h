#pragma once

// A GPU kernel that moves bytes and does nothing else: the measured limit of
// the kernels that compute. For benchmarks and MeasureReadBandwidth.
//
// The bytes are moved in units: each reads 16 bytes from one or two arrays and
// writes 16 bytes, 8 bytes, both or nothing; so a unit is what eight columns
// of an operator cost. What is written depends on all that is read.

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "lamina/core/device.h"
#include "lamina/core/stream.h"
#include "lamina/core/streaming/streaming_args.h"

namespace lamina {

// The plans worth trying for so many units. Which is best depends on the device
// and on the caches, so measure them all.
std::vector<StreamingPlan> StreamingPlans(int64_t units, const DeviceInfo& gpu);

// Enqueues one pass. Pointers are aligned to 16 bytes, write8 to 8.
// Unimplemented on the CPU and for other traffic.
absl::Status EnqueueStreaming(const StreamingTraffic& traffic,
                              const StreamingArgs& args,
                              const StreamingPlan& plan, const Stream& stream);

// MeasureReadBandwidth on a GPU.
double MeasureGpuReadBandwidth(Device device, int64_t bytes, int repeats);

}  // namespace lamina
