#pragma once

#include "absl/status/status.h"
#include "lamina/core/dispatch.h"
#include "lamina/core/dtype.h"
#include "lamina/quant/dequantize.h"

namespace lamina::quant_internal {

// codes, y.
using DequantizeTable =
    Table<Types<F8E4M3Fn, float>, Types<F8E4M3Fn, F16>, Types<F8E4M3Fn, BF16>,
          Types<F8E5M2, float>, Types<F8E5M2, F16>, Types<F8E5M2, BF16>,
          Types<F8E4M3Fnuz, float>, Types<F8E4M3Fnuz, F16>,
          Types<F8E4M3Fnuz, BF16>,  //
          Types<F8E5M2Fnuz, float>, Types<F8E5M2Fnuz, F16>,
          Types<F8E5M2Fnuz, BF16>,  //
          Types<int8_t, float>, Types<int8_t, F16>, Types<int8_t, BF16>>;

// Backends; the arguments have been checked.
void DequantizeCpu(const DequantizeArgs& args, const Stream& stream);
absl::Status DequantizeGpu(const DequantizeArgs& args, const Stream& stream);

}  // namespace lamina::quant_internal
