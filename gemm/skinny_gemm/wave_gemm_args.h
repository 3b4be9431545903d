#pragma once

// The GEMM of one wave's tensor cores (gemm/skinny_gemm/wave_gemm.cuh): what
// its kernels take and which there are.

#include <cstdint>

#include "lamina/core/launch.h"
#include "lamina/gemm/skinny_gemm/gemm_args.h"

namespace lamina::gemm_internal {

// Weights, then activations. kF8: F8E4M3Fn or F8E5M2, each of the two.
enum class WaveTypes : uint8_t { kBF16, kF16, kF8BF16, kF8F16, kF8 };
constexpr bool HasFp8Weights(WaveTypes types) {
  return types >= WaveTypes::kF8BF16;
}

// Otherwise F16.
constexpr bool MultipliesBF16(WaveTypes types) {
  return types == WaveTypes::kBF16 || types == WaveTypes::kF8BF16;
}

struct WaveGemmVariant {
  WaveTypes types = WaveTypes::kF8;
  int rows = 8;  // most rows of x: 8, 16, 32 or 64
  int wave_size = 32;

  constexpr bool CompiledFor(bool) const { return wave_size == 32; }

  friend constexpr bool operator==(const WaveGemmVariant&,
                                   const WaveGemmVariant&) = default;
};

inline constexpr int kWaveGemmWaves = 8;  // of a block; they share K
inline constexpr int kWaveGemmThreads = kWaveGemmWaves * 32;
inline constexpr int kWaveTileRows = 16;       // of w: what one mma takes
inline constexpr int kWaveSegmentBytes = 128;  // of a row of w

// Tiles of w of a block: two halve what is read of x. H200, 2026-11-30: -20 to
// -30 % at 64 rows; nothing at 32, for the registers.
constexpr int WaveTiles(const WaveGemmVariant& variant) {
  return variant.rows == 64 ? 2 : 1;
}
// Blocks that an SM holds at least: what bounds the registers. H200,
// 2026-11-30: -19 % for FP8 weights and 8 rows by three instead of two.
constexpr int MinBlocks(const WaveGemmVariant& variant) {
  if (variant.rows > 8) return variant.rows <= 32 ? 2 : 1;
  return variant.types == WaveTypes::kF8 ? 2 : 3;  // NOTE: three would spill
}

// How a launch goes about it.
struct WaveGemmPlan {
  WaveGemmVariant variant = {};

  friend constexpr bool operator==(const WaveGemmPlan&,
                                   const WaveGemmPlan&) = default;
};

struct WaveGemmArgs {
  GemmArgs gemm = {};
  int segments = 0;  // of a row of w, the last one in part
};

// By what the tensor cores multiply.
gpu::Error LaunchWaveGemmBF16(const GemmArgs& args, const WaveGemmPlan& plan,
                              const gpu::LaunchTarget& target);
gpu::Error LaunchWaveGemmF16(const GemmArgs& args, const WaveGemmPlan& plan,
                             const gpu::LaunchTarget& target);
inline gpu::Error LaunchWaveGemm(const GemmArgs& args, const WaveGemmPlan& plan,
                                 const gpu::LaunchTarget& target) {
  return MultipliesBF16(plan.variant.types)
             ? LaunchWaveGemmBF16(args, plan, target)
             : LaunchWaveGemmF16(args, plan, target);
}

}  // namespace lamina::gemm_internal
