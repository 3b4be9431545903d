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

// NOTE: a plan never changes a result.
constexpr std::optional<WaveGemmPlan> SelectWaveGemmPlan(
    const WaveGemmProblem& problem) {
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
  return WaveGemmPlan{variant};
}

// Whether these kernels, which have no ring to start, are the faster ones where
// both they and those of ring_gemm.cuh take the problem. H200, 2026-11-30, one
// to 16 rows of x: 2.8 instead of 5.1 us for 960 x 576 of FP8 by BF16, 5.0
// instead of 5.4 for 2048 x 2048, the same for 3072 x 2048; 3.5 instead of 3.7
// for 960 x 576 of BF16, 4.3 instead of 4.2 for 3072 x 576.
// n: rows of w.
constexpr bool PrefersWaveGemm(const WaveGemmProblem& problem, int64_t n) {
  if (problem.m > 16 || IsIeeeF8(problem.x_type)) return false;
  const int64_t most_bytes =
      IsIeeeF8(problem.w_type) ? int64_t{6} << 20 : int64_t{3} << 19;
  return n * problem.k * BitsOf(problem.w_type) / 8 <= most_bytes;
}

}  // namespace lamina::gemm_internal
