// AddRmsNorm as a decoder block uses it: the residual in place, the normalised
// row in FP8 with a scale of its own.

#include <string>
#include <vector>

#include "bench/cases.h"
#include "bench/support/working_sets.h"
#include "lamina/norm/add_rms_norm.h"

namespace lamina::bench {
namespace {

Case AddRmsNormCase(int64_t rows, int64_t cols) {
  const auto prepare = [=](int64_t sets, Stream stream) {
    const WorkingSets<BF16> x(sets, rows * cols);
    const WorkingSets<BF16> residual(sets, rows * cols);
    const WorkingSets<BF16> weight(1, cols);
    const WorkingSets<F8E4M3Fn> codes(sets, rows * cols);
    const WorkingSets<float> scales(sets, rows);
    const Call ours = [=](int64_t set) {
      return AddRmsNorm({.x = Matrix(x[set], rows, cols),
                         .residual = Matrix(residual[set], rows, cols),
                         .residual_out = Matrix(residual[set], rows, cols),
                         .weight = Vector(weight[0], cols),
                         .quantized = {.codes = Matrix(codes[set], rows, cols),
                                       .scales = PerRow(scales[set]),
                                       .dynamic = true}},
                        stream);
    };
    return Calls{.ours = ours};
  };
  // x and the residual are read; the residual, codes and scales written.
  return {.op = "add_rms_norm",
          .name = "bf16_f8e4m3fn/rows:" + std::to_string(rows) +
                  "/cols:" + std::to_string(cols),
          .dtype = "bf16_f8e4m3fn",
          .rows = rows,
          .cols = cols,
          .bytes = 7 * rows * cols + 2 * cols + 4 * rows,
          .prepare = prepare};
}

}  // namespace

std::vector<Case> AddRmsNormCases() {
  std::vector<Case> cases;
  for (const int64_t rows : {1, 8, 32}) {
    cases.push_back(AddRmsNormCase(rows, 4096));
  }
  return cases;
}

}  // namespace lamina::bench
