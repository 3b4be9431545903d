#pragma once

// What a GPU backend gives to the host code: one implementation a vendor,
// core/device/<vendor>/runtime.cc. No vendor's type is seen here.

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "lamina/core/device.h"
#include "lamina/core/device/tensor_map.h"
#include "lamina/core/launch.h"
#include "lamina/core/stream.h"

namespace lamina {

// ---- For operators: core/launch.cc. -----------------------------------------

gpu::LaunchTarget TargetOf(const Stream& stream);
// "op: cudaErrorInvalidValue: invalid argument", by kind: ResourceExhausted,
// Unavailable (no code for this device), else Internal.
absl::Status ToStatus(const char* op, gpu::Error error);

// ---- The vendor's part. -----------------------------------------------------
//
// Every function works on the device it is given, whichever is current, and
// leaves no error behind that a later call would return.

namespace gpu_runtime {

// The devices of this backend in the order of their index; none without a
// driver.
std::vector<DeviceInfo> QueryDevices();
// Why there are none: code 0 when there are some.
gpu::Error DeviceError();

// The vendor's name and text for an error, and its kind.
absl::Status ErrorStatus(const char* op, int code);

// Memory that is free now.
gpu::Error FreeMemory(Device device, int64_t* bytes);
gpu::Error Allocate(Device device, int64_t bytes, void** data);
void Free(Device device, void* data);

gpu::Error CreateStream(Device device, void** stream);
void DestroyStream(Device device, void* stream);
gpu::Error Synchronize(const Stream& stream);

// Enqueued. Either side may be host memory.
gpu::Error Copy(void* to, const void* from, int64_t bytes,
                const Stream& stream);
gpu::Error Fill(void* to, uint8_t value, int64_t bytes, const Stream& stream);

gpu::Error CreateEvent(Device device, void** event);
void DestroyEvent(Device device, void* event);
gpu::Error RecordEvent(void* event, const Stream& stream);
// Waits for both.
gpu::Error ElapsedMicros(Device device, void* start, void* end, double* micros);

// What is enqueued on the stream in between becomes a graph. EndCapture also
// ends a capture that went wrong, and then returns an error and no graph.
gpu::Error BeginCapture(const Stream& stream);
gpu::Error EndCapture(const Stream& stream, void** graph);
gpu::Error LaunchGraph(void* graph, const Stream& stream);
void DestroyGraph(Device device, void* graph);

// What profilers show as a range of this host thread's calls; they nest.
void PushRange(const char* name);
void PopRange();

// A matrix in global memory for CopyTensor2D (core/device/async.cuh), copied in
// boxes whose rows are 128-byte swizzled.
struct TensorMapArgs {
  const void* base = nullptr;  // a multiple of 16
  int element_bytes = 1;       // 1, 2 or 4
  int64_t cols = 0;            // elements
  int64_t rows = 0;
  int64_t pitch_bytes = 0;  // a multiple of 16
  int box_cols = 0;         // elements: 128 bytes
  int box_rows = 0;         // at most 256
};
gpu::Error MakeTensorMap(const TensorMapArgs& args, gpu::TensorMap* map);

}  // namespace gpu_runtime
}  // namespace lamina
