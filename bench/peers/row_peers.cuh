#pragma once

// What the peers share: plain CUDA, 32 lanes a warp.

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <cstdint>

#include "lamina/core/device/intrinsics.cuh"
#include "lamina/core/launch.cuh"

namespace lamina::bench {

constexpr int kCubThreads = 256;

__device__ inline uint8_t ToCode(float v) {
  return __nv_cvt_float_to_fp8(v, __NV_SATFINITE, __NV_E4M3);
}

struct Add {
  __device__ float operator()(float a, float b) const { return a + b; }
};
struct Max {
  __device__ float operator()(float a, float b) const { return fmaxf(a, b); }
};

// Of the values of a block, for every thread; 0 is neutral.
template <class Operation>
__device__ inline float BlockReduce(float value, Operation operation) {
  __shared__ float partial[32];
  for (int lane = 16; lane > 0; lane /= 2) {
    value = operation(value, __shfl_xor_sync(0xffffffffu, value, lane));
  }
  if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = value;
  __syncthreads();
  value = threadIdx.x % 32 < blockDim.x / 32 ? partial[threadIdx.x % 32] : 0.0f;
  for (int lane = 16; lane > 0; lane /= 2) {
    value = operation(value, __shfl_xor_sync(0xffffffffu, value, lane));
  }
  return value;
}

// Threads of a block that has a row of `items`: many when there are few rows.
inline int RowThreads(int64_t rows, int64_t items) {
  const int64_t most = rows < 256 ? 1024 : 256;
  const int64_t wanted = (items + 31) / 32 * 32;
  return static_cast<int>(wanted < most ? wanted : most);
}

}  // namespace lamina::bench
