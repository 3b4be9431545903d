#pragma once

// Devices: which there are and what they can do. The CPU is a device like any
// other.

#include <cstdint>
#include <string>
#include <vector>

#include "lamina/core/dtype.h"

namespace lamina {

enum class Backend : uint8_t { kCpu, kCuda, kHip };
constexpr const char* Name(Backend backend) {
  switch (backend) {
    case Backend::kCpu:
      return "cpu";
    case Backend::kCuda:
      return "cuda";
    case Backend::kHip:
      return "hip";
  }
  return "invalid";
}

struct Device {
  Backend backend = Backend::kCpu;
  int index = 0;
  friend constexpr bool operator==(Device, Device) = default;
};

struct DeviceInfo {
  Device device;
  std::string name;                 // marketing name
  std::string arch;                 // "avx2", "sm_90", "gfx942"
  int num_units = 1;                // CPU: usable cores; GPU: SMs or CUs
  int wave_size = 1;                // lanes of a warp or wavefront
  int64_t memory_bytes = 0;         // physical memory
  int64_t cache_bytes = 0;          // last-level cache (GPU: L2)
  int64_t shared_memory_bytes = 0;  // most per block; 0 on the CPU
  int max_cluster_blocks = 1;       // that share their shared memory; 1: none
  // The FP8 type of its conversions; of those in software where it has none.
  DType fp8 = DType::kF8E4M3Fn;
};

// What the device is. Queried once and cached; thread-safe. An index out of
// range gives an empty name.
const DeviceInfo& GetDeviceInfo(Device device);

// Memory that a program can still ask for: of a GPU what its driver says is
// free now, of the CPU the physical memory. 0 when that cannot be told.
int64_t FreeMemoryBytes(Device device);

// The CPU and every GPU that this build can use.
std::vector<Device> ListDevices();

// Best read bandwidth in bytes per second of `bytes` of memory in a Buffer with
// `threads` threads (0: all usable cores), the best of `repeats`: on the CPU
// each thread reads four streams far apart, which is what a kernel must do to
// come near; on a GPU it is the best of several streaming kernels, and `bytes`
// is at least sixteen times its L2. Allocates (0 when it cannot); takes about
// repeats * bytes / bandwidth, on a GPU twenty times that. 0 on a device that
// is not there.
double MeasureReadBandwidth(Device device, int threads = 0,
                            int64_t bytes = int64_t{256} << 20,
                            int repeats = 5);

// SIMD target that CPU kernels dispatch to: "AVX2", "AVX3" (AVX-512),
// "SCALAR", …
const char* CpuTargetName();

// The targets compiled into this build that this machine can run, best first,
// whatever ForceCpuTarget chose.
std::vector<std::string> CpuTargetNames();

// Restricts dispatch to one of CpuTargetNames(), for tests; "" restores the
// default. False, and nothing changes, when there is no such target. Not
// thread-safe: no operator may run meanwhile.
bool ForceCpuTarget(const std::string& name);

}  // namespace lamina
