#pragma once

// What host code and kernel launchers exchange: plain values, so that neither
// has to include the other's world.

#include <any>
#include <cstdint>
#include <vector>

namespace lamina::gpu {

struct LaunchShape {
  int64_t blocks = 0;  // a multiple of cluster_blocks, at most MaxBlocks()
  int threads = 0;     // a block; a multiple of the wave size
  int cluster_blocks = 1;
  int64_t shared_bytes = 0;  // dynamic shared memory a block
  // All blocks run at the same time, or there is an error.
  bool together = false;
};
// CUDA counts blocks in 31 bits, HIP a grid's threads in 32.
inline constexpr int64_t kMaxBlocks = (int64_t{1} << 31) - 1;
inline constexpr int64_t kMaxGridThreads = (int64_t{1} << 32) - 1;
constexpr int64_t MaxBlocks(int threads, int64_t most = kMaxBlocks) {
  const int64_t blocks = kMaxGridThreads / threads;
  return blocks < most ? blocks : most;
}

// A launch that was written down instead of being made: the kernel's arguments
// say which operator's it was.
struct RecordedLaunch {
  std::any args;
  LaunchShape shape;
};
struct Recording {
  std::vector<RecordedLaunch> launches;
};

// Where a kernel goes.
struct LaunchTarget {
  void* stream = nullptr;  // the vendor's stream
  int device = 0;
  int wave_size = 32;
  bool overlap = false;            // Stream::overlap()
  Recording* recording = nullptr;  // Stream::recording()
};

// The vendor's error code, 0 for none; see ToStatus in core/device/runtime.h.
struct [[nodiscard]] Error {
  int code = 0;
  constexpr bool ok() const { return code == 0; }
};
// No kernel was compiled for what the host chose: a defect of the policy.
inline constexpr Error kNoKernel{-1};

}  // namespace lamina::gpu
