// GatedActivation: SwiGLU of a Llama-3-8B block, plain and into FP8.

#include <string>
#include <vector>

#include "bench/cases.h"
#include "bench/support/working_sets.h"
#include "lamina/activation/gated_activation.h"

namespace lamina::bench {
namespace {

Case SwiGluCase(int64_t rows, int64_t cols, bool quantized) {
  const std::string dtype = quantized ? "bf16_f8e4m3fn" : "bf16";
  const auto prepare = [=](int64_t sets, Stream stream) {
    const WorkingSets<BF16> x(sets, 2 * rows * cols);
    const WorkingSets<BF16> y(sets, quantized ? 0 : rows * cols);
    const WorkingSets<F8E4M3Fn> codes(sets, quantized ? rows * cols : 0);
    const WorkingSets<float> scales(sets, rows);
    const Call ours = [=](int64_t set) {
      GatedActivationArgs args{.x = Matrix(x[set], rows, 2 * cols)};
      if (quantized) {
        args.quantized = {.codes = Matrix(codes[set], rows, cols),
                          .scales = PerRow(scales[set]),
                          .dynamic = true};
      } else {
        args.y = Matrix(y[set], rows, cols);
      }
      return GatedActivation(args, stream);
    };
    return Calls{.ours = ours};
  };
  return {.op = "gated_activation",
          .name = dtype + "/silu/rows:" + std::to_string(rows) +
                  "/cols:" + std::to_string(cols),
          .dtype = dtype,
          .rows = rows,
          .cols = cols,
          .bytes = (quantized ? 5 : 6) * rows * cols,
          .prepare = prepare};
}

}  // namespace

std::vector<Case> GatedActivationCases() {
  std::vector<Case> cases;
  for (const int64_t rows : {1, 8, 32}) {
    cases.push_back(SwiGluCase(rows, 14336, false));
    cases.push_back(SwiGluCase(rows, 14336, true));
  }
  return cases;
}

}  // namespace lamina::bench
