#pragma once

// Host SIMT's model of the copies and phasers of core/device/async.cuh.
//
// A copy poisons its destination when it starts and lands as late as it may: an
// own copy when its lane waits for it or when the arrival that follows it is
// due, a bulk copy when no lane can run. Faults that end the program: two
// copies under way to one place, addresses or sizes that the hardware refuses,
// phasers that are used before InitPhaser or, by other lanes, before
// PublishPhasers, or that something has written over, more arrivals than a
// phase has, a phase that lanes wait for and that will not end.
//
// Tensor cores (matrix.h) see own copies and stores only where they have been
// published: own copies by the lane that made and waited for them, or by the
// wave that reads, after they landed; stores by any lane since the last read.

#include <cstdint>

#include "lamina/core/device/tensor_map.h"

namespace lamina::simt {

void CopyAsync16(void* shared, const void* global, int bytes);
void WaitAsyncCopies();
void CommitAsyncCopies();
void WaitAsyncCopies(int pending_groups);

void InitPhaser(uint64_t* phaser, int arrivals);
void PublishPhasers();
void Arrive(uint64_t* phaser, int expected_bytes = 0);
void ArriveWhenCopied(uint64_t* phaser);

uint32_t Signal(uint32_t* counter);
void AwaitSignals(const uint32_t* counter, uint32_t wanted, int stage);
void Await(uint64_t* phaser, uint32_t parity);

void CopyBulk(void* shared, const void* global, int bytes, uint64_t* phaser);
void SendAsync(int64_t value, void* shared, int rank, uint64_t* phaser);
// Reads the bytes, so that tools see where they are.
void PrefetchBytes(const void* global, int bytes);
void CopyTensor2D(void* shared, const gpu::TensorMap* map, int col, int row,
                  uint64_t* phaser);

void PublishToAsync();

// Where the 16 bytes at `offset` of 128-byte swizzled shared memory are.
constexpr uint32_t Swizzled128(uint32_t offset) {
  return offset ^ (offset >> 7 & 7) << 4;
}

// ---- For matrix.cc. ---------------------------------------------------------

// The 16 bytes at `offset` as the tensor cores see them for the wave that runs.
void ReadForProducts(uint32_t offset, uint8_t* bytes);

}  // namespace lamina::simt
