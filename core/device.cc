#include "lamina/core/device.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string>

#include "lamina/core/device/built_backends.h"
#include "lamina/core/device/runtime.h"

namespace lamina {
namespace {

std::string CpuModelName() {
  std::ifstream cpuinfo("/proc/cpuinfo");
  for (std::string line; std::getline(cpuinfo, line);) {
    if (line.rfind("model name", 0) == 0) {
      const size_t colon = line.find(':');
      if (colon != std::string::npos && colon + 2 <= line.size()) {
        return line.substr(colon + 2);
      }
    }
  }
  return "CPU";
}

int UsableCores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) == 0) {
    return std::max(1, CPU_COUNT(&set));
  }
  return std::max(1, static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN)));
}

// Bytes of the last-level cache that the first core sees.
// NOTE: sysconf(_SC_LEVEL3_CACHE_SIZE) adds up the caches of all core
// complexes of an AMD processor.
int64_t LastLevelCacheBytes() {
  int64_t bytes = 0;
  for (int index = 0; index < 8; ++index) {
    std::ifstream file("/sys/devices/system/cpu/cpu0/cache/index" +
                       std::to_string(index) + "/size");
    int64_t size = 0;
    char unit = 0;
    if (!(file >> size)) continue;
    if (file >> unit) size <<= unit == 'K' ? 10 : unit == 'M' ? 20 : 0;
    bytes = std::max(bytes, size);
  }
  if (bytes == 0) bytes = sysconf(_SC_LEVEL3_CACHE_SIZE);
  return std::max<int64_t>(0, bytes);
}

DeviceInfo QueryCpu() {
  DeviceInfo info;
  info.name = CpuModelName();
  for (const char* target = CpuTargetName(); *target != 0; ++target) {
    const char c = *target;
    info.arch += (c >= 'A' && c <= 'Z') ? static_cast<char>(c - 'A' + 'a') : c;
  }
  info.num_units = UsableCores();
  info.memory_bytes =
      static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGE_SIZE);
  info.cache_bytes = LastLevelCacheBytes();
  return info;
}

const std::vector<DeviceInfo>& Gpus() {
  static const auto* const gpus = new std::vector<DeviceInfo>([] {
    if constexpr (kHasGpu) return gpu_runtime::QueryDevices();
    return std::vector<DeviceInfo>();
  }());
  return *gpus;
}

}  // namespace

const DeviceInfo& GetDeviceInfo(Device device) {
  static const DeviceInfo* const cpu = new DeviceInfo(QueryCpu());
  static const DeviceInfo* const none = new DeviceInfo();
  if (device == Device{}) return *cpu;
  for (const DeviceInfo& info : Gpus()) {
    if (info.device == device) return info;
  }
  return *none;
}

int64_t FreeMemoryBytes(Device device) {
  if (device.backend == Backend::kCpu) {
    return GetDeviceInfo(device).memory_bytes;
  }
  int64_t bytes = 0;
  if constexpr (kHasGpu) {
    if (!gpu_runtime::FreeMemory(device, &bytes).ok()) bytes = 0;
  }
  return bytes;
}

std::vector<Device> ListDevices() {
  std::vector<Device> devices = {Device{}};
  for (const DeviceInfo& info : Gpus()) devices.push_back(info.device);
  return devices;
}

}  // namespace lamina
