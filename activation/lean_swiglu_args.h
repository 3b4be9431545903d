#pragma once

// SwiGLU as decoders have it, for a GPU kernel of few instructions: at decode
// sizes a kernel's time is that of fetching and issuing them.

#include <cstdint>

#include "lamina/core/dtype.h"
#include "lamina/core/launch.h"
#include "lamina/reduce/row_split.h"

namespace lamina::activation_internal {

// The one output: y, or codes of DeviceInfo::fp8 with f32 scales (static: one).
enum class LeanOutput : uint8_t { kY, kStatic, kPerRow, kPerBlock };

// act is silu, gate and up are halves of a row, F16 or BF16; every matrix is
// flat and can be moved by octets.
struct LeanSwiGluArgs {
  const void* gate = nullptr;
  const void* up = nullptr;
  void* out = nullptr;  // y, or the codes
  float* scales = nullptr;
  // Bytes between rows.
  uint32_t x_pitch = 0;
  uint32_t out_pitch = 0;
  uint32_t rows = 0;
  int32_t cols = 0;  // of the results
  // Dynamic scales.
  float qmax = 0;
  float inverse_qmax = 0;
  float min_scale = 0;
  float scale_ub = 0;
  int32_t col_shift = 0;  // kPerBlock: log2 of the columns that share a scale
  uint32_t scale_row_stride = 0;
  uint32_t scale_col_stride = 0;
  // A row has 2^blocks_log2 blocks. Set by the launcher.
  uint32_t blocks_log2 = 0;
  uint32_t blocks_mask = 0;  // 2^blocks_log2 - 1
};

struct LeanSwiGluVariant {
  LeanOutput output = LeanOutput::kY;
  // kCluster: with kPerRow, when a row has several blocks.
  gpu::RowScope scope = gpu::RowScope::kBlock;
  int columns = 8;  // 4 or 8 adjacent ones of a lane
  int pieces = 1;   // how many times so many it has; kPerRow
  // Blocks go over several rows each and load the next ones early.
  bool many_rows = false;
  int wave_size = 32;

  constexpr bool CompiledFor(bool clusters) const {
    return clusters || scope != gpu::RowScope::kCluster;
  }

  friend constexpr bool operator==(const LeanSwiGluVariant&,
                                   const LeanSwiGluVariant&) = default;
};

inline constexpr LeanSwiGluVariant kLeanSwiGluVariants[] = {
    {.output = LeanOutput::kY, .columns = 4},
    {.output = LeanOutput::kY},
    {.output = LeanOutput::kY, .many_rows = true},
    {.output = LeanOutput::kStatic, .columns = 4},
    {.output = LeanOutput::kStatic},
    {.output = LeanOutput::kStatic, .many_rows = true},
    {.output = LeanOutput::kPerBlock, .columns = 4},
    {.output = LeanOutput::kPerBlock},
    {.output = LeanOutput::kPerBlock, .many_rows = true},
    {.output = LeanOutput::kPerRow, .columns = 4},
    {.output = LeanOutput::kPerRow,
     .scope = gpu::RowScope::kCluster,
     .columns = 4},
    {.output = LeanOutput::kPerRow, .scope = gpu::RowScope::kCluster},
    {.output = LeanOutput::kPerRow, .many_rows = true},
    {.output = LeanOutput::kPerRow, .pieces = 2, .many_rows = true},
};

// How a launch goes about it.
struct LeanSwiGluPlan {
  LeanSwiGluVariant variant = {};  // wave_size: LaunchTarget's counts
  int lanes = 0;                   // of a block
  int blocks_log2 = 0;             // of the blocks that share a row
  int64_t row_groups = 0;          // that many rows at once

  constexpr int64_t row_blocks() const { return int64_t{1} << blocks_log2; }
  constexpr int64_t blocks() const { return row_groups << blocks_log2; }

  friend constexpr bool operator==(const LeanSwiGluPlan&,
                                   const LeanSwiGluPlan&) = default;
};

// Most lanes of a block.
constexpr int MaxLanes(const LeanSwiGluVariant& variant) {
  return variant.output == LeanOutput::kPerRow ? 1024 : 256;
}

// plan.blocks() <= kMaxBlocks.
gpu::Error LaunchLeanSwiGlu(LeanSwiGluArgs args, DType type,
                            const LeanSwiGluPlan& plan,
                            const gpu::LaunchTarget& target);

}  // namespace lamina::activation_internal
