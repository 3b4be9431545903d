#pragma once

// Host SIMT's part of core/device/matrix.cuh.

#include <cstdint>
#include <type_traits>

#include "lamina/core/device/simt/matrix.h"
#include "lamina/core/dtype.h"

namespace lamina::gpu {

inline constexpr bool kHasWaveMma = true;
inline constexpr bool kHasWgmma = true;

inline uint64_t SwizzledTile(const void* shared) {
  return simt::SwizzledTile(shared);
}
inline uint64_t PlainTile(const void* shared, int column_bytes,
                          int group_bytes) {
  return simt::PlainTile(shared, column_bytes, group_bytes);
}

namespace matrix_internal {
template <class T, int kN>
inline constexpr bool kIsProduct =
    (std::is_same_v<T, F8E4M3Fn> || std::is_same_v<T, BF16> ||
     std::is_same_v<T, F16>)&&(kN == 8 || kN == 16 || kN == 32 || kN == 64);
}  // namespace matrix_internal

template <class T, int kN>
inline void WarpgroupMma(float (&d)[kN / 2], uint64_t a, uint64_t b,
                         bool accumulate) {
  static_assert(matrix_internal::kIsProduct<T, kN>,
                "F8E4M3Fn, BF16 or F16; 8, 16, 32 or 64 columns");
  simt::StartProduct({.type = DTypeOf<T>::value,
                      .columns = kN,
                      .d = d,
                      .a = a,
                      .b = b,
                      .accumulate = accumulate});
}
template <class T, int kN>
inline void WarpgroupMmaFromRegisters(float (&d)[kN / 2],
                                      const uint32_t (&a)[4], uint64_t b,
                                      bool accumulate) {
  static_assert(matrix_internal::kIsProduct<T, kN>,
                "F8E4M3Fn, BF16 or F16; 8, 16, 32 or 64 columns");
  simt::StartProduct({.type = DTypeOf<T>::value,
                      .columns = kN,
                      .d = d,
                      .registers = a,
                      .b = b,
                      .accumulate = accumulate});
}
inline void WarpgroupFence() { simt::WarpgroupFence(); }
inline void WarpgroupCommit() { simt::WarpgroupCommit(); }
template <int kPending>
inline void WarpgroupWait() {
  simt::WarpgroupWait(kPending);
}

template <class T>
inline void WaveMma(float (&d)[4], const uint32_t (&a)[4],
                    const uint32_t (&b)[2]) {
  static_assert(std::is_same_v<T, BF16> || std::is_same_v<T, F16>,
                "BF16 or F16");
  simt::WaveProduct(DTypeOf<T>::value, d, a, b);
}
inline void LoadMatrices(uint32_t (&r)[4], const void* row) {
  simt::LoadMatrices(r, row, false);
}
inline void LoadMatricesTransposed(uint32_t (&r)[4], const void* row) {
  simt::LoadMatrices(r, row, true);
}
inline uint32_t TransposeMatrix(uint32_t r) { return simt::TransposeMatrix(r); }

}  // namespace lamina::gpu
