#include "lamina/core/device/runtime.h"

#include <hip/hip_runtime_api.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "lamina/core/device/hip/device_guard.h"

namespace lamina::gpu {

Error LaunchKernel(const void* kernel, const LaunchShape& shape,
                   const LaunchTarget& target, void** args) {
  const DeviceGuard guard(target.device);
  if (!guard.ok()) return guard.error();
  return Taken(hipLaunchKernel(kernel,
                               dim3(static_cast<unsigned>(shape.blocks)),
                               dim3(static_cast<unsigned>(shape.threads)), args,
                               static_cast<size_t>(shape.shared_bytes),
                               static_cast<hipStream_t>(target.stream)));
}

}  // namespace lamina::gpu

namespace lamina::gpu_runtime {
namespace {

using gpu::DeviceGuard;
using gpu::Error;
using gpu::Taken;

hipStream_t StreamOf(const Stream& stream) {
  return static_cast<hipStream_t>(stream.handle());
}

// Runs call() with the device current.
template <class Call>
Error On(int device, Call&& call) {
  const DeviceGuard guard(device);
  return guard.ok() ? Taken(call()) : guard.error();
}

int CountDevices(Error* error) {
  int count = 0;
  *error = Taken(hipGetDeviceCount(&count));
  return error->ok() ? count : 0;
}

// AMD's data sheets: of the largest product with the architecture.
int InfinityCacheMegabytes(const std::string& arch) {
  if (arch == "gfx942" || arch == "gfx950") return 256;
  if (arch == "gfx1100") return 96;
  if (arch == "gfx1201") return 64;
  return 0;
}

DeviceInfo Query(int index) {
  DeviceInfo info;
  hipDeviceProp_t properties;
  if (!Taken(hipGetDeviceProperties(&properties, index)).ok()) return info;
  info.device = {Backend::kHip, index};
  info.name = properties.name;
  // "gfx942:sramecc+:xnack-"
  const std::string target = properties.gcnArchName;
  info.arch = target.substr(0, target.find(':'));
  info.num_units = properties.multiProcessorCount;
  info.wave_size = properties.warpSize;
  info.memory_bytes = static_cast<int64_t>(properties.totalGlobalMem);
  info.cache_bytes = properties.l2CacheSize;
  // NOTE: the runtime does not tell of the cache behind the L2.
  info.cache_bytes += int64_t{InfinityCacheMegabytes(info.arch)} << 20;
  info.shared_memory_bytes = static_cast<int64_t>(properties.sharedMemPerBlock);
  if (info.arch == "gfx940" || info.arch == "gfx941" || info.arch == "gfx942") {
    info.fp8 = DType::kF8E4M3Fnuz;
  }
  return info;
}

}  // namespace

std::vector<DeviceInfo> QueryDevices() {
  std::vector<DeviceInfo> devices;
  Error error;
  const int count = CountDevices(&error);
  for (int index = 0; index < count; ++index) devices.push_back(Query(index));
  return devices;
}

Error DeviceError() {
  Error error;
  const int count = CountDevices(&error);
  if (error.ok() && count == 0) error = {hipErrorNoDevice};
  return error;
}

absl::Status ErrorStatus(const char* op, int code) {
  const auto error = static_cast<hipError_t>(code);
  const std::string name = hipGetErrorName(error);
  std::string message = absl::StrCat(op, ": ", name);
  // NOTE: older runtimes have no other text than the name.
  const std::string text = hipGetErrorString(error);
  if (text != name) absl::StrAppend(&message, ": ", text);
  switch (error) {
    case hipErrorMemoryAllocation:
    case hipErrorLaunchOutOfResources:
      return absl::ResourceExhaustedError(message);
    case hipErrorNoBinaryForGpu:
    case hipErrorInvalidImage:
    case hipErrorInvalidDeviceFunction:
    case hipErrorSharedObjectInitFailed:
      return absl::UnavailableError(absl::StrCat(
          message, " (this build has code for: " LAMINA_HIP_ARCHITECTURES
                   "; see CMAKE_HIP_ARCHITECTURES)"));
    case hipErrorNoDevice:
    case hipErrorInsufficientDriver:
      return absl::UnavailableError(message);
    default:
      return absl::InternalError(message);
  }
}

Error FreeMemory(Device device, int64_t* bytes) {
  size_t free = 0, total = 0;
  const Error error =
      On(device.index, [&] { return hipMemGetInfo(&free, &total); });
  *bytes = static_cast<int64_t>(free);
  return error;
}

Error Allocate(Device device, int64_t bytes, void** data) {
  return On(device.index,
            [&] { return hipMalloc(data, static_cast<size_t>(bytes)); });
}

void Free(Device device, void* data) {
  (void)On(device.index, [&] { return hipFree(data); });
}

Error CreateStream(Device device, void** stream) {
  return On(device.index, [&] {
    // NOTE: non-blocking: a neighbour's use of the default stream neither waits
    // for this one nor makes it wait.
    return hipStreamCreateWithFlags(reinterpret_cast<hipStream_t*>(stream),
                                    hipStreamNonBlocking);
  });
}

void DestroyStream(Device device, void* stream) {
  (void)On(device.index,
           [&] { return hipStreamDestroy(static_cast<hipStream_t>(stream)); });
}

Error Synchronize(const Stream& stream) {
  return On(stream.device().index,
            [&] { return hipStreamSynchronize(StreamOf(stream)); });
}

Error Copy(void* to, const void* from, int64_t bytes, const Stream& stream) {
  return On(stream.device().index, [&] {
    return hipMemcpyAsync(to, from, static_cast<size_t>(bytes),
                          hipMemcpyDefault, StreamOf(stream));
  });
}

Error Fill(void* to, uint8_t value, int64_t bytes, const Stream& stream) {
  return On(stream.device().index, [&] {
    return hipMemsetAsync(to, value, static_cast<size_t>(bytes),
                          StreamOf(stream));
  });
}

Error CreateEvent(Device device, void** event) {
  return On(device.index, [&] {
    return hipEventCreate(reinterpret_cast<hipEvent_t*>(event));
  });
}

void DestroyEvent(Device device, void* event) {
  (void)On(device.index,
           [&] { return hipEventDestroy(static_cast<hipEvent_t>(event)); });
}

Error RecordEvent(void* event, const Stream& stream) {
  return On(stream.device().index, [&] {
    return hipEventRecord(static_cast<hipEvent_t>(event), StreamOf(stream));
  });
}

Error ElapsedMicros(Device device, void* start, void* end, double* micros) {
  const auto first = static_cast<hipEvent_t>(start);
  const auto last = static_cast<hipEvent_t>(end);
  return On(device.index, [&] {
    hipError_t error = hipEventSynchronize(first);
    if (error == hipSuccess) error = hipEventSynchronize(last);
    float milliseconds = 0;
    if (error == hipSuccess) {
      error = hipEventElapsedTime(&milliseconds, first, last);
    }
    *micros = static_cast<double>(milliseconds) * 1e3;
    return error;
  });
}

Error BeginCapture(const Stream& stream) {
  return On(stream.device().index, [&] {
    // Other threads may go on allocating.
    return hipStreamBeginCapture(StreamOf(stream),
                                 hipStreamCaptureModeThreadLocal);
  });
}

Error EndCapture(const Stream& stream, void** graph) {
  return On(stream.device().index, [&] {
    hipGraph_t captured = nullptr;
    hipError_t error = hipStreamEndCapture(StreamOf(stream), &captured);
    if (error == hipSuccess) {
      error = hipGraphInstantiate(reinterpret_cast<hipGraphExec_t*>(graph),
                                  captured, nullptr, nullptr, 0);
    }
    if (captured != nullptr) static_cast<void>(hipGraphDestroy(captured));
    return error;
  });
}

Error LaunchGraph(void* graph, const Stream& stream) {
  return On(stream.device().index, [&] {
    return hipGraphLaunch(static_cast<hipGraphExec_t>(graph), StreamOf(stream));
  });
}

void DestroyGraph(Device device, void* graph) {
  (void)On(device.index, [&] {
    return hipGraphExecDestroy(static_cast<hipGraphExec_t>(graph));
  });
}

void PushRange(const char*) {}
void PopRange() {}

Error MakeTensorMap(const TensorMapArgs&, gpu::TensorMap*) {
  return {hipErrorNotSupported};
}

}  // namespace lamina::gpu_runtime
