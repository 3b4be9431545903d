// Quantize: bf16 rows to FP8 codes, a dynamic scale for each row.

#include <string>
#include <vector>

#include "bench/cases.h"
#include "bench/support/working_sets.h"
#include "lamina/quant/quantize.h"

namespace lamina::bench {
namespace {

Case QuantizeCase(int64_t rows, int64_t cols) {
  const auto prepare = [=](int64_t sets, Stream stream) {
    const WorkingSets<BF16> x(sets, rows * cols);
    const WorkingSets<F8E4M3Fn> codes(sets, rows * cols);
    const WorkingSets<float> scales(sets, rows);
    const Call ours = [=](int64_t set) {
      return Quantize({.x = Matrix(x[set], rows, cols),
                       .out = {.codes = Matrix(codes[set], rows, cols),
                               .scales = PerRow(scales[set]),
                               .dynamic = true}},
                      stream);
    };
    return Calls{.ours = ours};
  };
  return {.op = "quantize",
          .name = "bf16_f8e4m3fn/per_row/rows:" + std::to_string(rows) +
                  "/cols:" + std::to_string(cols),
          .dtype = "bf16_f8e4m3fn",
          .rows = rows,
          .cols = cols,
          .bytes = 3 * rows * cols + 4 * rows,
          .prepare = prepare};
}

}  // namespace

std::vector<Case> QuantizeCases() {
  return {QuantizeCase(1, 4096), QuantizeCase(32, 4096),
          QuantizeCase(32, 14336)};
}

}  // namespace lamina::bench
