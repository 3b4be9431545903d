#pragma once

// Scalar model of the quantising store: the rule of quant/scale.h in plain
// loops over the constexpr conversions. Results must equal it bit for bit.

#include <cstdint>
#include <vector>

#include "lamina/core/dtype.h"
#include "lamina/core/views.h"
#include "lamina/quant/scale.h"

namespace lamina::testing {

// Quantises `values` (dense [out.codes.total_rows(), out.codes.cols], the
// operator's fp32 results) to out.codes and, when dynamic, out.scales.
// `round_type` is the operator's type, for out.round_before_quant. Every
// granularity works.
void QuantizeReference(const std::vector<float>& values, DType round_type,
                       const QuantizedOutput& out);

// Rounds to f32, f16 or bf16 and back.
float RoundToType(float value, DType type);
// An element of one of these types or of CodeTable, exactly.
float ElementAsFloat(const ConstMatrixView& matrix, int64_t row, int64_t col);

}  // namespace lamina::testing
