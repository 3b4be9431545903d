#include <cstdio>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "apps/lamina/options.h"
#include "apps/lamina/support.h"
#include "lamina/core/device.h"
#include "lamina/core/status.h"
#include "nlohmann/json.hpp"

namespace lamina::cli {

absl::StatusOr<int> RunDevices(const DevicesOptions& options) {
  LAMINA_ASSIGN_OR_RETURN(const Stream stream, MakeStream(options));
  nlohmann::json list = nlohmann::json::array();
  for (const Device device : ListDevices()) {
    const DeviceInfo& info = GetDeviceInfo(device);
    const double bandwidth = MeasureReadBandwidth(device, stream.num_threads());
    if (options.json) {
      list.push_back({{"backend", Name(device.backend)},
                      {"index", device.index},
                      {"name", info.name},
                      {"arch", info.arch},
                      {"units", info.num_units},
                      {"threads", stream.num_threads()},
                      {"memory_bytes", info.memory_bytes},
                      {"cache_bytes", info.cache_bytes},
                      {"read_gb_per_s", bandwidth * 1e-9},
                      {"targets", CpuTargetNames()}});
      continue;
    }
    absl::PrintF("%s:%d  %s\n", Name(device.backend), device.index, info.name);
    absl::PrintF("  kernels          %s (built in and usable: %s)\n",
                 CpuTargetName(), absl::StrJoin(CpuTargetNames(), ", "));
    absl::PrintF("  cores            %d, using %d threads\n", info.num_units,
                 stream.num_threads());
    absl::PrintF("  memory           %s\n", HumanBytes(info.memory_bytes));
    absl::PrintF("  last-level cache %s\n", HumanBytes(info.cache_bytes));
    absl::PrintF("  read bandwidth   %.1f GB/s (measured)\n", bandwidth * 1e-9);
  }
  if (options.json) {
    std::printf("%s\n", nlohmann::json({{"devices", list}}).dump(2).c_str());
  }
  return kDone;
}

}  // namespace lamina::cli
