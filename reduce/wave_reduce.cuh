#pragma once

// Reductions over adjacent lanes of a wave. Every lane of the wave takes part
// and gets the result of its group.

#include "lamina/core/octet.cuh"

namespace lamina::gpu {

// combine over groups of `lanes` adjacent lanes; a power of two up to kWave.
template <int kWave, class T, class Combine>
__device__ inline T WaveReduce(T value, int lanes, Combine&& combine) {
  for (int mask = 1; mask < lanes; mask *= 2) {
    value = combine(value, ExchangeHalves<kWave>(value, mask));
  }
  return value;
}

// Canonical sum of the chunk of 256 columns that 32 adjacent lanes own, from
// the tree sum of each lane's octet. Fewer `lanes` (a power of two) do when
// the others own nothing.
template <int kWave>
__device__ inline float ChunkSum(float octet_sum, int lanes = kChunkLanes) {
  // NOTE: x + y = y + x, so that the exchange gives both lanes the bits of the
  // tree over neighbours.
  return WaveReduce<kWave>(octet_sum, lanes,
                           [](float a, float b) { return a + b; });
}

}  // namespace lamina::gpu
