#include "lamina/core/stream.h"

#include <algorithm>

namespace lamina {

Stream Stream::Cpu(int threads) {
  const int usable = GetDeviceInfo(Device{}).num_units;
  return Stream(Device{}, nullptr, threads > 0 ? threads : std::max(1, usable));
}

}  // namespace lamina
