#pragma once

// The threads that run a kernel's body: a block of a launch, or some threads of
// a block that stays and takes the place of many (persistent/). Bodies that
// both run have it as a template argument:
//
//   Index, Count       of the block, and how many there are
//   Threads            of the block; gpu::ThreadIndex() is the thread's
//   Sync               a barrier of these threads
//   Shared<T>          their shared memory
//   AllowDependents, WaitForPredecessor

#include <cstdint>

#include "lamina/core/device/intrinsics.cuh"

namespace lamina::gpu {

struct LaunchedBlock {
  __device__ static int64_t Index() { return BlockIndex(); }
  __device__ static int64_t Count() { return BlockCount(); }
  __device__ static int Threads() { return BlockThreads(); }
  __device__ static void Sync() { BlockSync(); }
  template <class T>
  __device__ static T* Shared() {
    return SharedMemory<T>();
  }
  __device__ static void AllowDependents() { gpu::AllowDependents(); }
  __device__ static void WaitForPredecessor() { gpu::WaitForPredecessor(); }
};

}  // namespace lamina::gpu
