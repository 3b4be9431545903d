#pragma once

// The device that operator tests run on. The same test program checks the CPU
// kernels and, with LAMINA_TEST_DEVICE in its environment, the GPU kernels:
//
//   (unset)  the CPU, every SIMD target
//   simt32   GPU kernels run on the host, waves of 32 lanes (programs linked
//   simt64   with the _simt libraries); of 64
//   cuda     the first CUDA device; hip: the first HIP device. Memory from
//   operator new can be reached by
//            it, and operators return when they are done, so that tests need
//            not know. Without a GPU the program exits with kSkipped.

#include <vector>

#include "lamina/core/stream.h"

namespace lamina::testing {

inline constexpr int kSkipped = 77;

// Of `threads` threads where that means something.
Stream TestStream(int threads = 1);

// For TestStream(), numbers of threads that a result must not depend on. They
// mean nothing to a GPU: two runs.
std::vector<int> ThreadsOfRuns();

// True when operators run on the CPU backend.
bool OnCpu();
// True when GPU kernels run on the host: slowly.
bool OnSimt();

}  // namespace lamina::testing
