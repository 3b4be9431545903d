#pragma once

// Rows of results that depend on their own columns, as decoders have them, for
// a GPU kernel of few instructions: at decode sizes a kernel's time is that of
// fetching and issuing them. What a result is: a Source of quant/lean_rows.cuh.

#include <cstdint>

#include "lamina/core/dtype.h"
#include "lamina/core/launch.h"
#include "lamina/quant/lean_output.h"
#include "lamina/reduce/row_split.h"

namespace lamina::quant_internal {

// Inputs are F16 or BF16, codes are of DeviceInfo::fp8; every matrix is flat
// and can be moved by octets.
struct LeanRowsArgs {
  const void* x = nullptr;   // SwiGLU: gate
  const void* up = nullptr;  // of a second input, with x's pitch
  void* out = nullptr;       // y, or the codes
  float* scales = nullptr;
  // Set by the launcher: what the kernel is compiled for.
  DType type = DType::kBF16;
  LeanOutput output = LeanOutput::kY;
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
  // Dependents may start when results are known, rather than at once.
  bool late_dependents = false;
  // A row has 2^blocks_log2 blocks. Set by the launcher.
  uint32_t blocks_log2 = 0;
  uint32_t blocks_mask = 0;  // 2^blocks_log2 - 1
};

struct LeanRowsVariant {
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
  // Of sources with so many inputs. One input is quantised, and has too little
  // to compute for four columns a lane, or early loads, to help.
  constexpr bool CompiledForInputs(int inputs) const {
    if (inputs == 2) return pieces <= 2;
    return output != LeanOutput::kY && columns == 8 && !many_rows;
  }

  friend constexpr bool operator==(const LeanRowsVariant&,
                                   const LeanRowsVariant&) = default;
};

inline constexpr LeanRowsVariant kLeanRowsVariants[] = {
    {.output = LeanOutput::kY, .columns = 4},
    {.output = LeanOutput::kY},
    {.output = LeanOutput::kY, .many_rows = true},
    {.output = LeanOutput::kStatic, .columns = 4},
    {.output = LeanOutput::kStatic},
    {.output = LeanOutput::kStatic, .many_rows = true},
    {.output = LeanOutput::kPerBlock, .columns = 4},
    {.output = LeanOutput::kPerBlock},
    {.output = LeanOutput::kPerBlock, .many_rows = true},
    {.output = LeanOutput::kPerRow, .scope = gpu::RowScope::kCluster},
    {.output = LeanOutput::kPerRow},
    {.output = LeanOutput::kPerRow, .pieces = 2},
    {.output = LeanOutput::kPerRow, .pieces = 4},
    {.output = LeanOutput::kPerRow, .pieces = 2, .many_rows = true},
};

// How a launch goes about it.
struct LeanRowsPlan {
  LeanRowsVariant variant = {};  // wave_size: LaunchTarget's counts
  int lanes = 0;                 // of a block
  int blocks_log2 = 0;           // of the blocks that share a row
  int64_t row_groups = 0;        // that many rows at once
  bool late_dependents = false;  // LeanRowsArgs

  constexpr int64_t row_blocks() const { return int64_t{1} << blocks_log2; }
  constexpr int64_t blocks() const { return row_groups << blocks_log2; }

  friend constexpr bool operator==(const LeanRowsPlan&,
                                   const LeanRowsPlan&) = default;
};

// Most lanes of a block.
constexpr int MaxLanes(const LeanRowsVariant& variant) {
  if (variant.output == LeanOutput::kPerRow) return 1024;
  return variant.columns == 4 ? 512 : 256;
}
// Blocks of so many lanes that a unit should have registers for (NVIDIA: 32 a
// lane; in the loops 48, and 64 with the conversions of f16).
constexpr int BlocksAUnit(const LeanRowsVariant& variant, DType type) {
  if (variant.output == LeanOutput::kPerRow) return 1;
  if (variant.many_rows) return type == DType::kF16 ? 4 : 5;
  return variant.columns == 4 ? 4 : 8;
}

}  // namespace lamina::quant_internal
