#pragma once

// What the host hands to the GPU kernels of ConvertFp8Dialect: plain values.

#include <cstdint>

#include "lamina/core/launch.h"
#include "lamina/core/span_split.h"
#include "lamina/core/views.h"
#include "lamina/quant/fp8.h"
#include "lamina/quant/quantized_args.h"

namespace lamina::quant_internal {

struct ConvertCodesArgs {
  ConstMatrixView codes;
  MatrixView out_codes;
  Fp8Format from;
  Fp8Format to;
  gpu::SpanArgs span = {};  // of a launch
};

// A grid of scales, one a thread.
struct ConvertScalesArgs {
  ScaleArgs scales;
  ScaleArgs out_scales;
  int64_t rows = 0;
  int64_t cols = 0;
  float factor = 1;
};

// `whole`: codes can be moved eight at a time.
gpu::Error LaunchConvertCodes(const ConvertCodesArgs& args,
                              const gpu::SpanSplit& split, bool whole,
                              const gpu::LaunchTarget& target);
gpu::Error LaunchConvertScales(const ConvertScalesArgs& args,
                               const gpu::LaunchTarget& target);

}  // namespace lamina::quant_internal
