#pragma once

// What the host hands to the GPU kernels of Quantize: plain values.

#include <cstdint>

#include "lamina/core/launch.h"
#include "lamina/core/span_split.h"
#include "lamina/core/views.h"
#include "lamina/quant/quantized_args.h"
#include "lamina/reduce/row_split.h"

namespace lamina::quant_internal {

struct QuantizeKernelArgs {
  ConstMatrixView x;
  QuantizedArgs out = {};
  // Dynamic per tensor: the maxima of `num_partials` parts of x.
  float* partials = nullptr;
  int num_partials = 0;

  // Of a launch:
  gpu::SpanArgs span = {};
  int64_t span_blocks = 0;  // kAmax: of the whole grid
  int64_t first_row = 0;    // kRow, kLongRow
  int lanes = 0;            // likewise: RowSplit::lanes
};

enum class QuantizeKernel : uint8_t {
  kSpans,    // lanes know nothing of each other (but within a block of columns)
  kRow,      // a dynamic scale a row: the row stays in registers
  kLongRow,  // the same, read twice
  kTile,     // a dynamic scale a tile, which stays in registers
  kAmax,     // partial maxima of the tensor
};

struct QuantizeVariant {
  QuantizeKernel kernel = QuantizeKernel::kSpans;
  gpu::RowScope scope = gpu::RowScope::kBlock;  // kRow, kLongRow
  int octets = 1;                               // kRow, kLongRow
  // x and the codes can be moved by whole octets: aligned, and cols % 8 == 0.
  bool whole = true;
  int wave_size = 32;

  constexpr bool CompiledFor(bool clusters) const {
    return clusters || scope != gpu::RowScope::kCluster;
  }

  friend constexpr bool operator==(const QuantizeVariant&,
                                   const QuantizeVariant&) = default;
};
inline constexpr QuantizeVariant kQuantizeVariants[] = {
    {.kernel = QuantizeKernel::kSpans},
    {.kernel = QuantizeKernel::kSpans, .whole = false},
    {.kernel = QuantizeKernel::kRow,
     .scope = gpu::RowScope::kWave,
     .octets = 1},
    {.kernel = QuantizeKernel::kRow,
     .scope = gpu::RowScope::kBlock,
     .octets = 2},
    {.kernel = QuantizeKernel::kRow,
     .scope = gpu::RowScope::kCluster,
     .octets = 1},
    {.kernel = QuantizeKernel::kRow,
     .scope = gpu::RowScope::kCluster,
     .octets = 2},
    {.kernel = QuantizeKernel::kLongRow,
     .scope = gpu::RowScope::kBlock,
     .octets = 2,
     .whole = false},
    {.kernel = QuantizeKernel::kTile},
    {.kernel = QuantizeKernel::kTile, .whole = false},
    {.kernel = QuantizeKernel::kAmax},
    {.kernel = QuantizeKernel::kAmax, .whole = false},
};

// Threads of a block of kTile and kAmax, and the most of the others.
inline constexpr int kTileThreads = 256;
constexpr int MaxThreads(const QuantizeVariant& variant) {
  switch (variant.kernel) {
    case QuantizeKernel::kSpans:
      return 128;
    case QuantizeKernel::kRow:
      return 1024;
    case QuantizeKernel::kLongRow:
      return 512;
    case QuantizeKernel::kTile:
    case QuantizeKernel::kAmax:
      return kTileThreads;
  }
  return 0;
}

// How a launch goes about it. Dynamic per tensor takes two: kAmax, kSpans.
struct QuantizePlan {
  QuantizeVariant variant = {};  // wave_size: LaunchTarget's counts
  gpu::SpanSplit span = {};      // kSpans, kAmax
  gpu::RowSplit split = {};      // kRow, kLongRow

  friend constexpr bool operator==(const QuantizePlan&,
                                   const QuantizePlan&) = default;
};

// args.x.dtype and the plan pick the kernel; what a launch needs in args is set
// here.
gpu::Error LaunchQuantize(const QuantizeKernelArgs& args,
                          const QuantizePlan& plan,
                          const gpu::LaunchTarget& target);

}  // namespace lamina::quant_internal
