#pragma once

// Quantize as decoders have it: F16 or BF16 rows to codes of the hardware's FP8
// type.

#include "lamina/core/dtype.h"
#include "lamina/core/launch.h"
#include "lamina/quant/lean_rows_args.h"

namespace lamina::quant_internal {

gpu::Error LaunchLeanQuantize(const LeanRowsArgs& args, DType type,
                              const LeanRowsPlan& plan,
                              const gpu::LaunchTarget& target);

}  // namespace lamina::quant_internal
