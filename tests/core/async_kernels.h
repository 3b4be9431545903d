#pragma once

// Kernels that are the tests of core/device/async.cuh.

#include <cstdint>

#include "lamina/core/device/tensor_map.h"
#include "lamina/core/launch.h"

namespace lamina::testing {

// `bytes` 0 to 16 of 17 units of 16 bytes, the rest zero.
struct OwnCopiesArgs {
  const uint8_t* from = nullptr;
  uint8_t* to = nullptr;
  bool once = false;
  bool wait = true;
  bool twice = false;  // the same copy again, without a wait
  int shift = 0;       // bytes that the places in shared memory are off
};
gpu::Error LaunchOwnCopies(const OwnCopiesArgs& args,
                           const gpu::LaunchTarget& target);

// Four groups of one unit a lane; after the wait for all but `kPending` of
// them, the others are copied back.
inline constexpr int kGroups = 4;
inline constexpr int kPending = 2;
struct GroupsArgs {
  const uint8_t* from = nullptr;
  uint8_t* to = nullptr;
  int copied_back = kGroups - kPending;
};
gpu::Error LaunchGroups(const GroupsArgs& args,
                        const gpu::LaunchTarget& target);

// Blocks that run together pass a sum on, block by block, in `rounds` stages:
// each stage every block adds what its neighbour has written in the last one.
struct SignalsArgs {
  uint32_t* values = nullptr;   // [2][blocks]
  uint32_t* signals = nullptr;  // [rounds], 0 or any number
  uint32_t first = 0;           // that number
  int rounds = 0;
  int silent_block = -1;  // does not signal stage 1
};
gpu::Error LaunchSignals(const SignalsArgs& args, int blocks,
                         const gpu::LaunchTarget& target);

// Two waves fill a ring of stages, a third adds up 32 bytes a lane and stage.
inline constexpr int kRingStages = 3;
inline constexpr int kStageBytes = 1024;
inline constexpr int kStages = 10;  // of a block, at most
struct RingArgs {
  const uint8_t* from = nullptr;  // blocks * kStages * kStageBytes
  uint32_t* sums = nullptr;       // blocks * kStages * 32
  bool bulk = false;              // by CopyBulk
  int stages = kStages;
  // What can be wrong.
  bool await_full = true;
  bool await_empty = true;
  bool initialise = true;
  bool publish = true;
  bool expect_bytes = true;
  int full_arrivals = 0;  // more than there are
  uint32_t parity = 0;    // the consumer's first
};
gpu::Error LaunchRing(const RingArgs& args, int blocks,
                      const gpu::LaunchTarget& target);

struct BoxArgs {
  gpu::TensorMap map = {};
  int col = 0;
  int row = 0;
  int rows = 8;  // of the box
  uint8_t* to = nullptr;
  int shift = 0;  // bytes that the box in shared memory is off
};
gpu::Error LaunchBox(const BoxArgs& args, const gpu::LaunchTarget& target);

// Four waves. `elected` counts, wave by wave, the lanes that ElectOne chose;
// waves 0 and 2 hand numbers to each other, as do 1 and 3, `rounds` times.
struct GroupSyncArgs {
  int* elected = nullptr;  // 4
  int* sums = nullptr;     // of each lane
  int rounds = 20;
  int threads = 64;  // that the barriers are for
};
gpu::Error LaunchGroupSync(const GroupSyncArgs& args,
                           const gpu::LaunchTarget& target);

}  // namespace lamina::testing
