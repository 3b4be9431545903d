#pragma once

// SwiGLU as decoders have it: silu, gate and up halves of a row, F16 or BF16.

#include "lamina/core/dtype.h"
#include "lamina/core/launch.h"
#include "lamina/quant/lean_rows_args.h"

namespace lamina::activation_internal {

gpu::Error LaunchLeanSwiGlu(const quant_internal::LeanRowsArgs& args,
                            DType type,
                            const quant_internal::LeanRowsPlan& plan,
                            const gpu::LaunchTarget& target);

}  // namespace lamina::activation_internal
