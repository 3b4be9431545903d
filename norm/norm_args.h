#pragma once

// What the host hands to the norms' GPU kernels: plain values.

#include <cstdint>

#include "lamina/core/dtype.h"
#include "lamina/core/launch.h"
#include "lamina/core/views.h"
#include "lamina/quant/quantized_args.h"
#include "lamina/reduce/row_split.h"

namespace lamina::norm_internal {

struct NormArgs {
  ConstMatrixView x;
  ConstMatrixView residual;  // AddRmsNorm only
  MatrixView residual_out;   // AddRmsNorm only
  ConstVectorView weight;    // optional
  ConstVectorView bias;      // optional
  bool weight_plus_one = false;
  float epsilon = 0;
  MatrixView y;  // optional
  QuantizedArgs quantized;
  int64_t first_row = 0;  // of this launch
  int lanes = 0;          // RowSplit::lanes
};

// What a kernel is compiled for, beside the type of x.
struct NormVariant {
  gpu::RowScope scope = gpu::RowScope::kBlock;
  int octets = 1;
  // Every operand can be moved by whole octets: aligned, and cols % 8 == 0.
  bool whole = true;
  // The row does not fit its lanes' registers: it is read again for each pass.
  bool long_row = false;
  int wave_size = 32;

  constexpr bool CompiledFor(bool clusters) const {
    return clusters || scope != gpu::RowScope::kCluster;
  }

  friend constexpr bool operator==(const NormVariant&,
                                   const NormVariant&) = default;
};

// How a launch goes about it.
struct NormPlan {
  gpu::RowSplit split;
  bool whole = true;

  constexpr NormVariant Variant(int64_t cols, int wave_size) const {
    const bool long_row = split.columns() < cols;
    return {.scope = split.scope,
            .octets = split.octets,
            .whole = whole && !long_row,
            .long_row = long_row,
            .wave_size = wave_size};
  }
};

// The variants there are, for each wave size.
inline constexpr NormVariant kNormVariants[] = {
    {.scope = gpu::RowScope::kWave, .octets = 1},
    {.scope = gpu::RowScope::kBlock, .octets = 1},
    {.scope = gpu::RowScope::kBlock, .octets = 2},
    {.scope = gpu::RowScope::kCluster, .octets = 1},
    {.scope = gpu::RowScope::kWave, .octets = 1, .whole = false},
    {.scope = gpu::RowScope::kBlock, .octets = 2, .whole = false},
    {.scope = gpu::RowScope::kBlock,
     .octets = 2,
     .whole = false,
     .long_row = true},
};

// The launchers, one a norm: args.x.dtype picks the kernel. first_row and
// lanes are set by them.
gpu::Error LaunchRmsNorm(const NormArgs& args, const NormPlan& plan,
                         const gpu::LaunchTarget& target);
gpu::Error LaunchAddRmsNorm(const NormArgs& args, const NormPlan& plan,
                            const gpu::LaunchTarget& target);
gpu::Error LaunchLayerNorm(const NormArgs& args, const NormPlan& plan,
                           const gpu::LaunchTarget& target);

}  // namespace lamina::norm_internal
