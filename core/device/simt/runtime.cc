// Host SIMT as a backend: one device of each kind, on the host's memory.

#include "lamina/core/device/runtime.h"

#include <chrono>
#include <cstdlib>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "lamina/core/device/simt/tensor_map.h"
#include "lamina/core/math.h"

namespace lamina::gpu_runtime {
namespace {
constexpr gpu::Error kOutOfMemory{1};
constexpr gpu::Error kNoGraphs{2};
constexpr gpu::Error kInvalidValue{3};

using Clock = std::chrono::steady_clock;
}  // namespace

std::vector<DeviceInfo> QueryDevices() {
  DeviceInfo info;
  info.name = "host SIMT";
  info.arch = "simt";
  info.num_units = 16;
  info.memory_bytes = GetDeviceInfo(Device{}).memory_bytes;
  info.shared_memory_bytes = 64 << 10;
  DeviceInfo cuda = info;
  cuda.device = {Backend::kCuda, 0};
  cuda.wave_size = 32;
  cuda.max_cluster_blocks = 8;
  cuda.shared_memory_bytes = 227 << 10;
  DeviceInfo hip = info;
  hip.device = {Backend::kHip, 0};
  hip.wave_size = 64;
  return {cuda, hip};
}

gpu::Error DeviceError() { return {}; }

absl::Status ErrorStatus(const char* op, int code) {
  if (code == kOutOfMemory.code) {
    return absl::ResourceExhaustedError(absl::StrCat(op, ": out of memory"));
  }
  if (code == kNoGraphs.code) {
    return absl::UnimplementedError(absl::StrCat(op, ": no graphs here"));
  }
  if (code == kInvalidValue.code) {
    return absl::InternalError(absl::StrCat(op, ": invalid value"));
  }
  return absl::InternalError(absl::StrCat(op, ": host SIMT error ", code));
}

gpu::Error FreeMemory(Device device, int64_t* bytes) {
  *bytes = GetDeviceInfo(device).memory_bytes;
  return {};
}
gpu::Error Allocate(Device device, int64_t bytes, void** data) {
  *data = nullptr;
  // NOTE: asked before malloc is, which ends the program under
  // AddressSanitizer.
  if (bytes <= GetDeviceInfo(device).memory_bytes) {
    constexpr int64_t kAlignment = 256;  // as Buffer says
    *data = std::aligned_alloc(kAlignment,
                               static_cast<size_t>(RoundUp(bytes, kAlignment)));
  }
  return *data == nullptr ? kOutOfMemory : gpu::Error{};
}
void Free(Device, void* data) { std::free(data); }

gpu::Error CreateStream(Device, void** stream) {
  *stream = nullptr;
  return {};
}
void DestroyStream(Device, void*) {}
gpu::Error Synchronize(const Stream&) { return {}; }

gpu::Error Copy(void* to, const void* from, int64_t bytes, const Stream&) {
  std::memmove(to, from, static_cast<size_t>(bytes));
  return {};
}
gpu::Error Fill(void* to, uint8_t value, int64_t bytes, const Stream&) {
  std::memset(to, value, static_cast<size_t>(bytes));
  return {};
}

gpu::Error CreateEvent(Device, void** event) {
  *event = new Clock::time_point();
  return {};
}
void DestroyEvent(Device, void* event) {
  delete static_cast<Clock::time_point*>(event);
}
gpu::Error RecordEvent(void* event, const Stream&) {
  *static_cast<Clock::time_point*>(event) = Clock::now();
  return {};
}
gpu::Error ElapsedMicros(Device, void* start, void* end, double* micros) {
  const std::chrono::duration<double, std::micro> elapsed =
      *static_cast<Clock::time_point*>(end) -
      *static_cast<Clock::time_point*>(start);
  *micros = elapsed.count();
  return {};
}

gpu::Error BeginCapture(const Stream&) { return kNoGraphs; }
gpu::Error EndCapture(const Stream&, void**) { return kNoGraphs; }
gpu::Error LaunchGraph(void*, const Stream&) { return kNoGraphs; }
void DestroyGraph(Device, void*) {}

// NOTE: checks what profilers want: ranges end in the thread that began them.
static thread_local int open_ranges = 0;
void PushRange(const char* name) {
  if (name == nullptr) std::abort();
  ++open_ranges;
}
void PopRange() {
  if (--open_ranges < 0) std::abort();
}

gpu::Error MakeTensorMap(const TensorMapArgs& args, gpu::TensorMap* map) {
  const auto multiple_of_16 = [](auto value) { return value % 16 == 0; };
  const int row_bytes = args.box_cols * args.element_bytes;
  const bool known = args.element_bytes == 1 || args.element_bytes == 2 ||
                     args.element_bytes == 4;
  if (!known || !multiple_of_16(reinterpret_cast<uintptr_t>(args.base)) ||
      !multiple_of_16(args.pitch_bytes) || args.cols < 1 || args.rows < 1 ||
      args.cols > UINT32_MAX || args.rows > UINT32_MAX || row_bytes != 128 ||
      args.pitch_bytes < args.cols * args.element_bytes || args.box_rows < 1 ||
      args.box_rows > 256) {
    return kInvalidValue;
  }
  const simt::TensorMapModel model{.args = args};
  std::memcpy(map, &model, sizeof(model));
  return {};
}

}  // namespace lamina::gpu_runtime
