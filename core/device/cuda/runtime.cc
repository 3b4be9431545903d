#include "lamina/core/device/runtime.h"

#include <cuda.h>
#include <cuda_runtime_api.h>
#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>
#endif

#include "absl/strings/str_cat.h"
#include "lamina/core/device/cuda/device_guard.h"

namespace lamina::gpu_runtime {
namespace {

using gpu::DeviceGuard;
using gpu::Error;
using gpu::Taken;

cudaStream_t StreamOf(const Stream& stream) {
  return static_cast<cudaStream_t>(stream.handle());
}

// Runs call() with the device current.
template <class Call>
Error On(int device, Call&& call) {
  const DeviceGuard guard(device);
  return guard.ok() ? Taken(call()) : guard.error();
}

int CountDevices(Error* error) {
  int count = 0;
  *error = Taken(cudaGetDeviceCount(&count));
  return error->ok() ? count : 0;
}

DeviceInfo Query(int index) {
  DeviceInfo info;
  cudaDeviceProp properties;
  if (!Taken(cudaGetDeviceProperties(&properties, index)).ok()) return info;
  info.device = {Backend::kCuda, index};
  info.name = properties.name;
  info.arch = absl::StrCat("sm_", properties.major, properties.minor);
  info.num_units = properties.multiProcessorCount;
  info.wave_size = properties.warpSize;
  info.memory_bytes = static_cast<int64_t>(properties.totalGlobalMem);
  info.cache_bytes = properties.l2CacheSize;
  info.shared_memory_bytes =
      static_cast<int64_t>(properties.sharedMemPerBlockOptin);
  // The size that every device with clusters has.
  info.max_cluster_blocks = properties.major >= 9 ? 8 : 1;
  return info;
}

// The driver's function, found by name: nothing links the driver.
decltype(&cuTensorMapEncodeTiled) FindTensorMapEncoder() {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found;
  const cudaError_t error = cudaGetDriverEntryPointByVersion(
      "cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &found);
  if (!Taken(error).ok() || found != cudaDriverEntryPointSuccess) return {};
  return reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(function);
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
  if (error.ok() && count == 0) error = {cudaErrorNoDevice};
  return error;
}

absl::Status ErrorStatus(const char* op, int code) {
  const auto error = static_cast<cudaError_t>(code);
  const std::string message = absl::StrCat(op, ": ", cudaGetErrorName(error),
                                           ": ", cudaGetErrorString(error));
  switch (error) {
    case cudaErrorMemoryAllocation:
    case cudaErrorLaunchOutOfResources:
      return absl::ResourceExhaustedError(message);
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorInvalidKernelImage:
    case cudaErrorUnsupportedPtxVersion:
      return absl::UnavailableError(absl::StrCat(
          message, " (this build has code for: " LAMINA_CUDA_ARCHITECTURES
                   "; see CMAKE_CUDA_ARCHITECTURES)"));
    case cudaErrorNoDevice:
    case cudaErrorInsufficientDriver:
    case cudaErrorDevicesUnavailable:
    case cudaErrorSystemNotReady:
      return absl::UnavailableError(message);
    default:
      return absl::InternalError(message);
  }
}

Error FreeMemory(Device device, int64_t* bytes) {
  size_t free = 0, total = 0;
  const Error error =
      On(device.index, [&] { return cudaMemGetInfo(&free, &total); });
  *bytes = static_cast<int64_t>(free);
  return error;
}

Error Allocate(Device device, int64_t bytes, void** data) {
  return On(device.index,
            [&] { return cudaMalloc(data, static_cast<size_t>(bytes)); });
}

void Free(Device device, void* data) {
  (void)On(device.index, [&] { return cudaFree(data); });
}

Error CreateStream(Device device, void** stream) {
  return On(device.index, [&] {
    // NOTE: non-blocking: a neighbour's use of the default stream neither waits
    // for this one nor makes it wait.
    return cudaStreamCreateWithFlags(reinterpret_cast<cudaStream_t*>(stream),
                                     cudaStreamNonBlocking);
  });
}

void DestroyStream(Device device, void* stream) {
  (void)On(device.index, [&] {
    return cudaStreamDestroy(static_cast<cudaStream_t>(stream));
  });
}

Error Synchronize(const Stream& stream) {
  return On(stream.device().index,
            [&] { return cudaStreamSynchronize(StreamOf(stream)); });
}

Error Copy(void* to, const void* from, int64_t bytes, const Stream& stream) {
  return On(stream.device().index, [&] {
    return cudaMemcpyAsync(to, from, static_cast<size_t>(bytes),
                           cudaMemcpyDefault, StreamOf(stream));
  });
}

Error Fill(void* to, uint8_t value, int64_t bytes, const Stream& stream) {
  return On(stream.device().index, [&] {
    return cudaMemsetAsync(to, value, static_cast<size_t>(bytes),
                           StreamOf(stream));
  });
}

Error CreateEvent(Device device, void** event) {
  return On(device.index, [&] {
    return cudaEventCreate(reinterpret_cast<cudaEvent_t*>(event));
  });
}

void DestroyEvent(Device device, void* event) {
  (void)On(device.index,
           [&] { return cudaEventDestroy(static_cast<cudaEvent_t>(event)); });
}

Error RecordEvent(void* event, const Stream& stream) {
  return On(stream.device().index, [&] {
    return cudaEventRecord(static_cast<cudaEvent_t>(event), StreamOf(stream));
  });
}

Error ElapsedMicros(Device device, void* start, void* end, double* micros) {
  const auto first = static_cast<cudaEvent_t>(start);
  const auto last = static_cast<cudaEvent_t>(end);
  return On(device.index, [&] {
    cudaError_t error = cudaEventSynchronize(first);
    if (error == cudaSuccess) error = cudaEventSynchronize(last);
    float milliseconds = 0;
    if (error == cudaSuccess) {
      error = cudaEventElapsedTime(&milliseconds, first, last);
    }
    *micros = static_cast<double>(milliseconds) * 1e3;
    return error;
  });
}

Error BeginCapture(const Stream& stream) {
  return On(stream.device().index, [&] {
    // Other threads may go on allocating.
    return cudaStreamBeginCapture(StreamOf(stream),
                                  cudaStreamCaptureModeThreadLocal);
  });
}

Error EndCapture(const Stream& stream, void** graph) {
  return On(stream.device().index, [&] {
    cudaGraph_t captured = nullptr;
    cudaError_t error = cudaStreamEndCapture(StreamOf(stream), &captured);
    if (error == cudaSuccess) {
      error = cudaGraphInstantiate(reinterpret_cast<cudaGraphExec_t*>(graph),
                                   captured, 0);
    }
    if (captured != nullptr) cudaGraphDestroy(captured);
    return error;
  });
}

Error LaunchGraph(void* graph, const Stream& stream) {
  return On(stream.device().index, [&] {
    return cudaGraphLaunch(static_cast<cudaGraphExec_t>(graph),
                           StreamOf(stream));
  });
}

void DestroyGraph(Device device, void* graph) {
  (void)On(device.index, [&] {
    return cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(graph));
  });
}

// NVTX is a part of the toolkit, headers alone: a profiler brings the code.
#if defined(NVTX_VERSION)
void PushRange(const char* name) { nvtxRangePushA(name); }
void PopRange() { nvtxRangePop(); }
#else
void PushRange(const char*) {}
void PopRange() {}
#endif

Error MakeTensorMap(const TensorMapArgs& args, gpu::TensorMap* map) {
  static_assert(sizeof(gpu::TensorMap) == sizeof(CUtensorMap) &&
                    alignof(gpu::TensorMap) >= alignof(CUtensorMap),
                "a tensor map is the driver's");
  static const auto encode = FindTensorMapEncoder();
  if (encode == nullptr) return {cudaErrorNotSupported};
  // Bits alone are copied.
  const CUtensorMapDataType type =
      args.element_bytes == 1   ? CU_TENSOR_MAP_DATA_TYPE_UINT8
      : args.element_bytes == 2 ? CU_TENSOR_MAP_DATA_TYPE_UINT16
                                : CU_TENSOR_MAP_DATA_TYPE_UINT32;
  const cuuint64_t sizes[] = {static_cast<cuuint64_t>(args.cols),
                              static_cast<cuuint64_t>(args.rows)};
  const cuuint64_t pitches[] = {static_cast<cuuint64_t>(args.pitch_bytes)};
  const cuuint32_t box[] = {static_cast<cuuint32_t>(args.box_cols),
                            static_cast<cuuint32_t>(args.box_rows)};
  const cuuint32_t steps[] = {1, 1};
  const auto make = [&] {
    return encode(reinterpret_cast<CUtensorMap*>(map), type, 2,
                  const_cast<void*>(args.base), sizes, pitches, box, steps,
                  CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                  CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
                  CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  };
  CUresult result = make();
  if (result == CUDA_ERROR_INVALID_CONTEXT) {
    // NOTE: a host thread has no context before it has set a device, or called
    // something that needs one. This may be done while a stream is captured.
    int device = 0;
    if (cudaGetDevice(&device) == cudaSuccess &&
        cudaSetDevice(device) == cudaSuccess) {
      result = make();
    }
  }
  // The runtime's codes are the driver's.
  return {static_cast<int>(result)};
}

}  // namespace lamina::gpu_runtime
