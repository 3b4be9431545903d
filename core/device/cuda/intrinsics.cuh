#pragma once

// CUDA's part of core/device/intrinsics.cuh.

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <cstdint>
#include <type_traits>

#include "lamina/core/dtype.h"

namespace lamina::gpu {

// The wave sizes that kernels are compiled for.
inline constexpr int kWaveSizes[] = {32};
template <int kWave>
inline constexpr bool kWaveRunsHere = true;

// NOTE: architectures without clusters are launched with one block each.
inline constexpr bool kClusterChoices[] = {true};

// RowArch::wide_lanes.
inline constexpr int kWideLanes = 512;

// Lanes that a unit can have.
#if defined(__CUDA_ARCH__) && (__CUDA_ARCH__ == 860 || __CUDA_ARCH__ == 870 || \
                               __CUDA_ARCH__ == 890 || __CUDA_ARCH__ >= 1200)
inline constexpr int kUnitLanes = 1536;
#else
inline constexpr int kUnitLanes = 2048;
#endif

// Blocks of `lanes` lanes that a unit should have registers for, as far as it
// can have them: the second of __launch_bounds__.
constexpr int BlocksAUnit(int blocks, int lanes) {
  return blocks * lanes <= kUnitLanes ? blocks : kUnitLanes / lanes;
}

struct alignas(16) Bits128 {
  uint32_t word[4];
};
struct alignas(8) Bits64 {
  uint32_t word[2];
};

// ---- Threads ----------------------------------------------------------------

__device__ inline int ThreadIndex() { return static_cast<int>(threadIdx.x); }
// ThreadIndex() / 32, which the compiler then knows to be that of all lanes.
__device__ inline int UniformWave() {
  return __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x / 32), 0);
}
__device__ inline int BlockThreads() { return static_cast<int>(blockDim.x); }
__device__ inline int64_t BlockIndex() { return blockIdx.x; }
__device__ inline int64_t BlockCount() { return gridDim.x; }

__device__ inline void WaveSync() { __syncwarp(); }
__device__ inline void BlockSync() { __syncthreads(); }

// So many registers a thread from here on, a multiple of 8: fewer, or more of
// those that other warpgroups gave. All of a warpgroup, in one of the branches
// that its threads never leave.
template <int kRegisters>
__device__ inline void GiveRegisters() {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
#endif
}
template <int kRegisters>
__device__ inline void TakeRegisters() {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
#endif
}

// ---- Clusters: blocks that reach each other's shared memory. ----------------

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
__device__ inline int ClusterRank() {
  uint32_t rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return static_cast<int>(rank);
}
__device__ inline int ClusterBlocks() {
  uint32_t blocks;
  asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(blocks));
  return static_cast<int>(blocks);
}
__device__ inline int64_t ClusterIndex() {
  uint32_t index;
  asm("mov.u32 %0, %%clusterid.x;" : "=r"(index));
  return index;
}
__device__ inline void ClusterArrive() {
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}
__device__ inline void ClusterArriveRelaxed() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" :::);
}
__device__ inline void ClusterWait() {
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}
__device__ inline void StoreShared(float* pointer, int rank, float value) {
  const uint32_t local =
      static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
  asm volatile(
      "{\n"
      ".reg .u32 remote;\n"
      "mapa.shared::cluster.u32 remote, %0, %1;\n"
      "st.shared::cluster.f32 [remote], %2;\n"
      "}" ::"r"(local),
      "r"(rank), "f"(value)
      : "memory");
}
__device__ inline void StoreShared(int64_t* pointer, int rank, int64_t value) {
  const uint32_t local =
      static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
  asm volatile(
      "{\n"
      ".reg .u32 remote;\n"
      "mapa.shared::cluster.u32 remote, %0, %1;\n"
      "st.shared::cluster.b64 [remote], %2;\n"
      "}" ::"r"(local),
      "r"(rank), "l"(value)
      : "memory");
}
#else
__device__ inline int ClusterRank() { return 0; }
__device__ inline int ClusterBlocks() { return 1; }
__device__ inline int64_t ClusterIndex() { return BlockIndex(); }
__device__ inline void ClusterArrive() {}
__device__ inline void ClusterArriveRelaxed() {}
__device__ inline void ClusterWait() { __syncthreads(); }
template <class T>
__device__ inline void StoreShared(T* pointer, int, T value) {
  *pointer = value;
}
#endif

// ---- Lanes ------------------------------------------------------------------

template <int kWave>
__device__ inline float ExchangeHalves(float value, int mask) {
  static_assert(kWave == 32, "a CUDA warp has 32 lanes");
  return __shfl_xor_sync(0xffffffffu, value, mask);
}
template <int kWave>
__device__ inline int32_t ExchangeHalves(int32_t value, int mask) {
  static_assert(kWave == 32, "a CUDA warp has 32 lanes");
  return __shfl_xor_sync(0xffffffffu, value, mask);
}
template <int kWave>
__device__ inline int64_t ExchangeHalves(int64_t value, int mask) {
  static_assert(kWave == 32, "a CUDA warp has 32 lanes");
  return __shfl_xor_sync(0xffffffffu, static_cast<long long>(value), mask);
}

// The largest of the wave's values: +0 or more, none of them NaN.
template <int kWave>
__device__ inline float WaveMax(float value) {
  static_assert(kWave == 32, "a CUDA warp has 32 lanes");
  // NOTE: such floats are ordered as their bits are.
  return __uint_as_float(
      __reduce_max_sync(0xffffffffu, __float_as_uint(value)));
}

// ---- Shared memory ----------------------------------------------------------

// Aligned to 1024 bytes.
template <class T>
__device__ inline T* SharedMemory() {
  extern __shared__ __align__(1024) uint4 lamina_shared_memory[];
  return reinterpret_cast<T*>(lamina_shared_memory);
}

// ---- Overlap with the neighbours in the stream ------------------------------

// The next kernel's blocks may start. What it does before its
// WaitForPredecessor runs beside the rest of this kernel.
__device__ inline void AllowDependents() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
// Until the kernel before has ended and its writes can be seen.
__device__ inline void WaitForPredecessor() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// What stands before it is computed before what stands after it.
__device__ inline void Settle(float& value) { asm volatile("" : "+f"(value)); }
__device__ inline void Settle(int& value) { asm volatile("" : "+r"(value)); }
__device__ inline void Settle(uint64_t& value) {
  unsigned long long bits = value;
  asm volatile("" : "+l"(bits));
  value = bits;
}

// ---- Memory -----------------------------------------------------------------

namespace intrinsics_internal {
__device__ inline Bits128 FromVector(uint4 v) { return {{v.x, v.y, v.z, v.w}}; }
__device__ inline uint4 ToVector(Bits128 b) {
  return make_uint4(b.word[0], b.word[1], b.word[2], b.word[3]);
}
}  // namespace intrinsics_internal

__device__ inline Bits128 Load128(const void* p) {
  return intrinsics_internal::FromVector(*static_cast<const uint4*>(p));
}
__device__ inline Bits128 Load128Constant(const void* p) {
  return intrinsics_internal::FromVector(__ldg(static_cast<const uint4*>(p)));
}
__device__ inline Bits128 Load128Streaming(const void* p) {
  return intrinsics_internal::FromVector(__ldcs(static_cast<const uint4*>(p)));
}
__device__ inline Bits64 Load64(const void* p) {
  const uint2 v = *static_cast<const uint2*>(p);
  return {{v.x, v.y}};
}
// NOTE: not plain assignments: nvcc splits those where an element-wise store to
// the same place stands on another path.
__device__ inline void Store128(Bits128 bits, void* p) {
  asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(
                   __cvta_generic_to_global(p)),
               "r"(bits.word[0]), "r"(bits.word[1]), "r"(bits.word[2]),
               "r"(bits.word[3])
               : "memory");
}
__device__ inline void Store128Streaming(Bits128 bits, void* p) {
  __stcs(static_cast<uint4*>(p), intrinsics_internal::ToVector(bits));
}
__device__ inline void Store64(Bits64 bits, void* p) {
  asm volatile(
      "st.global.v2.u32 [%0], {%1, %2};" ::"l"(__cvta_generic_to_global(p)),
      "r"(bits.word[0]), "r"(bits.word[1])
      : "memory");
}
__device__ inline void Store8(uint8_t bits, void* p) {
  *static_cast<uint8_t*>(p) = bits;
}
__device__ inline void Store32(uint32_t bits, void* p) {
  asm volatile("st.global.u32 [%0], %1;" ::"l"(__cvta_generic_to_global(p)),
               "r"(bits)
               : "memory");
}
__device__ inline void Store64Streaming(Bits64 bits, void* p) {
  __stcs(static_cast<uint2*>(p), make_uint2(bits.word[0], bits.word[1]));
}

// ---- Math -------------------------------------------------------------------

// Exactly rounded, subnormals included.
__device__ inline float SquareRoot(float x) { return __fsqrt_rn(x); }
__device__ inline float Divide(float a, float b) { return __fdiv_rn(a, b); }

// x * factor where v < 0, otherwise x.
// NOTE: a predicated product; nvcc makes a product and a selection of it.
__device__ inline float MultiplyWhereNegative(float x, float factor, float v) {
  asm("{\n"
      ".reg .pred negative;\n"
      "setp.lt.f32 negative, %1, 0f00000000;\n"
      "@negative mul.rn.f32 %0, %0, %2;\n"
      "}"
      : "+f"(x)
      : "f"(v), "f"(factor));
  return x;
}

// Within 1 ULP (PTX ISA: 2^-23 relative); subnormal x and results become 0.
__device__ inline float ApproximateReciprocal(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
// Within 2^-22.9 relative; subnormal x become 0.
__device__ inline float ApproximateReciprocalSquareRoot(float x) {
  float y;
  asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
// Within 2 ULP; subnormal results become 0.
__device__ inline float ApproximateExp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// ---- Conversions: nearest, ties to even; the first value goes lowest. -------

__device__ inline uint32_t PackBf16(float a, float b) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(a, b);
  return reinterpret_cast<const uint32_t&>(pair);
}
__device__ inline uint32_t PackF16(float a, float b) {
  const __half2 pair = __floats2half2_rn(a, b);
  return reinterpret_cast<const uint32_t&>(pair);
}
__device__ inline void UnpackF16(uint32_t pair, float& a, float& b) {
  const float2 values = __half22float2(reinterpret_cast<const __half2&>(pair));
  a = values.x;
  b = values.y;
}

// Two codes of F8E4M3Fn or F8E5M2 as two of F16: exact.
template <class F8>
__device__ inline uint32_t WidenToF16(uint16_t codes) {
  static_assert(std::is_same_v<F8, F8E4M3Fn> || std::is_same_v<F8, F8E5M2>,
                "F8E4M3Fn or F8E5M2");
  // The codes as the high bytes of two halves.
  const uint32_t spread = __byte_perm(codes, 0, 0x1404);
  if constexpr (std::is_same_v<F8, F8E5M2>) return spread;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 890
  // NOTE: without instructions for it, cuda_fp8.h takes some 20 a value.
  const uint32_t scaled = (spread >> 1) & 0x3f803f80u;  // values / 256
  // NaN is the largest magnitude: one step more reaches the next bit.
  const uint32_t nan = (scaled + 0x00800080u) & 0x40004000u;
  const __half2 values = __hmul2(reinterpret_cast<const __half2&>(scaled),
                                 __float2half2_rn(256.0f));
  return reinterpret_cast<const uint32_t&>(values) | (spread & 0x80008000u) |
         ((nan << 1) - (nan >> 4));
#else
  const __half2_raw halves = __nv_cvt_fp8x2_to_halfraw2(codes, __NV_E4M3);
  return halves.x | uint32_t{halves.y} << 16;
#endif
}
// Four codes of F8E4M3Fn, the lowest first, as two pairs: exact.
__device__ inline void WidenFourE4M3(uint32_t codes, uint32_t& first,
                                     uint32_t& second) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 890
  first = WidenToF16<F8E4M3Fn>(static_cast<uint16_t>(codes));
  second = WidenToF16<F8E4M3Fn>(static_cast<uint16_t>(codes >> 16));
#else
  // NOTE: halves of a register, which nvcc shifts and joins otherwise.
  asm("{\n"
      ".reg .b16 low, high;\n"
      "mov.b32 {low, high}, %2;\n"
      "cvt.rn.f16x2.e4m3x2 %0, low;\n"
      "cvt.rn.f16x2.e4m3x2 %1, high;\n"
      "}"
      : "=r"(first), "=r"(second)
      : "r"(codes));
#endif
}
// Bytes 0, 2, 1, 3.
__device__ inline uint32_t SwapMiddleBytes(uint32_t bytes) {
  return __byte_perm(bytes, 0, 0x3120);
}
// Two codes as two of BF16: exact.
template <class F8>
__device__ inline uint32_t WidenToBf16(uint16_t codes) {
  float a, b;
  UnpackF16(WidenToF16<F8>(codes), a, b);
  return PackBf16(a, b);
}
__device__ inline uint32_t WidenE4M3(uint16_t codes) {
  return WidenToBf16<F8E4M3Fn>(codes);
}

// The FP8 type that the architecture converts to in hardware; void: none.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 890
using NativeF8 = void;
#else
using NativeF8 = F8E4M3Fn;
#endif

// Four codes of NativeF8. Saturating; NaN becomes a NaN code.
__device__ inline uint32_t PackNativeF8(float a, float b, float c, float d) {
  const uint32_t low =
      __nv_cvt_float2_to_fp8x2(make_float2(a, b), __NV_SATFINITE, __NV_E4M3);
  const uint32_t high =
      __nv_cvt_float2_to_fp8x2(make_float2(c, d), __NV_SATFINITE, __NV_E4M3);
  return low | high << 16;
}
// The values of four codes of NativeF8, the lowest first.
__device__ inline void UnpackNativeF8(uint32_t codes, float (&values)[4]) {
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const __half2 pair = __nv_cvt_fp8x2_to_halfraw2(
        static_cast<__nv_fp8x2_storage_t>(codes >> (16 * i)), __NV_E4M3);
    const float2 both = __half22float2(pair);
    values[2 * i] = both.x;
    values[2 * i + 1] = both.y;
  }
}

}  // namespace lamina::gpu
