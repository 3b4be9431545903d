#pragma once

// Host SIMT's part of core/device/async.cuh.

#include <cstdint>

#include "lamina/core/device/simt/async.h"
#include "lamina/core/device/simt/executor.h"
#include "lamina/core/device/tensor_map.h"

namespace lamina::gpu {

inline constexpr bool kHasAsync = true;
inline constexpr bool kHasPhasers = true;

struct alignas(8) Phaser {
  uint64_t state;
};

inline void CopyAsync16(void* shared, const void* global, int bytes = 16) {
  simt::CopyAsync16(shared, global, bytes);
}
inline void CopyAsync16Once(void* shared, const void* global, int bytes = 16) {
  simt::CopyAsync16(shared, global, bytes);
}
inline void WaitAsyncCopies() { simt::WaitAsyncCopies(); }
inline void CommitAsyncCopies() { simt::CommitAsyncCopies(); }
template <int kPending>
inline void WaitAsyncCopies() {
  simt::WaitAsyncCopies(kPending);
}

inline void SendAsync(int64_t value, void* shared, int rank, Phaser* phaser) {
  simt::SendAsync(value, shared, rank, &phaser->state);
}
inline void PrefetchBytes(const void* global, int bytes) {
  simt::PrefetchBytes(global, bytes);
}
inline int32_t LoadAhead(const int32_t* p) { return *p; }

inline void InitPhaser(Phaser* phaser, int arrivals) {
  simt::InitPhaser(&phaser->state, arrivals);
}
inline void PublishPhasers() { simt::PublishPhasers(); }
inline void Arrive(Phaser* phaser, int count = 1) {
  for (; count > 0; --count) simt::Arrive(&phaser->state);
}
inline void ArriveExpecting(Phaser* phaser, int bytes) {
  simt::Arrive(&phaser->state, bytes);
}
inline void ArriveWhenCopied(Phaser* phaser) {
  simt::ArriveWhenCopied(&phaser->state);
}
inline void Await(Phaser* phaser, uint32_t parity) {
  simt::Await(&phaser->state, parity);
}

inline void CopyTensor2D(void* shared, const TensorMap* map, int col, int row,
                         Phaser* phaser) {
  simt::CopyTensor2D(shared, map, col, row, &phaser->state);
}
inline void PrefetchTensorMap(const TensorMap*) {}
inline void CopyBulk(void* shared, const void* global, int bytes,
                     Phaser* phaser) {
  simt::CopyBulk(shared, global, bytes, &phaser->state);
}

inline void PublishToAsync() { simt::PublishToAsync(); }
inline void PublishToAsyncEverywhere() { simt::PublishToAsync(); }
inline void Signal(uint32_t* counter) { simt::Signal(counter); }
inline uint32_t SignalAndCount(uint32_t* counter) {
  return simt::Signal(counter);
}
inline void AwaitSignals(const uint32_t* counter, uint32_t wanted, int stage) {
  simt::AwaitSignals(counter, wanted, stage);
}
inline bool ElectOne() { return simt::ElectOne(); }
inline void SyncGroup(int barrier, int threads) {
  simt::SyncGroup(barrier, threads);
}

}  // namespace lamina::gpu
