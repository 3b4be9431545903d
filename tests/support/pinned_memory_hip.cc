#include <hip/hip_runtime_api.h>

#include <cstdlib>

#include "tests/support/pinned_memory.h"

namespace lamina::testing {
namespace {

// The memory of a call that succeeded, or null.
void* Checked(hipError_t error, void* data) {
  if (error == hipSuccess) return data;
  static_cast<void>(hipGetLastError());
  return nullptr;
}

}  // namespace

void* AllocateManaged(int64_t bytes) {
  void* data = nullptr;
  const hipError_t error = hipMallocManaged(&data, static_cast<size_t>(bytes));
  return Checked(error, data);
}
void FreeManaged(void* data) { static_cast<void>(hipFree(data)); }

void* AllocatePinned(int64_t bytes) {
  void* data = nullptr;
  const hipError_t error =
      hipHostMalloc(&data, static_cast<size_t>(bytes),
                    hipHostMallocMapped | hipHostMallocPortable);
  return Checked(error, data);
}

void MakeLaunchesSynchronous() {
  setenv("HIP_LAUNCH_BLOCKING", "1", 1);
  setenv("AMD_SERIALIZE_KERNEL", "3", 1);
}

}  // namespace lamina::testing
