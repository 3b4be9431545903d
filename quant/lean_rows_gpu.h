#pragma once

// When rows go to the lean kernels (quant/lean_rows_args.h): host side.

#include <cstdint>
#include <optional>

#include "lamina/core/device.h"
#include "lamina/core/views.h"
#include "lamina/quant/lean_rows_args.h"
#include "lamina/quant/quantized_args.h"

namespace lamina::quant_internal {

// The output, when it is one that lean kernels of any operator have.
std::optional<LeanOutput> LeanOutputOf(const MatrixView& y,
                                       const QuantizedArgs& quantized);

// A flat matrix whose rows are less than 4 GiB apart, and these bytes.
bool IsLean(const ConstMatrixView& view);
uint32_t LeanPitch(const ConstMatrixView& view);

struct LeanRowsInput {
  ConstMatrixView x;            // flattened; its data and columns are not read
  const void* first = nullptr;  // element of row 0 for column 0 of the results
  const void* up = nullptr;     // the same of a second input
  int64_t cols = 0;             // of the results
};
struct LeanRowsCall {
  LeanRowsArgs args;
  LeanRowsPlan plan;
};
// Every operand can be moved by octets; y or the codes may be absent.
std::optional<LeanRowsCall> SelectLeanRows(const LeanRowsInput& input,
                                           const MatrixView& y,
                                           const QuantizedArgs& quantized,
                                           const DeviceInfo& device);

}  // namespace lamina::quant_internal
