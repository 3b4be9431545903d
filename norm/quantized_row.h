#pragma once

// Quantised rows of the CPU norms. A row is handed over chunk by chunk, through
// a function that knows the operator and its types, so that the quantising
// store is compiled once for each type of codes and not for each combination.

#include <cstdint>

#include "lamina/quant/scale.h"

namespace lamina::norm_internal {

struct ChunkedRow {
  // Whole blocks of any size, and most rows whole: a row with dynamic scales is
  // then computed once. 16 KB; 15 % faster than 256 at (512, 1592), f16
  // (AMD EPYC, AVX2, 2026-11-30).
  static constexpr int64_t kChunk = 4096;

  const void* row;
  // Writes the fp32 values of columns [begin, end), at most kChunk of them, to
  // values[0, end - begin).
  void (*fill)(const void* row, int64_t begin, int64_t end, float* values);
};

// Writes codes and dynamic scales of one flat row. The values are used as they
// are: `fill` has rounded them if out.round_before_quant. With dynamic scales
// per row a chunk is asked for twice if there are several.
void StoreQuantizedRow(const QuantizedOutput& out, int64_t flat_row,
                       int64_t cols, ChunkedRow row);

}  // namespace lamina::norm_internal
