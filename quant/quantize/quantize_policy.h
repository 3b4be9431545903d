#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "lamina/core/dispatch.h"
#include "lamina/core/dtype.h"
#include "lamina/quant/quantize.h"

namespace lamina::quant_internal {

// x, codes.
using QuantizeTable =
    Table<Types<float, F8E4M3Fn>, Types<float, F8E5M2>,
          Types<float, F8E4M3Fnuz>, Types<float, F8E5M2Fnuz>,
          Types<float, int8_t>,  //
          Types<F16, F8E4M3Fn>, Types<F16, F8E5M2>, Types<F16, F8E4M3Fnuz>,
          Types<F16, F8E5M2Fnuz>, Types<F16, int8_t>,  //
          Types<BF16, F8E4M3Fn>, Types<BF16, F8E5M2>, Types<BF16, F8E4M3Fnuz>,
          Types<BF16, F8E5M2Fnuz>, Types<BF16, int8_t>>;

// Backends; the arguments have been checked.
void QuantizeCpu(const QuantizeArgs& args, const Stream& stream);
absl::Status QuantizeGpu(const QuantizeArgs& args, const Stream& stream);
// The problem has been checked.
int64_t QuantizeGpuWorkspaceBytes(const QuantizeProblem& problem);

}  // namespace lamina::quant_internal
