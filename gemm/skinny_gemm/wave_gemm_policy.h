#pragma once

// When the kernels of gemm/skinny_gemm/wave_gemm.cuh are used, and how they
// split the work: plain values, no GPU needed.

#include <cstdint>
#include <optional>

#include "lamina/core/math.h"
#include "lamina/gemm/skinny_gemm/wave_gemm_args.h"

namespace lamina::gemm_internal {

struct WaveGemmProblem {
  int64_t m = 0;
  int64_t n = 0;  // rows of w
  int64_t k = 0;
  DType x_type = DType::kBF16;
  DType w_type = DType::kBF16;
};

constexpr bool IsIeeeF8(DType type) {
  return type == DType::kF8E4M3Fn || type == DType::kF8E5M2;
}

// Nothing for pairs of types that there are no kernels for.
constexpr std::optional<WaveTypes> WaveTypesOf(DType w, DType x) {
  if (w == DType::kBF16 && x == w) return WaveTypes::kBF16;
  if (w == DType::kF16 && x == w) return WaveTypes::kF16;
  if (!IsIeeeF8(w)) return std::nullopt;
  if (x == DType::kBF16) return WaveTypes::kF8BF16;
  if (x == DType::kF16) return WaveTypes::kF8F16;
  if (IsIeeeF8(x)) return WaveTypes::kF8;
  return std::nullopt;
}

// `units`: SMs. NOTE: of a plan no bit depends on `units` or `n`.
constexpr std::optional<WaveGemmPlan> SelectWaveGemmPlan(
    const WaveGemmProblem& problem, int units) {
  const std::optional<WaveTypes> types =
      WaveTypesOf(problem.w_type, problem.x_type);
  // Rows are cut by 16 bytes, those of both operands alike.
  if (!types.has_value() || problem.m < 1 || problem.m > 64 || problem.k < 1 ||
      problem.k >= 1 << 28 ||
      problem.k * BitsOf(problem.w_type) % (16 * 8) != 0) {
    return std::nullopt;
  }
  WaveGemmVariant variant = {.types = *types};
  while (variant.rows < problem.m) variant.rows *= 2;
  // H200, 2026-11-30: two tiles, which halve what is read of x, are worth 15 to
  // 36 % at 64 rows and with FP8 at 32; 16-bit weights lose 11 to 15 % there.
  const bool reads_x = variant.rows == 64 ||
                       (variant.rows == 32 && HasFp8Weights(variant.types));
  if (reads_x && problem.n >= int64_t{32} * units / 2) variant.tiles = 2;
  return WaveGemmPlan{variant};
}

}  // namespace lamina::gemm_internal
