#pragma once

// The common case of RmsNorm and AddRmsNorm on a GPU, for a kernel of few
// instructions: at decode sizes a kernel's time is that of fetching them.

#include <cstdint>

#include "lamina/core/dtype.h"
#include "lamina/core/launch.h"
#include "lamina/quant/lean_output.h"
#include "lamina/reduce/row_split.h"

namespace lamina::norm_internal {

// Every matrix is flat and can be moved by octets, x is F16 or BF16 (or F32,
// where y is all and a lane has one octet), the weight is there and has x's
// type, scales are f32.
struct LeanNormArgs {
  const void* x = nullptr;
  const void* residual = nullptr;
  void* residual_out = nullptr;
  const void* weight = nullptr;
  void* out = nullptr;  // y, or the codes
  float* scales = nullptr;
  // Set by the launcher: what the kernel is compiled for.
  DType type = DType::kBF16;
  LeanOutput output = LeanOutput::kY;
  // Bytes between rows.
  uint32_t x_pitch = 0;
  uint32_t residual_pitch = 0;
  uint32_t residual_out_pitch = 0;
  uint32_t out_pitch = 0;
  uint32_t rows = 0;
  int32_t cols = 0;
  int32_t lanes = 0;  // RowSplit::lanes
  float epsilon = 0;
  DType code = DType::kF8E4M3Fn;
  bool weight_plus_one = false;
  // Dependents may start when the sums are known, rather than at once: when
  // they would take the units from this kernel.
  bool late_dependents = false;
  bool clamp = false;  // to ±qmax
  // Dynamic scales.
  float qmax = 0;
  float inverse_qmax = 0;
  float min_scale = 0;
  float scale_ub = 0;
  int32_t block_shift = 0;  // kPerBlock: log2 of the lanes that share a scale
  int64_t scale_row_stride = 0;
  int64_t scale_col_stride = 0;
};

struct LeanNormVariant {
  gpu::RowScope scope = gpu::RowScope::kBlock;
  int octets = 1;
  LeanOutput output = LeanOutput::kY;
  // Blocks go over several rows each and load the next one early.
  bool many_rows = false;
  int wave_size = 32;

  // Without clusters a block has to hold a long row.
  constexpr bool CompiledFor(bool clusters) const {
    return clusters ? octets <= 2 : scope != gpu::RowScope::kCluster;
  }
  // f32: to y, and no more registers than two octets of the others.
  constexpr bool CompiledForType(bool f32) const {
    return !f32 || (output == LeanOutput::kY && octets == 1);
  }

  friend constexpr bool operator==(const LeanNormVariant&,
                                   const LeanNormVariant&) = default;
};

inline constexpr LeanNormVariant kLeanNormVariants[] = {
    {gpu::RowScope::kBlock, 1, LeanOutput::kY, false},
    {gpu::RowScope::kBlock, 2, LeanOutput::kY, false},
    {gpu::RowScope::kBlock, 4, LeanOutput::kY, false},
    {gpu::RowScope::kCluster, 1, LeanOutput::kY, false},
    {gpu::RowScope::kBlock, 2, LeanOutput::kY, true},
    {gpu::RowScope::kBlock, 1, LeanOutput::kStatic, false},
    {gpu::RowScope::kBlock, 2, LeanOutput::kStatic, false},
    {gpu::RowScope::kBlock, 4, LeanOutput::kStatic, false},
    {gpu::RowScope::kCluster, 1, LeanOutput::kStatic, false},
    {gpu::RowScope::kBlock, 2, LeanOutput::kStatic, true},
    {gpu::RowScope::kBlock, 1, LeanOutput::kPerRow, false},
    {gpu::RowScope::kBlock, 2, LeanOutput::kPerRow, false},
    {gpu::RowScope::kBlock, 4, LeanOutput::kPerRow, false},
    {gpu::RowScope::kCluster, 1, LeanOutput::kPerRow, false},
    {gpu::RowScope::kBlock, 2, LeanOutput::kPerRow, true},
    {gpu::RowScope::kBlock, 1, LeanOutput::kPerBlock, false},
    {gpu::RowScope::kBlock, 2, LeanOutput::kPerBlock, false},
    {gpu::RowScope::kBlock, 4, LeanOutput::kPerBlock, false},
    {gpu::RowScope::kCluster, 1, LeanOutput::kPerBlock, false},
    {gpu::RowScope::kBlock, 2, LeanOutput::kPerBlock, true},
};

struct LeanNormPlan {
  gpu::RowSplit split;
  bool many_rows = false;
  int64_t blocks = 0;            // many_rows: of the grid
  bool late_dependents = false;  // LeanNormArgs
};

// args.lanes is set by the launcher. rows * cluster_blocks <= kMaxBlocks.
gpu::Error LaunchLeanNorm(const LeanNormArgs& args, DType type,
                          const LeanNormPlan& plan, LeanOutput output,
                          const gpu::LaunchTarget& target);

}  // namespace lamina::norm_internal
