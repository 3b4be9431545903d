#pragma once

// A matrix in global memory as the copies of core/device/async.cuh see it. Host
// code makes it (core/device/runtime.h) and hands it to a kernel inside the
// kernel's arguments.

namespace lamina::gpu {

struct alignas(128) TensorMap {
  char opaque[128];
};

}  // namespace lamina::gpu
