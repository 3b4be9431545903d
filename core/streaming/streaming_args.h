#pragma once

// The plain values of core/streaming/streaming.h.

#include <cstdint>

#include "lamina/core/launch.h"

namespace lamina {

// The arrays that a unit touches. Supported: those of kStreamingTraffic.
struct StreamingTraffic {
  int reads = 1;          // arrays read, 16 bytes a unit each
  bool writes16 = false;  // 16 bytes a unit
  bool writes8 = false;   // 8 bytes a unit

  constexpr int64_t unit_bytes() const {
    return 16 * reads + (writes16 ? 16 : 0) + (writes8 ? 8 : 0);
  }
  friend constexpr bool operator==(const StreamingTraffic&,
                                   const StreamingTraffic&) = default;
};
inline constexpr StreamingTraffic kStreamingTraffic[] = {
    {1, false, false}, {1, true, false}, {1, false, true}, {1, true, true},
    {2, true, false},  {2, false, true}, {2, true, true}};

struct StreamingArgs {
  const void* read[2] = {};
  void* write16 = nullptr;  // read[0], read[1] or other memory
  void* write8 = nullptr;
  void* sink = nullptr;  // 16 bytes that may be written when nothing else is
  int64_t units = 0;     // 0: an empty kernel
};

// How the units are dealt to threads: thread t of the grid takes the units
// t + i * threads of the grid, `unroll` of them in flight.
struct StreamingPlan {
  int threads = 256;
  int64_t blocks = 1;
  int unroll = 1;  // 1, 4 or 8
};
inline constexpr int kStreamingUnroll[] = {1, 4, 8};

namespace gpu {
Error LaunchStreaming(const StreamingTraffic& traffic,
                      const StreamingArgs& args, const StreamingPlan& plan,
                      const LaunchTarget& target);
}  // namespace gpu

}  // namespace lamina
