#pragma once

// CUDA's part of core/device/async.cuh.

#include <cstdint>

#include "lamina/core/device/tensor_map.h"

namespace lamina::gpu {

inline constexpr bool kHasAsync = true;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
inline constexpr bool kHasPhasers = false;
#else
inline constexpr bool kHasPhasers = true;
#endif

struct alignas(8) Phaser {
  uint64_t state;
};

namespace async_internal {
__device__ inline uint32_t SharedAddress(const void* shared) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(shared));
}
// NOTE: not volatile: one policy serves all copies of a kernel.
__device__ inline uint64_t EvictFirst() {
  unsigned long long policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}
// NOTE: ptxas 13.0 folds the sum of a lane's and a uniform address into a copy
// that also has a policy, which makes an illegal instruction. It does not see
// through this identity.
__device__ inline uint32_t UnfoldedAddress(const void* shared) {
  uint32_t address = SharedAddress(shared);
  asm volatile("prmt.b32 %0, %0, 0, 0x3210;" : "+r"(address));
  return address;
}
}  // namespace async_internal

// ---- Own copies -------------------------------------------------------------

__device__ inline void CopyAsync16(void* shared, const void* global) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(
                   async_internal::SharedAddress(shared)),
               "l"(__cvta_generic_to_global(global))
               : "memory");
}
__device__ inline void CopyAsync16(void* shared, const void* global,
                                   int bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(
                   async_internal::SharedAddress(shared)),
               "l"(__cvta_generic_to_global(global)), "r"(bytes)
               : "memory");
}
__device__ inline void CopyAsync16Once(void* shared, const void* global) {
  asm volatile(
      "cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2;" ::"r"(
          async_internal::UnfoldedAddress(shared)),
      "l"(__cvta_generic_to_global(global)), "l"(async_internal::EvictFirst())
      : "memory");
}
__device__ inline void CopyAsync16Once(void* shared, const void* global,
                                       int bytes) {
  asm volatile(
      "cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2, %3;" ::"r"(
          async_internal::UnfoldedAddress(shared)),
      "l"(__cvta_generic_to_global(global)), "r"(bytes),
      "l"(async_internal::EvictFirst())
      : "memory");
}
__device__ inline void WaitAsyncCopies() {
  asm volatile("cp.async.wait_all;" ::: "memory");
}
__device__ inline void CommitAsyncCopies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
template <int kPending>
__device__ inline void WaitAsyncCopies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

// ---- Ahead of time ----------------------------------------------------------

__device__ inline void PrefetchBytes(const void* global, int bytes) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(
                   __cvta_generic_to_global(global)),
               "r"(bytes)
               : "memory");
#endif
}
__device__ inline int32_t LoadAhead(const int32_t* p) {
  // NOTE: not through L1, where it would stay.
  return __ldcg(p);
}

// ---- Barriers of whole waves ------------------------------------------------

__device__ inline void SyncGroup(int barrier, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
// ---- Phasers ----------------------------------------------------------------

__device__ inline void InitPhaser(Phaser* phaser, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(
                   async_internal::SharedAddress(phaser)),
               "r"(arrivals)
               : "memory");
}
__device__ inline void PublishPhasers() {
  asm volatile(
      "fence.mbarrier_init.release.cluster;\n"
      "fence.proxy.async.shared::cta;" ::
          : "memory");
}
__device__ inline void Arrive(Phaser* phaser) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(
                   async_internal::SharedAddress(phaser))
               : "memory");
}
__device__ inline void Arrive(Phaser* phaser, int count) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0], %1;" ::"r"(
                   async_internal::SharedAddress(phaser)),
               "r"(count)
               : "memory");
}
__device__ inline void ArriveExpecting(Phaser* phaser, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(
                   async_internal::SharedAddress(phaser)),
               "r"(bytes)
               : "memory");
}
// NOTE: noinc: the arrival is one of those that InitPhaser has counted.
__device__ inline void ArriveWhenCopied(Phaser* phaser) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(
                   async_internal::SharedAddress(phaser))
               : "memory");
}
__device__ inline void Await(Phaser* phaser, uint32_t parity) {
  const uint32_t address = async_internal::SharedAddress(phaser);
  uint32_t done;
  do {
    asm volatile(
        "{\n"
        ".reg .pred done;\n"
        "mbarrier.try_wait.parity.shared::cta.b64 done, [%1], %2;\n"
        "selp.u32 %0, 1, 0, done;\n"
        "}"
        : "=r"(done)
        : "r"(address), "r"(parity)
        : "memory");
  } while (done == 0);
}

// ---- Bulk copies ------------------------------------------------------------

__device__ inline void CopyTensor2D(void* shared, const TensorMap* map, int col,
                                    int row, Phaser* phaser) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global"
      ".mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(
          async_internal::SharedAddress(shared)),
      "l"(map), "r"(col), "r"(row), "r"(async_internal::SharedAddress(phaser))
      : "memory");
}
__device__ inline void PrefetchTensorMap(const TensorMap* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}
__device__ inline void CopyBulk(void* shared, const void* global, int bytes,
                                Phaser* phaser) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global"
      ".mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
          async_internal::SharedAddress(shared)),
      "l"(__cvta_generic_to_global(global)), "r"(bytes),
      "r"(async_internal::SharedAddress(phaser))
      : "memory");
}

// ---- To other blocks --------------------------------------------------------

__device__ inline void SendAsync(int64_t value, void* shared, int rank,
                                 Phaser* phaser) {
  asm volatile(
      "{\n"
      ".reg .u32 to, phaser;\n"
      "mapa.shared::cluster.u32 to, %0, %2;\n"
      "mapa.shared::cluster.u32 phaser, %1, %2;\n"
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.b64 "
      "[to], %3, [phaser];\n"
      "}" ::"r"(async_internal::SharedAddress(shared)),
      "r"(async_internal::SharedAddress(phaser)), "r"(rank), "l"(value)
      : "memory");
}

// ---- Order, threads ---------------------------------------------------------

__device__ inline void PublishToAsync() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
__device__ inline void PublishToAsyncEverywhere() {
  asm volatile("fence.proxy.async;" ::: "memory");
}
__device__ inline void Signal(uint32_t* counter) {
  asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(
                   __cvta_generic_to_global(counter))
               : "memory");
}
__device__ inline uint32_t SignalAndCount(uint32_t* counter) {
  uint32_t before;
  asm volatile("atom.add.acq_rel.gpu.global.u32 %0, [%1], 1;"
               : "=r"(before)
               : "l"(__cvta_generic_to_global(counter))
               : "memory");
  return before;
}
__device__ inline void AwaitSignals(const uint32_t* counter, uint32_t wanted,
                                    int) {
  // NOTE: some ten seconds: a signal that is lost becomes an error.
  constexpr long long kPatience = 1LL << 34;
  const long long begin = clock64();
  for (;;) {
    uint32_t count;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];"
                 : "=r"(count)
                 : "l"(__cvta_generic_to_global(counter))
                 : "memory");
    if (static_cast<int>(count - wanted) >= 0) return;
    if (clock64() - begin > kPatience) __trap();
  }
}
__device__ inline bool ElectOne() {
  uint32_t elected;
  asm volatile(
      "{\n"
      ".reg .pred elected;\n"
      "elect.sync _|elected, 0xffffffff;\n"
      "selp.u32 %0, 1, 0, elected;\n"
      "}"
      : "=r"(elected));
  return elected != 0;
}
#else
__device__ inline void InitPhaser(Phaser*, int) { __trap(); }
__device__ inline void PublishPhasers() { __trap(); }
__device__ inline void Arrive(Phaser*, int = 1) { __trap(); }
__device__ inline void ArriveExpecting(Phaser*, int) { __trap(); }
__device__ inline void ArriveWhenCopied(Phaser*) { __trap(); }
__device__ inline void Await(Phaser*, uint32_t) { __trap(); }
__device__ inline void CopyTensor2D(void*, const TensorMap*, int, int,
                                    Phaser*) {
  __trap();
}
__device__ inline void PrefetchTensorMap(const TensorMap*) { __trap(); }
__device__ inline void CopyBulk(void*, const void*, int, Phaser*) { __trap(); }
__device__ inline void SendAsync(int64_t, void*, int, Phaser*) { __trap(); }
__device__ inline void PublishToAsync() { __trap(); }
__device__ inline void PublishToAsyncEverywhere() { __trap(); }
__device__ inline void Signal(uint32_t*) { __trap(); }
__device__ inline uint32_t SignalAndCount(uint32_t*) {
  __trap();
  return 0;
}
__device__ inline void AwaitSignals(const uint32_t*, uint32_t, int) {
  __trap();
}
__device__ inline bool ElectOne() { return threadIdx.x % 32 == 0; }
#endif

}  // namespace lamina::gpu
