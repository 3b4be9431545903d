#include "tests/support/test_device.h"

#include <cstdio>
#include <cstdlib>
#include <string>

#include "lamina/core/device.h"

namespace lamina::testing {
namespace {

const std::string& DeviceName() {
  static const std::string* const name = [] {
    const char* given = std::getenv("LAMINA_TEST_DEVICE");
    return new std::string(given == nullptr ? "cpu" : given);
  }();
  return *name;
}

Stream GpuTestStream(Backend backend) {
  const Device device{backend, 0};
  static const bool exists = !GetDeviceInfo(device).name.empty();
  if (!exists) {
    std::printf("no %s device: skipped\n", Name(backend));
    std::exit(kSkipped);
  }
  return Stream::Gpu(device, nullptr);
}

}  // namespace

bool OnCpu() { return DeviceName() == "cpu"; }
std::vector<int> ThreadsOfRuns() {
  if (!OnCpu()) return {1, 1};
  return {1, 2, 3, 7, 7};
}

bool OnSimt() { return DeviceName().rfind("simt", 0) == 0; }

Stream TestStream(int threads) {
  const std::string& name = DeviceName();
  if (name == "cpu") return Stream::Cpu(threads);
  if (name == "simt32" || name == "cuda") return GpuTestStream(Backend::kCuda);
  if (name == "simt64" || name == "hip") return GpuTestStream(Backend::kHip);
  std::printf(
      "LAMINA_TEST_DEVICE: given %s, want simt32, simt64, cuda or hip\n",
      name.c_str());
  std::exit(2);
}

}  // namespace lamina::testing
