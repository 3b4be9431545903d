#include <cuda_runtime_api.h>

#include <cstdlib>

#include "tests/support/pinned_memory.h"

namespace lamina::testing {
namespace {

// The memory of a call that succeeded, or null.
void* Checked(cudaError_t error, void* data) {
  if (error == cudaSuccess) return data;
  cudaGetLastError();
  return nullptr;
}

}  // namespace

void* AllocateManaged(int64_t bytes) {
  void* data = nullptr;
  const cudaError_t error =
      cudaMallocManaged(&data, static_cast<size_t>(bytes));
  return Checked(error, data);
}
void FreeManaged(void* data) { cudaFree(data); }

void* AllocatePinned(int64_t bytes) {
  void* data = nullptr;
  const cudaError_t error =
      cudaHostAlloc(&data, static_cast<size_t>(bytes),
                    cudaHostAllocMapped | cudaHostAllocPortable);
  return Checked(error, data);
}

void MakeLaunchesSynchronous() { setenv("CUDA_LAUNCH_BLOCKING", "1", 1); }

}  // namespace lamina::testing
