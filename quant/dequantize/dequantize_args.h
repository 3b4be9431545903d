#pragma once

// What the host hands to the GPU kernels of Dequantize: plain values.

#include "lamina/core/launch.h"
#include "lamina/core/span_split.h"
#include "lamina/core/views.h"
#include "lamina/quant/quantized_args.h"

namespace lamina::quant_internal {

struct DequantizeKernelArgs {
  ConstMatrixView codes;
  ScaleArgs scales;  // read
  MatrixView y;
  gpu::SpanArgs span = {};  // of a launch
};

// args.y.dtype picks the kernel; `whole`: codes and y can be moved by whole
// octets (aligned, and cols % 8 == 0).
gpu::Error LaunchDequantize(const DequantizeKernelArgs& args,
                            const gpu::SpanSplit& split, bool whole,
                            const gpu::LaunchTarget& target);

}  // namespace lamina::quant_internal
