#pragma once

// CUDA's part of core/device/matrix.cuh.

#include <cstdint>
#include <type_traits>

#include "lamina/core/dtype.h"

namespace lamina::gpu {

inline constexpr bool kHasWaveMma = true;

// NOTE: wgmma is sm_90a's alone; later architectures do not have it.
#if defined(__CUDA_ARCH__) && !defined(__CUDA_ARCH_FEAT_SM90_ALL)
inline constexpr bool kHasWgmma = false;
#else
inline constexpr bool kHasWgmma = true;
#endif

// ---- Operands ---------------------------------------------------------------

namespace matrix_internal {
// Low word: address and distance of 16-byte columns; high word: distance of
// groups of 8 rows and, in the top bits, the swizzle. All in units of 16 bytes.
__device__ inline uint64_t Descriptor(const void* shared, uint32_t column,
                                      uint32_t high) {
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
  return uint64_t{high} << 32 | column << 16 | (address & 0x3ffff) >> 4;
}
}  // namespace matrix_internal

__device__ inline uint64_t SwizzledTile(const void* shared) {
  constexpr uint32_t kSwizzle128 = 1u << 30;
  return matrix_internal::Descriptor(shared, 1, kSwizzle128 | 1024 / 16);
}
__device__ inline uint64_t PlainTile(const void* shared, int column_bytes,
                                     int group_bytes) {
  return matrix_internal::Descriptor(shared,
                                     static_cast<uint32_t>(column_bytes) / 16,
                                     static_cast<uint32_t>(group_bytes) / 16);
}

// ---- Products of a warpgroup ------------------------------------------------

#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
namespace matrix_internal {
// NOTE: an instruction's text is a literal, and names each of the registers.
// clang-format off
#define LAMINA_TEXT_4 "%0, %1, %2, %3"
#define LAMINA_TEXT_8 LAMINA_TEXT_4 ", %4, %5, %6, %7"
#define LAMINA_TEXT_16 LAMINA_TEXT_8 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define LAMINA_TEXT_32 LAMINA_TEXT_16                                          \
  ", %16, %17, %18, %19, %20, %21, %22, %23"                                   \
  ", %24, %25, %26, %27, %28, %29, %30, %31"
#define LAMINA_SUMS_4(i)                                                       \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define LAMINA_SUMS_8(i) LAMINA_SUMS_4(i), LAMINA_SUMS_4(i + 4)
#define LAMINA_SUMS_16(i) LAMINA_SUMS_8(i), LAMINA_SUMS_8(i + 8)
#define LAMINA_SUMS_32(i) LAMINA_SUMS_16(i), LAMINA_SUMS_16(i + 16)
// d: so many registers; then a and b, the predicate's word, the flags: signs,
// and for 16-bit types whether an operand lies the other way.
#define LAMINA_WGMMA(columns, types, registers, operands, word, flags, ...)    \
  asm volatile(                                                                \
      "{\n"                                                                    \
      ".reg .pred accumulate;\n"                                               \
      "setp.ne.b32 accumulate, " word ", 0;\n"                                 \
      "wgmma.mma_async.sync.aligned.m64n" #columns types                       \
      " {" LAMINA_TEXT_##registers "}, " operands ", accumulate" flags ";\n"   \
      "}"                                                                      \
      : LAMINA_SUMS_##registers(0)                                             \
      : __VA_ARGS__, "r"(static_cast<int>(accumulate)))
#define LAMINA_WGMMA_TYPES(columns, registers, operands, word, flags16, ...)   \
  if constexpr (std::is_same_v<T, F8E4M3Fn>) {                                 \
    LAMINA_WGMMA(columns, "k32.f32.e4m3.e4m3", registers, operands, word,      \
                 ", 1, 1", __VA_ARGS__);                                       \
  } else if constexpr (std::is_same_v<T, BF16>) {                              \
    LAMINA_WGMMA(columns, "k16.f32.bf16.bf16", registers, operands, word,      \
                 flags16, __VA_ARGS__);                                        \
  } else {                                                                     \
    LAMINA_WGMMA(columns, "k16.f32.f16.f16", registers, operands, word,        \
                 flags16, __VA_ARGS__);                                        \
  }
#define LAMINA_WGMMA_SHARED(columns, registers, a_text, b_text, word)          \
  LAMINA_WGMMA_TYPES(columns, registers, a_text ", " b_text, word,             \
                     ", 1, 1, 0, 0", "l"(a), "l"(b))
#define LAMINA_WGMMA_REGISTERS(columns, registers, a_text, b_text, word)       \
  LAMINA_WGMMA_TYPES(columns, registers, "{" a_text "}, " b_text, word,        \
                     ", 1, 1, 0", "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]),  \
                     "l"(b))
// clang-format on

template <class T>
inline constexpr bool kIsOperand =
    std::is_same_v<T, F8E4M3Fn> || std::is_same_v<T, BF16> ||
    std::is_same_v<T, F16>;
}  // namespace matrix_internal

template <class T, int kN>
__device__ inline void WarpgroupMma(float (&d)[kN / 2], uint64_t a, uint64_t b,
                                    bool accumulate) {
  static_assert(matrix_internal::kIsOperand<T>, "F8E4M3Fn, BF16 or F16");
  static_assert(kN == 8 || kN == 16 || kN == 32 || kN == 64,
                "columns of the result: 8, 16, 32 or 64");
  if constexpr (kN == 8) {
    LAMINA_WGMMA_SHARED(8, 4, "%4", "%5", "%6");
  } else if constexpr (kN == 16) {
    LAMINA_WGMMA_SHARED(16, 8, "%8", "%9", "%10");
  } else if constexpr (kN == 32) {
    LAMINA_WGMMA_SHARED(32, 16, "%16", "%17", "%18");
  } else {
    LAMINA_WGMMA_SHARED(64, 32, "%32", "%33", "%34");
  }
}
template <class T, int kN>
__device__ inline void WarpgroupMmaFromRegisters(float (&d)[kN / 2],
                                                 const uint32_t (&a)[4],
                                                 uint64_t b, bool accumulate) {
  static_assert(matrix_internal::kIsOperand<T>, "F8E4M3Fn, BF16 or F16");
  static_assert(kN == 8 || kN == 16 || kN == 32 || kN == 64,
                "columns of the result: 8, 16, 32 or 64");
  if constexpr (kN == 8) {
    LAMINA_WGMMA_REGISTERS(8, 4, "%4, %5, %6, %7", "%8", "%9");
  } else if constexpr (kN == 16) {
    LAMINA_WGMMA_REGISTERS(16, 8, "%8, %9, %10, %11", "%12", "%13");
  } else if constexpr (kN == 32) {
    LAMINA_WGMMA_REGISTERS(32, 16, "%16, %17, %18, %19", "%20", "%21");
  } else {
    LAMINA_WGMMA_REGISTERS(64, 32, "%32, %33, %34, %35", "%36", "%37");
  }
}

#undef LAMINA_WGMMA_REGISTERS
#undef LAMINA_WGMMA_SHARED
#undef LAMINA_WGMMA_TYPES
#undef LAMINA_WGMMA
#undef LAMINA_SUMS_32
#undef LAMINA_SUMS_16
#undef LAMINA_SUMS_8
#undef LAMINA_SUMS_4
#undef LAMINA_TEXT_32
#undef LAMINA_TEXT_16
#undef LAMINA_TEXT_8
#undef LAMINA_TEXT_4

__device__ inline void WarpgroupFence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ inline void WarpgroupCommit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int kPending>
__device__ inline void WarpgroupWait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}
#else
template <class T, int kN>
__device__ inline void WarpgroupMma(float (&)[kN / 2], uint64_t, uint64_t,
                                    bool) {
  __trap();
}
template <class T, int kN>
__device__ inline void WarpgroupMmaFromRegisters(float (&)[kN / 2],
                                                 const uint32_t (&)[4],
                                                 uint64_t, bool) {
  __trap();
}
__device__ inline void WarpgroupFence() { __trap(); }
__device__ inline void WarpgroupCommit() { __trap(); }
template <int kPending>
__device__ inline void WarpgroupWait() {
  __trap();
}
#endif

// ---- Products of one wave ---------------------------------------------------

template <class T>
__device__ inline void WaveMma(float (&d)[4], const uint32_t (&a)[4],
                               const uint32_t (&b)[2]) {
  static_assert(std::is_same_v<T, BF16> || std::is_same_v<T, F16>,
                "BF16 or F16");
  if constexpr (std::is_same_v<T, BF16>) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  } else {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  }
}

__device__ inline void LoadMatrices(uint32_t (&r)[4], const void* row) {
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(row));
  asm volatile(
      "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
      : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
      : "r"(address)
      : "memory");
}
__device__ inline void LoadMatricesTransposed(uint32_t (&r)[4],
                                              const void* row) {
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(row));
  asm volatile(
      "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
      : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
      : "r"(address)
      : "memory");
}

__device__ inline uint32_t TransposeMatrix(uint32_t r) {
  uint32_t transposed;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;"
               : "=r"(transposed)
               : "r"(r));
  return transposed;
}

}  // namespace lamina::gpu
