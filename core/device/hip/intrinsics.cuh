#pragma once

// HIP's part of core/device/intrinsics.cuh, on the compiler's builtins alone:
// no header and no bitcode of a ROCm release is needed for device code.
//
// Waves have 64 lanes on CDNA (gfx9), 32 on RDNA. Barriers and fences are
// builtins that the compiler sees; exchanges are DPP moves, which cost an
// instruction, where an exchange through the LDS unit costs its latency.

#include <bit>
#include <cstdint>
// NOTE: the compiler's own <new>, which other headers include, needs malloc.
#include <cstdlib>  // IWYU pragma: keep

#include "lamina/core/dtype.h"

// The language's keywords, as attributes.
#if !defined(__global__)
#define __host__ __attribute__((host))
#define __device__ __attribute__((device))
#define __global__ __attribute__((global))
#define __shared__ __attribute__((shared))
#define __forceinline__ inline __attribute__((always_inline))
#endif
#undef __launch_bounds__
// NOTE: the blocks a unit that follow in CUDA are its registers' concern.
#define __launch_bounds__(threads, ...) \
  __attribute__((amdgpu_flat_work_group_size(1, threads)))

namespace lamina::gpu {

// The wave sizes that kernels are compiled for, and the one of this pass of the
// compiler: the kernels of the other are empty in it.
inline constexpr int kWaveSizes[] = {32, 64};
#if !defined(__HIP_DEVICE_COMPILE__)
template <int kWave>
inline constexpr bool kWaveRunsHere = true;
#elif defined(__GFX9__)
template <int kWave>
inline constexpr bool kWaveRunsHere = kWave == 64;
#else
template <int kWave>
inline constexpr bool kWaveRunsHere = kWave == 32;
#endif

// There are no clusters.
inline constexpr bool kClusterChoices[] = {false};

// RowArch::wide_lanes.
inline constexpr int kWideLanes = 1024;

// NOTE: HIP's second launch bound counts waves of a SIMD; registers are enough
// without it.
constexpr int BlocksAUnit(int, int) { return 1; }

struct alignas(16) Bits128 {
  uint32_t word[4];
};
struct alignas(8) Bits64 {
  uint32_t word[2];
};

// ---- Threads ----------------------------------------------------------------

__device__ inline int ThreadIndex() {
  return static_cast<int>(__builtin_amdgcn_workitem_id_x());
}
__device__ inline int BlockThreads() {
  return __builtin_amdgcn_workgroup_size_x();
}
__device__ inline int64_t BlockIndex() {
  return __builtin_amdgcn_workgroup_id_x();
}
// NOTE: a grid's size is in threads.
__device__ inline int64_t BlockCount() {
  return __builtin_amdgcn_grid_size_x() / __builtin_amdgcn_workgroup_size_x();
}

// NOTE: orders shared memory only: ordering all memory would make it wait for
// loads that are on their way, and drop RDNA's nearest cache.
__device__ inline void WaveSync() {
  __builtin_amdgcn_fence(__ATOMIC_ACQ_REL, "wavefront", "local");
  __builtin_amdgcn_wave_barrier();
}
__device__ inline void BlockSync() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup", "local");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup", "local");
}

// ---- Clusters: of one block each. -------------------------------------------

__device__ inline int ClusterRank() { return 0; }
__device__ inline int ClusterBlocks() { return 1; }
__device__ inline int64_t ClusterIndex() { return BlockIndex(); }
__device__ inline void ClusterArrive() {}
__device__ inline void ClusterArriveRelaxed() {}
__device__ inline void ClusterWait() { BlockSync(); }
template <class T>
__device__ inline void StoreShared(T* pointer, int, T value) {
  *pointer = value;
}

// ---- Lanes ------------------------------------------------------------------

namespace intrinsics_internal {

// Controls of a DPP move (AMD, "CDNA3 Instruction Set Architecture", 2023,
// section 12.15; RDNA3 likewise).
inline constexpr int kQuadSwap1 = 0xB1;        // lane ^ 1
inline constexpr int kQuadSwap2 = 0x4E;        // lane ^ 2
inline constexpr int kRowHalfMirror = 0x141;   // lane ^ 7
inline constexpr int kRowMirror = 0x140;       // lane ^ 15
inline constexpr int kRowBroadcast15 = 0x142;  // CDNA: a row's last lane to the
inline constexpr int kRowBroadcast31 = 0x143;  // next row, or the next two

// Within rows of 16 lanes every lane has a source. NOTE: said in this way the
// move becomes part of the instruction that uses it.
template <int kControl>
__device__ inline int MoveDpp(int value) {
  return __builtin_amdgcn_update_dpp(0, value, kControl, 0xf, 0xf, true);
}
// Rows outside of the mask keep `old`.
template <int kControl, int kRowMask>
__device__ inline int MoveDppToRows(int old, int value) {
  return __builtin_amdgcn_update_dpp(old, value, kControl, kRowMask, 0xf,
                                     false);
}

// Between rows of 16 lanes a move goes one way, and scalars go the other.
__device__ inline int ExchangeRows(int value) {
#if defined(__HIP_DEVICE_COMPILE__)
  const int second = __builtin_amdgcn_readlane(value, 16);
#if defined(__GFX9__)
  const int fourth = __builtin_amdgcn_readlane(value, 48);
  const int even = (ThreadIndex() & 32) != 0 ? fourth : second;
  return MoveDppToRows<kRowBroadcast15, 0xa>(even, value);
#else
  const int first = __builtin_amdgcn_readlane(value, 0);
  return (ThreadIndex() & 16) != 0 ? first : second;
#endif
#else
  return value;
#endif
}
__device__ inline int ExchangeWaveHalves(int value) {
#if defined(__HIP_DEVICE_COMPILE__) && defined(__GFX9__)
  const int upper = __builtin_amdgcn_readlane(value, 32);
  return MoveDppToRows<kRowBroadcast31, 0xc>(upper, value);
#else
  return value;
#endif
}

__device__ inline int Exchange(int value, int mask) {
  switch (mask) {
    case 1:
      return MoveDpp<kQuadSwap1>(value);
    case 2:
      return MoveDpp<kQuadSwap2>(value);
    case 4:
      return MoveDpp<kRowHalfMirror>(value);
    case 8:
      return MoveDpp<kRowMirror>(value);
    case 16:
      return ExchangeRows(value);
    default:
      return ExchangeWaveHalves(value);
  }
}

}  // namespace intrinsics_internal

template <int kWave>
__device__ inline int32_t ExchangeHalves(int32_t value, int mask) {
  return intrinsics_internal::Exchange(value, mask);
}
template <int kWave>
__device__ inline float ExchangeHalves(float value, int mask) {
  return std::bit_cast<float>(
      ExchangeHalves<kWave>(std::bit_cast<int32_t>(value), mask));
}
template <int kWave>
__device__ inline int64_t ExchangeHalves(int64_t value, int mask) {
  const uint64_t bits = static_cast<uint64_t>(value);
  const uint32_t low = static_cast<uint32_t>(
      ExchangeHalves<kWave>(static_cast<int32_t>(bits), mask));
  const uint32_t high = static_cast<uint32_t>(
      ExchangeHalves<kWave>(static_cast<int32_t>(bits >> 32), mask));
  return static_cast<int64_t>(uint64_t{high} << 32 | low);
}

// The largest of the wave's values: +0 or more, none of them NaN.
template <int kWave>
__device__ inline float WaveMax(float value) {
  // NOTE: such floats are ordered as their bits are, and integers need no care
  // for NaN.
  int32_t bits = std::bit_cast<int32_t>(value);
#pragma unroll
  for (int mask = 1; mask < kWave; mask *= 2) {
    const int32_t other = ExchangeHalves<kWave>(bits, mask);
    bits = bits > other ? bits : other;
  }
  return std::bit_cast<float>(bits);
}

// ---- Shared memory (LDS) ----------------------------------------------------

// Aligned to 16 bytes.
template <class T>
__device__ inline T* SharedMemory() {
  extern __shared__ __attribute__((aligned(16))) char lamina_shared_memory[];
  return reinterpret_cast<T*>(lamina_shared_memory);
}

// ---- Overlap with the neighbours in the stream: none. -----------------------

__device__ inline void AllowDependents() {}
__device__ inline void WaitForPredecessor() {}

// Nothing to wait for, nothing to settle before it.
__device__ inline void Settle(float&) {}
__device__ inline void Settle(int&) {}
__device__ inline void Settle(uint64_t&) {}

// ---- Memory -----------------------------------------------------------------

namespace intrinsics_internal {
// NOTE: an address of global memory: a generic one would cost a flat access,
// which waits for the LDS as well.
template <class T>
using Global = __attribute__((address_space(1))) T*;
using Words4 = uint32_t __attribute__((ext_vector_type(4)));
using Words2 = uint32_t __attribute__((ext_vector_type(2)));

__device__ inline Bits128 FromVector(Words4 v) {
  return {{v.x, v.y, v.z, v.w}};
}
__device__ inline Words4 ToVector(const Bits128& b) {
  return Words4{b.word[0], b.word[1], b.word[2], b.word[3]};
}
__device__ inline Words2 ToVector(const Bits64& b) {
  return Words2{b.word[0], b.word[1]};
}
}  // namespace intrinsics_internal

__device__ inline Bits128 Load128(const void* p) {
  using namespace intrinsics_internal;
  return FromVector(*(Global<const Words4>)(p));
}
__device__ inline Bits128 Load128Constant(const void* p) { return Load128(p); }
__device__ inline Bits128 Load128Streaming(const void* p) {
  using namespace intrinsics_internal;
  return FromVector(__builtin_nontemporal_load((Global<const Words4>)(p)));
}
__device__ inline Bits64 Load64(const void* p) {
  using namespace intrinsics_internal;
  const Words2 v = *(Global<const Words2>)(p);
  return {{v.x, v.y}};
}
__device__ inline void Store128(const Bits128& bits, void* p) {
  using namespace intrinsics_internal;
  *(Global<Words4>)(p) = ToVector(bits);
}
__device__ inline void Store128Streaming(const Bits128& bits, void* p) {
  using namespace intrinsics_internal;
  __builtin_nontemporal_store(ToVector(bits), (Global<Words4>)(p));
}
__device__ inline void Store8(uint8_t bits, void* p) {
  *(intrinsics_internal::Global<uint8_t>)(p) = bits;
}
__device__ inline void Store32(uint32_t bits, void* p) {
  *(intrinsics_internal::Global<uint32_t>)(p) = bits;
}
__device__ inline void Store64(const Bits64& bits, void* p) {
  using namespace intrinsics_internal;
  *(Global<Words2>)(p) = ToVector(bits);
}
__device__ inline void Store64Streaming(const Bits64& bits, void* p) {
  using namespace intrinsics_internal;
  __builtin_nontemporal_store(ToVector(bits), (Global<Words2>)(p));
}

// ---- Math -------------------------------------------------------------------

// Exactly rounded, subnormals included
// (-fhip-fp32-correctly-rounded-divide-sqrt, the default).
__device__ inline float SquareRoot(float x) { return __builtin_sqrtf(x); }
__device__ inline float Divide(float a, float b) { return a / b; }
// x * factor where v < 0, x elsewhere.
__device__ inline float MultiplyWhereNegative(float x, float factor, float v) {
  return v < 0.0f ? x * factor : x;
}

// Within 1 ULP; subnormal x and results become 0.
__device__ inline float ApproximateReciprocal(float x) {
  return __builtin_amdgcn_rcpf(x);
}
__device__ inline float ApproximateReciprocalSquareRoot(float x) {
  return __builtin_amdgcn_rsqf(x);
}
__device__ inline float ApproximateExp2(float x) {
  return __builtin_amdgcn_exp2f(x);
}

// ---- Conversions: nearest, ties to even; the first value goes lowest. -------

__device__ inline uint32_t PackBf16(float a, float b) {
  const __bf16 low = static_cast<__bf16>(a);
  const __bf16 high = static_cast<__bf16>(b);
  return std::bit_cast<uint16_t>(low) |
         static_cast<uint32_t>(std::bit_cast<uint16_t>(high)) << 16;
}
__device__ inline uint32_t PackF16(float a, float b) {
  const _Float16 low = static_cast<_Float16>(a);
  const _Float16 high = static_cast<_Float16>(b);
  return std::bit_cast<uint16_t>(low) |
         static_cast<uint32_t>(std::bit_cast<uint16_t>(high)) << 16;
}
__device__ inline void UnpackF16(uint32_t pair, float& a, float& b) {
  a = std::bit_cast<_Float16>(static_cast<uint16_t>(pair));
  b = std::bit_cast<_Float16>(static_cast<uint16_t>(pair >> 16));
}

// The FP8 type that the architecture converts to in hardware; void: none.
#if !defined(__HIP_DEVICE_COMPILE__)
using NativeF8 = void;
#elif defined(__gfx940__) || defined(__gfx941__) || defined(__gfx942__)
using NativeF8 = F8E4M3Fnuz;
#elif __has_builtin(__builtin_amdgcn_cvt_pk_fp8_f32)
using NativeF8 = F8E4M3Fn;
#else
using NativeF8 = void;
#endif

// Four codes of NativeF8. Saturating; NaN becomes a NaN code.
__device__ inline uint32_t PackNativeF8(float a, float b, float c, float d) {
#if defined(__HIP_DEVICE_COMPILE__) && \
    __has_builtin(__builtin_amdgcn_cvt_pk_fp8_f32)
#if defined(__gfx940__) || defined(__gfx941__) || defined(__gfx942__)
  constexpr float kMax = 240.0f;
#else
  constexpr float kMax = 448.0f;
#endif
  // NOTE: the conversion makes NaN of what is too large, and a NaN has to pass.
  const auto bounded = [](float x) {
#if defined(__GFX12__)
    return __builtin_elementwise_minimum(
        __builtin_elementwise_maximum(x, -kMax), kMax);
#else
    // The median of a NaN and two numbers is a number.
    return __builtin_isnan(x) ? x : __builtin_amdgcn_fmed3f(x, kMax, -kMax);
#endif
  };
  int codes = 0;
  codes = __builtin_amdgcn_cvt_pk_fp8_f32(bounded(a), bounded(b), codes, false);
  codes = __builtin_amdgcn_cvt_pk_fp8_f32(bounded(c), bounded(d), codes, true);
  return static_cast<uint32_t>(codes);
#else
  static_cast<void>(a), static_cast<void>(b);
  static_cast<void>(c), static_cast<void>(d);
  return 0;
#endif
}
// The values of four codes of NativeF8, the lowest first.
__device__ inline void UnpackNativeF8(uint32_t codes, float (&values)[4]) {
#if defined(__HIP_DEVICE_COMPILE__) && \
    __has_builtin(__builtin_amdgcn_cvt_pk_f32_fp8)
  const int bits = static_cast<int>(codes);
  const auto low = __builtin_amdgcn_cvt_pk_f32_fp8(bits, false);
  const auto high = __builtin_amdgcn_cvt_pk_f32_fp8(bits, true);
  values[0] = low[0];
  values[1] = low[1];
  values[2] = high[0];
  values[3] = high[1];
#else
  static_cast<void>(codes), static_cast<void>(values);
#endif
}

}  // namespace lamina::gpu
