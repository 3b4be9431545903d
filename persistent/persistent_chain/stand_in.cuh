#pragma once

// Some threads of a block that stays, for a block of a launch: core/block.cuh.

#include <cstdint>

#include "lamina/core/device/async.cuh"
#include "lamina/core/device/intrinsics.cuh"
#include "lamina/persistent/persistent_chain/chain_args.h"

namespace lamina::persistent_internal {

// What a stage waits for.
struct Predecessor {
  const uint32_t* signals = nullptr;  // null: nothing
  uint32_t wanted = 0;
  int stage = 0;

  __device__ void Await() const {
    if (signals != nullptr) gpu::AwaitSignals(signals, wanted, stage);
  }
};

// Barriers of a block, beside those of ring_gemm.cuh.
inline constexpr int kStandInBarrier = 2;
inline constexpr int kStageBarrier = 3;

// The first kStandInThreads threads of the block.
struct StandIn {
  int64_t index = 0;
  int64_t count = 0;
  void* shared = nullptr;
  Predecessor predecessor = {};

  __device__ int64_t Index() const { return index; }
  __device__ int64_t Count() const { return count; }
  __device__ static int Threads() { return kStandInThreads; }
  __device__ static void Sync() {
    gpu::SyncGroup(kStandInBarrier, kStandInThreads);
  }
  template <class T>
  __device__ T* Shared() const {
    return static_cast<T*>(shared);
  }
  __device__ static void AllowDependents() {}
  __device__ void WaitForPredecessor() const {
    if (gpu::ThreadIndex() == 0) predecessor.Await();
    Sync();
  }
};

// One that has waited: for bodies that some threads leave before they would.
struct ReadyStandIn : StandIn {
  __device__ static void WaitForPredecessor() {}
};

}  // namespace lamina::persistent_internal
