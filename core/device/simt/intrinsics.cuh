#pragma once

// Host SIMT's part of core/device/intrinsics.cuh. Exact where the GPUs are
// exact; the approximations are exact here.

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <type_traits>

#include "lamina/core/device/simt/executor.h"
#include "lamina/core/dtype.h"
#include "lamina/core/float16.h"

#define __global__
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __grid_constant__

namespace lamina::gpu {

inline constexpr int kWaveSizes[] = {32, 64};
template <int kWave>
inline constexpr bool kWaveRunsHere = true;

inline constexpr bool kClusterChoices[] = {false, true};

// RowArch::wide_lanes.
inline constexpr int kWideLanes = 1024;

constexpr int BlocksAUnit(int blocks, int) { return blocks; }

struct alignas(16) Bits128 {
  uint32_t word[4];
};
struct alignas(8) Bits64 {
  uint32_t word[2];
};

inline int ThreadIndex() { return simt::ThreadIndex(); }
inline int UniformWave() { return simt::ThreadIndex() / simt::WaveSize(); }
inline int BlockThreads() { return simt::BlockThreads(); }
inline int64_t BlockIndex() { return simt::BlockIndex(); }
inline int64_t BlockCount() { return simt::BlockCount(); }

inline void WaveSync() { simt::ShuffleXor(0, 1); }
inline void BlockSync() { simt::BlockSync(); }

template <int kRegisters>
inline void GiveRegisters() {}
template <int kRegisters>
inline void TakeRegisters() {}

inline int ClusterRank() { return simt::ClusterRank(); }
inline int ClusterBlocks() { return simt::ClusterBlocks(); }
inline int64_t ClusterIndex() { return BlockIndex() / ClusterBlocks(); }
inline void ClusterArrive() {}
inline void ClusterArriveRelaxed() {}
inline void ClusterWait() { simt::ClusterSync(); }
template <class T>
inline void StoreShared(T* pointer, int rank, T value) {
  *static_cast<T*>(simt::MapShared(pointer, rank)) = value;
}

// NOTE: as the hardware does it: waves of 32 exchange with lane ^ mask, waves
// of 64 mirror the group, which is the same where a half holds one value.
template <int kWave, class T>
inline T ExchangeHalves(T value, int mask) {
  static_assert(sizeof(T) <= sizeof(uint64_t), "one register a lane");
  if (simt::WaveSize() != kWave) std::abort();
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  bits = simt::ShuffleXor(bits, kWave == 64 ? 2 * mask - 1 : mask);
  std::memcpy(&value, &bits, sizeof(T));
  return value;
}

template <int kWave>
inline float WaveMax(float value) {
  if (!(value >= 0.0f)) std::abort();
  for (int mask = 1; mask < kWave; mask *= 2) {
    value = std::fmax(value, ExchangeHalves<kWave>(value, mask));
  }
  return value;
}

template <class T>
inline T* SharedMemory() {
  return static_cast<T*>(simt::SharedMemory());
}

inline void AllowDependents() {}
inline void WaitForPredecessor() {}

inline void Settle(float&) {}
inline void Settle(int&) {}
inline void Settle(uint64_t&) {}

namespace intrinsics_internal {
// NOTE: a GPU faults on an address that is not a multiple of the access.
template <class Bits, class Pointer>
inline Pointer* Aligned(Pointer* p) {
  if (reinterpret_cast<uintptr_t>(p) % sizeof(Bits) != 0) std::abort();
  return p;
}
template <class Bits>
inline Bits Load(const void* p) {
  Bits bits;
  std::memcpy(&bits, Aligned<Bits>(p), sizeof(Bits));
  return bits;
}
template <class Bits>
inline void Store(const Bits& bits, void* p) {
  std::memcpy(Aligned<Bits>(p), &bits, sizeof(Bits));
}
}  // namespace intrinsics_internal

inline Bits128 Load128(const void* p) {
  return intrinsics_internal::Load<Bits128>(p);
}
inline Bits128 Load128Constant(const void* p) { return Load128(p); }
inline Bits128 Load128Streaming(const void* p) { return Load128(p); }
inline Bits64 Load64(const void* p) {
  return intrinsics_internal::Load<Bits64>(p);
}
inline void Store128(Bits128 bits, void* p) {
  intrinsics_internal::Store(bits, p);
}
inline void Store128Streaming(Bits128 bits, void* p) { Store128(bits, p); }
inline void Store64(Bits64 bits, void* p) {
  intrinsics_internal::Store(bits, p);
}
inline void Store8(uint8_t bits, void* p) { *static_cast<uint8_t*>(p) = bits; }
inline void Store32(uint32_t bits, void* p) {
  intrinsics_internal::Store(bits, p);
}
inline void Store64Streaming(Bits64 bits, void* p) { Store64(bits, p); }

inline float SquareRoot(float x) { return std::sqrt(x); }
inline float Divide(float a, float b) { return a / b; }
inline float MultiplyWhereNegative(float x, float factor, float v) {
  return v < 0.0f ? x * factor : x;
}
inline float ApproximateReciprocal(float x) { return 1.0f / x; }
inline float ApproximateReciprocalSquareRoot(float x) {
  return 1.0f / std::sqrt(x);
}
inline float ApproximateExp2(float x) { return std::exp2(x); }

inline uint32_t PackBf16(float a, float b) {
  return FromFloat<BF16>(a).bits |
         static_cast<uint32_t>(FromFloat<BF16>(b).bits) << 16;
}
inline uint32_t PackF16(float a, float b) {
  return FromFloat<F16>(a).bits | static_cast<uint32_t>(FromFloat<F16>(b).bits)
                                      << 16;
}
inline void UnpackF16(uint32_t pair, float& a, float& b) {
  a = ToFloat(F16{static_cast<uint16_t>(pair & 0xffffu)});
  b = ToFloat(F16{static_cast<uint16_t>(pair >> 16)});
}

namespace intrinsics_internal {
template <class F8>
inline float Decode(uint32_t code) {
  if constexpr (std::is_same_v<F8, F8E5M2>) {
    return ToFloat(F16{static_cast<uint16_t>(code << 8)});
  }
  const uint32_t magnitude = code & 0x7fu;
  const float value = magnitude == 0x7fu
                          ? std::bit_cast<float>(0x7fc00000u)
                          : std::bit_cast<float>(magnitude << 20) * 0x1p120f;
  return (code & 0x80u) != 0 ? -value : value;
}
}  // namespace intrinsics_internal
template <class F8>
inline uint32_t WidenToF16(uint16_t codes) {
  return PackF16(intrinsics_internal::Decode<F8>(codes & 0xffu),
                 intrinsics_internal::Decode<F8>(codes >> 8));
}
template <class F8>
inline uint32_t WidenToBf16(uint16_t codes) {
  return PackBf16(intrinsics_internal::Decode<F8>(codes & 0xffu),
                  intrinsics_internal::Decode<F8>(codes >> 8));
}
inline void WidenFourE4M3(uint32_t codes, uint32_t& first, uint32_t& second) {
  first = WidenToF16<F8E4M3Fn>(static_cast<uint16_t>(codes));
  second = WidenToF16<F8E4M3Fn>(static_cast<uint16_t>(codes >> 16));
}
inline uint32_t SwapMiddleBytes(uint32_t bytes) {
  return (bytes & 0xff0000ffu) | (bytes & 0xff00u) << 8 |
         (bytes >> 8 & 0xff00u);
}
inline uint32_t WidenE4M3(uint16_t codes) {
  return WidenToBf16<F8E4M3Fn>(codes);
}

// No FP8 instructions: quant/fp8.cuh converts in software.
using NativeF8 = void;
inline uint32_t PackNativeF8(float, float, float, float) { std::abort(); }
inline void UnpackNativeF8(uint32_t, float (&)[4]) { std::abort(); }

}  // namespace lamina::gpu
