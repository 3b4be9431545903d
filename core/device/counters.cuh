#pragma once

// What kernels need whose lanes count into shared memory and go on as the
// counts say, in namespace lamina::gpu; a part of the vocabulary
// (core/device/intrinsics.cuh).
//
// AddShared(pointer, value): adds to a uint32_t of the block's shared memory
//           that many lanes add to at once; returns what was there.
// Uniform(condition): a condition that all lanes of the wave agree on, which
//           the compiler then knows: what lanes exchange behind it is there.

#if defined(LAMINA_SIMT)
#include "lamina/core/device/simt/counters.cuh"
#elif defined(__HIP__)
#include "lamina/core/device/hip/counters.cuh"
#else
#include "lamina/core/device/cuda/counters.cuh"
#endif
