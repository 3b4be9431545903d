#pragma once

// What the host hands to the GPU kernels of this library: plain values. One
// family of kernels serves both operators; they differ in where a result comes
// from.

#include <cstdint>

#include "lamina/core/gate.h"
#include "lamina/core/launch.h"
#include "lamina/core/span_split.h"
#include "lamina/core/views.h"
#include "lamina/quant/quantized_args.h"
#include "lamina/reduce/row_split.h"

namespace lamina::activation_internal {

// Which elements of a row of x make a result.
enum class RowInput : uint8_t {
  kPlain,        // act(x)
  kHalves,       // act(gate) * up
  kInterleaved,  // the same, gate and up in turn
};

struct RowKernelArgs {
  ConstMatrixView x;
  RowInput input = RowInput::kPlain;
  GateSpec gate = {};      // kPlain: gate.kind is the activation
  int64_t gate_begin = 0;  // first column of x, kHalves and kPlain
  int64_t up_begin = 0;    // kHalves
  int64_t cols = 0;        // of the results
  MatrixView y = {};       // optional
  QuantizedArgs quantized = {};

  // Of a launch:
  gpu::SpanArgs span = {};  // kSpans
  int64_t first_row = 0;    // otherwise
  int lanes = 0;            // otherwise: RowSplit::lanes
};

enum class RowKernel : uint8_t {
  kSpans,    // lanes know nothing of each other (but within a block of columns)
  kRow,      // one scale a row: the row stays in registers
  kLongRow,  // one scale a row, computed twice
};

// What a kernel is compiled for, beside the type of x.
struct RowKernelVariant {
  RowKernel kernel = RowKernel::kSpans;
  gpu::RowScope scope = gpu::RowScope::kBlock;  // not kSpans
  int octets = 1;                               // not kSpans
  // Every operand can be moved by whole octets: aligned, and cols % 8 == 0.
  bool whole = true;
  // act is silu, gate and up are halves: compiled for that alone.
  bool swiglu = false;
  int wave_size = 32;

  constexpr bool CompiledFor(bool clusters) const {
    return clusters || scope != gpu::RowScope::kCluster;
  }

  friend constexpr bool operator==(const RowKernelVariant&,
                                   const RowKernelVariant&) = default;
};

inline constexpr RowKernelVariant kRowKernelVariants[] = {
    {.kernel = RowKernel::kSpans},
    {.kernel = RowKernel::kSpans, .swiglu = true},
    {.kernel = RowKernel::kSpans, .whole = false},
    {.kernel = RowKernel::kRow, .scope = gpu::RowScope::kWave, .octets = 1},
    {.kernel = RowKernel::kRow, .scope = gpu::RowScope::kBlock, .octets = 2},
    {.kernel = RowKernel::kRow,
     .scope = gpu::RowScope::kBlock,
     .octets = 2,
     .swiglu = true},
    {.kernel = RowKernel::kRow,
     .scope = gpu::RowScope::kBlock,
     .octets = 4,
     .swiglu = true},
    {.kernel = RowKernel::kRow, .scope = gpu::RowScope::kCluster, .octets = 1},
    {.kernel = RowKernel::kRow, .scope = gpu::RowScope::kCluster, .octets = 2},
    {.kernel = RowKernel::kLongRow,
     .scope = gpu::RowScope::kBlock,
     .octets = 2,
     .whole = false},
};

// How a launch goes about it.
struct RowKernelPlan {
  RowKernelVariant variant = {};  // wave_size: LaunchTarget's counts
  gpu::SpanSplit span = {};       // kSpans
  gpu::RowSplit split = {};       // otherwise

  friend constexpr bool operator==(const RowKernelPlan&,
                                   const RowKernelPlan&) = default;
};

// Most threads of a block of a kernel.
constexpr int MaxThreads(const RowKernelVariant& variant) {
  switch (variant.kernel) {
    case RowKernel::kSpans:
      return 128;
    case RowKernel::kRow:
      return variant.octets == 4 ? 512 : 1024;
    case RowKernel::kLongRow:
      return 512;
  }
  return 0;
}

// One a type of x. What a launch needs in args is set by them.
gpu::Error LaunchRowKernelF32(const RowKernelArgs& args,
                              const RowKernelPlan& plan,
                              const gpu::LaunchTarget& target);
gpu::Error LaunchRowKernelF16(const RowKernelArgs& args,
                              const RowKernelPlan& plan,
                              const gpu::LaunchTarget& target);
gpu::Error LaunchRowKernelBf16(const RowKernelArgs& args,
                               const RowKernelPlan& plan,
                               const gpu::LaunchTarget& target);

}  // namespace lamina::activation_internal
