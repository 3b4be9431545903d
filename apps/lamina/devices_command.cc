#include <cstdio>
#include <string>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "apps/lamina/options.h"
#include "apps/lamina/support.h"
#include "lamina/core/device.h"
#include "lamina/core/status.h"
#include "lamina/gemm/prefill_gemm.h"
#include "nlohmann/json.hpp"

namespace lamina::cli {

namespace {

// Or why there is none.
std::string PrefillLibrary(const Device& device) {
  const auto library = LoadCublasLt(device);
  return library.ok() ? (*library)->name()
                      : std::string(library.status().message());
}

nlohmann::json ToJson(const DeviceInfo& info, double bandwidth) {
  nlohmann::json json = {{"backend", Name(info.device.backend)},
                         {"index", info.device.index},
                         {"name", info.name},
                         {"arch", info.arch},
                         {"units", info.num_units},
                         {"memory_bytes", info.memory_bytes},
                         {"cache_bytes", info.cache_bytes},
                         {"read_gb_per_s", bandwidth * 1e-9}};
  if (info.device.backend != Backend::kCpu) {
    json["wave_size"] = info.wave_size;
    json["shared_memory_bytes"] = info.shared_memory_bytes;
    json["prefill"] = PrefillLibrary(info.device);
  }
  return json;
}

void PrintMemory(const DeviceInfo& info, double bandwidth) {
  absl::PrintF("  memory           %s\n", HumanBytes(info.memory_bytes));
  absl::PrintF("  last-level cache %s\n", HumanBytes(info.cache_bytes));
  absl::PrintF("  read bandwidth   %.1f GB/s (measured)\n", bandwidth * 1e-9);
}

void PrintGpu(const DeviceInfo& info) {
  absl::PrintF("  architecture     %s\n", info.arch);
  absl::PrintF("  units            %d, waves of %d lanes, %s shared memory\n",
               info.num_units, info.wave_size,
               HumanBytes(info.shared_memory_bytes));
  absl::PrintF("  prefill          %s\n", PrefillLibrary(info.device));
}

}  // namespace

absl::StatusOr<int> RunDevices(const DevicesOptions& options) {
  // --backend narrows the list down; by default everything is shown.
  LAMINA_ASSIGN_OR_RETURN(const Device wanted, ChooseDevice(options));
  const int threads = Stream::Cpu(options.threads).num_threads();
  nlohmann::json list = nlohmann::json::array();
  for (const Device device : ListDevices()) {
    const bool is_cpu = device.backend == Backend::kCpu;
    if (wanted.backend != Backend::kCpu && wanted.backend != device.backend) {
      continue;
    }
    const DeviceInfo& info = GetDeviceInfo(device);
    const double bandwidth = MeasureReadBandwidth(device, threads);
    if (options.json) {
      list.push_back(ToJson(info, bandwidth));
      if (is_cpu) {
        list.back()["threads"] = threads;
        list.back()["targets"] = CpuTargetNames();
      }
      continue;
    }
    absl::PrintF("%s:%d  %s\n", Name(device.backend), device.index, info.name);
    if (is_cpu) {
      absl::PrintF("  kernels          %s (built in and usable: %s)\n",
                   CpuTargetName(), absl::StrJoin(CpuTargetNames(), ", "));
      absl::PrintF("  cores            %d, using %d threads\n", info.num_units,
                   threads);
    } else {
      PrintGpu(info);
    }
    PrintMemory(info, bandwidth);
  }
  // A GPU build on a machine without one: says why.
  const absl::Status gpu = GpuStatus();
  if (options.json) {
    nlohmann::json all = {{"devices", list}};
    if (!gpu.ok()) all["no_gpu"] = std::string(gpu.message());
    std::printf("%s\n", all.dump(2).c_str());
  } else if (!gpu.ok()) {
    absl::PrintF("%s\n", gpu.message());
  }
  return kDone;
}

}  // namespace lamina::cli
