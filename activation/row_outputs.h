#pragma once

// The outputs that both operators of this library have, and their checks.

#include <cstdint>

#include "absl/status/status.h"
#include "lamina/core/views.h"
#include "lamina/quant/scale.h"

namespace lamina::activation_internal {

struct RowOutputs {
  MatrixView y = {};
  QuantizedOutput quantized = {};
};

// Checks y (shape, dtype of x), quantized and every overlap, for results of
// `cols` columns; x has been checked.
absl::Status CheckRowOutputs(const char* op, const RowOutputs& out,
                             const ConstMatrixView& x, int64_t cols,
                             bool in_place_ok);

}  // namespace lamina::activation_internal
