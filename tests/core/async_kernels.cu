#include "tests/core/async_kernels.h"

#include "lamina/core/device/async.cuh"
#include "lamina/core/device/intrinsics.cuh"
#include "lamina/core/launch.cuh"

namespace lamina::testing {
namespace {

using namespace gpu;  // NOLINT: the kernels are written in its vocabulary

constexpr int kUnit = 16;

__device__ void CopyBack(uint8_t* to, const uint8_t* from, int bytes) {
  for (int i = ThreadIndex(); i < bytes; i += BlockThreads()) to[i] = from[i];
}

__global__ void __launch_bounds__(32) OwnCopiesKernel(OwnCopiesArgs args) {
  uint8_t* const shared = SharedMemory<uint8_t>();
  const int lane = ThreadIndex();
  if (lane <= kUnit) {
    uint8_t* const to = shared + lane * kUnit + args.shift;
    const uint8_t* const from = args.from + lane * kUnit;
    if (args.once && lane == kUnit) {
      CopyAsync16Once(to, from);
    } else if (args.once) {
      CopyAsync16Once(to, from, lane);
    } else if (lane == kUnit) {
      CopyAsync16(to, from);
    } else {
      CopyAsync16(to, from, lane);
    }
    if (args.twice) CopyAsync16(to, from, lane);
  }
  if (args.wait) WaitAsyncCopies();
  BlockSync();
  CopyBack(args.to, shared, 17 * kUnit);
}

__global__ void __launch_bounds__(32) GroupsKernel(GroupsArgs args) {
  uint8_t* const shared = SharedMemory<uint8_t>();
  for (int group = 0; group < kGroups; ++group) {
    const int at = (group * 32 + ThreadIndex()) * kUnit;
    CopyAsync16(shared + at, args.from + at);
    CommitAsyncCopies();
  }
  WaitAsyncCopies<kPending>();
  BlockSync();
  CopyBack(args.to, shared, args.copied_back * 32 * kUnit);
  BlockSync();
  WaitAsyncCopies<0>();
}

// ---- The ring ---------------------------------------------------------------

constexpr int kProducers = kStageBytes / kUnit;

__device__ void Produce(const RingArgs& args, uint8_t* ring, Phaser* full,
                        Phaser* empty) {
  const uint8_t* const from = args.from + BlockIndex() * kStages * kStageBytes;
  const int lane = ThreadIndex() - 32;
  // NOTE: lanes that only wait could fall two phases behind and wait for ever.
  if (args.bulk && lane != 0) return;
  for (int stage = 0; stage < args.stages; ++stage) {
    const int slot = stage % kRingStages, lap = stage / kRingStages;
    if (args.await_empty) {
      Await(&empty[slot], static_cast<uint32_t>(lap + 1) % 2);
    }
    uint8_t* const to = ring + slot * kStageBytes;
    const uint8_t* const stage_from = from + stage * kStageBytes;
    if (!args.bulk) {
      CopyAsync16Once(to + lane * kUnit, stage_from + lane * kUnit);
      ArriveWhenCopied(&full[slot]);
    } else {
      if (args.expect_bytes) {
        ArriveExpecting(&full[slot], kStageBytes);
      } else {
        Arrive(&full[slot]);
      }
      CopyBulk(to, stage_from, kStageBytes / 2, &full[slot]);
      CopyBulk(to + kStageBytes / 2, stage_from + kStageBytes / 2,
               kStageBytes / 2, &full[slot]);
    }
  }
}

__device__ void Consume(const RingArgs& args, const uint8_t* ring, Phaser* full,
                        Phaser* empty) {
  const int lane = ThreadIndex();
  for (int stage = 0; stage < args.stages; ++stage) {
    const int slot = stage % kRingStages, lap = stage / kRingStages;
    if (args.await_full) {
      Await(&full[slot], (args.parity + static_cast<uint32_t>(lap)) % 2);
    }
    uint32_t sum = 0;
    for (int i = 0; i < kStageBytes / 32; ++i) {
      sum += ring[slot * kStageBytes + lane * (kStageBytes / 32) + i];
    }
    args.sums[(BlockIndex() * kStages + stage) * 32 + lane] = sum;
    Arrive(&empty[slot]);
  }
}

__global__ void __launch_bounds__(96) RingKernel(RingArgs args) {
  uint8_t* const ring = SharedMemory<uint8_t>();
  auto* const full =
      reinterpret_cast<Phaser*>(ring + kRingStages * kStageBytes);
  Phaser* const empty = full + kRingStages;
  const int producers = args.bulk ? 1 : kProducers;
  if (ThreadIndex() == 0 && args.initialise) {
    for (int slot = 0; slot < kRingStages; ++slot) {
      InitPhaser(&full[slot], producers + args.full_arrivals);
      InitPhaser(&empty[slot], 32);
    }
    if (args.publish) PublishPhasers();
  }
  BlockSync();
  if (ThreadIndex() < 32) {
    Consume(args, ring, full, empty);
  } else {
    Produce(args, ring, full, empty);
  }
}

// ---- Boxes ------------------------------------------------------------------

constexpr int kBoxRowBytes = 128;

__global__ void __launch_bounds__(64)
    BoxKernel(const __grid_constant__ BoxArgs args) {
  uint8_t* const box = SharedMemory<uint8_t>();
  const int bytes = args.rows * kBoxRowBytes;
  auto* const landed = reinterpret_cast<Phaser*>(box + bytes + kBoxRowBytes);
  if (ThreadIndex() == 0) {
    PrefetchTensorMap(&args.map);
    InitPhaser(landed, 1);
    PublishPhasers();
  }
  BlockSync();
  if (ThreadIndex() < 32 && ElectOne()) {
    ArriveExpecting(landed, bytes);
    CopyTensor2D(box + args.shift, &args.map, args.col, args.row, landed);
  }
  Await(landed, 0);
  CopyBack(args.to, box, bytes);
}

// ---- Barriers of some waves -------------------------------------------------

__global__ void __launch_bounds__(128) GroupSyncKernel(GroupSyncArgs args) {
  int* const numbers = SharedMemory<int>();
  const int thread = ThreadIndex(), wave = thread / 32;
  const int partner = (thread + 64) % 128;
  if (ElectOne()) args.elected[wave] += 1;
  int number = thread;
  for (int round = 0; round < args.rounds; ++round) {
    numbers[thread] = number;
    SyncGroup(1 + wave % 2, args.threads);
    number = numbers[partner] + round;
    SyncGroup(1 + wave % 2, args.threads);
  }
  args.sums[thread] = number;
}

__global__ void SignalsKernel(SignalsArgs args) {
  if constexpr (gpu::kHasPhasers) {
    if (gpu::ThreadIndex() != 0) return;
    const int blocks = static_cast<int>(gpu::BlockCount());
    const int block = static_cast<int>(gpu::BlockIndex());
    for (int round = 0; round < args.rounds; ++round) {
      if (round > 0) {
        gpu::AwaitSignals(args.signals + round - 1,
                          args.first + static_cast<uint32_t>(blocks),
                          round - 1);
      }
      const uint32_t* const from = args.values + round % 2 * blocks;
      uint32_t* const to = args.values + (round + 1) % 2 * blocks;
      to[block] = from[block] + from[(block + 1) % blocks];
      if (round == 1 && block == args.silent_block) continue;
      gpu::Signal(args.signals + round);
    }
  }
}

}  // namespace

gpu::Error LaunchOwnCopies(const OwnCopiesArgs& args,
                           const gpu::LaunchTarget& target) {
  return Launch(OwnCopiesKernel,
                {.blocks = 1, .threads = 32, .shared_bytes = 18 * kUnit},
                target, args);
}

gpu::Error LaunchGroups(const GroupsArgs& args,
                        const gpu::LaunchTarget& target) {
  return Launch(
      GroupsKernel,
      {.blocks = 1, .threads = 32, .shared_bytes = kGroups * 32 * kUnit},
      target, args);
}

gpu::Error LaunchRing(const RingArgs& args, int blocks,
                      const gpu::LaunchTarget& target) {
  constexpr int kPhaserBytes = 2 * kRingStages * int{sizeof(Phaser)};
  return Launch(RingKernel,
                {.blocks = blocks,
                 .threads = 32 + kProducers,
                 .shared_bytes = kRingStages * kStageBytes + kPhaserBytes},
                target, args);
}

gpu::Error LaunchSignals(const SignalsArgs& args, int blocks,
                         const gpu::LaunchTarget& target) {
  return Launch(SignalsKernel,
                {.blocks = blocks, .threads = 32, .together = true}, target,
                args);
}

gpu::Error LaunchBox(const BoxArgs& args, const gpu::LaunchTarget& target) {
  return Launch(BoxKernel,
                {.blocks = 1,
                 .threads = 64,
                 .shared_bytes = (args.rows + 2) * kBoxRowBytes},
                target, args);
}

gpu::Error LaunchGroupSync(const GroupSyncArgs& args,
                           const gpu::LaunchTarget& target) {
  return Launch(GroupSyncKernel,
                {.blocks = 1, .threads = 128, .shared_bytes = 128 * 4}, target,
                args);
}

}  // namespace lamina::testing
