#pragma once

// The quantising store as a plain function, for CPU operators whose fp32
// results lie in memory. See quant/scale.h for the rule.

#include <cstdint>

#include "lamina/core/dtype.h"
#include "lamina/quant/scale.h"

namespace lamina {

// Columns [begin, end) of one flat row.
struct QuantizedSpan {
  int64_t row = 0;
  int64_t begin = 0;
  int64_t end = 0;
};

// Quantises values[0, end - begin) to columns [begin, end) of row span.row of
// `out`, and writes the scales when they are dynamic: the span must then hold
// whole groups (the row, or whole blocks; not scales that rows share).
// `round_type` (f32, f16 or bf16) is the operator's type, which
// out.round_before_quant rounds to. `out` has been checked.
void StoreQuantizedSpan(const QuantizedOutput& out, QuantizedSpan span,
                        const float* values, DType round_type);

}  // namespace lamina
