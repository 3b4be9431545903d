#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "lamina/core/stream.h"
#include "lamina/core/views.h"

namespace lamina {

enum class RowReduction : uint8_t {
  kSum,
  kSumOfSquares,
  kMean,
  kMax,
  kAbsMax,
  kArgMax,  // index of the first largest element
};

struct ReduceRowsArgs {
  ConstMatrixView x;  // [batch, rows, cols]: f32, f16, bf16
  RowReduction reduction = RowReduction::kSum;
  VectorView y;       // [batch * rows]: kF32; kI64 for kArgMax
};
[[nodiscard]] absl::Status ReduceRows(const ReduceRowsArgs& args,
                                      Stream stream);

}  // namespace lamina
