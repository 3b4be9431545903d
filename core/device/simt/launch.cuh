#pragma once

// Host SIMT's part of core/launch.cuh.

#include "lamina/core/device/simt/executor.h"
#include "lamina/core/launch.h"

namespace lamina::gpu {

// Few, so that tests see rows in several launches.
inline constexpr int64_t kGridBlocks = 64;

template <class Args>
Error Enqueue(void (*kernel)(Args), const LaunchShape& shape,
              const LaunchTarget& target, const Args& args) {
  struct Call {
    void (*kernel)(Args);
    Args args;
  };
  const Call call{kernel, args};
  simt::Run(
      {.shape = shape, .wave_size = target.wave_size},
      [](const void* p) {
        const Call& c = *static_cast<const Call*>(p);
        c.kernel(c.args);
      },
      &call);
  return {};
}

}  // namespace lamina::gpu
