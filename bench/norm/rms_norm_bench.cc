// RmsNorm beside a plain loop: the shapes of prefill (512 rows; 1592 columns
// are no multiple of a vector) and of decoding.

#include <cmath>
#include <string>
#include <vector>

#include "bench/cases.h"
#include "bench/support/working_sets.h"
#include "lamina/core/float16.h"
#include "lamina/norm/rms_norm.h"

namespace lamina::bench {
namespace {

constexpr float kEpsilon = 1e-5f;

// As one would write it: two passes over a row, one thread.
template <class T>
void PlainLoop(const T* x, const T* weight, T* y, int64_t rows, int64_t cols) {
  for (int64_t r = 0; r < rows; ++r) {
    float sum = 0;
    for (int64_t c = 0; c < cols; ++c) {
      const float v = ToFloat(x[r * cols + c]);
      sum += v * v;
    }
    const float scale =
        1 / std::sqrt(sum / static_cast<float>(cols) + kEpsilon);
    for (int64_t c = 0; c < cols; ++c) {
      y[r * cols + c] =
          FromFloat<T>(ToFloat(x[r * cols + c]) * scale * ToFloat(weight[c]));
    }
  }
}

template <class T>
Case RmsNormCase(int64_t rows, int64_t cols) {
  const std::string dtype = Name(DTypeOf<T>::value);
  const auto prepare = [=](int64_t sets, Stream stream) {
    const WorkingSets<T> x(sets, rows * cols);
    const WorkingSets<T> y(sets, rows * cols);
    const WorkingSets<T> weight(1, cols);
    const Call ours = [=](int64_t set) {
      return RmsNorm({.x = Matrix(x[set], rows, cols),
                      .weight = Vector(weight[0], cols),
                      .epsilon = kEpsilon,
                      .y = Matrix(y[set], rows, cols)},
                     stream);
    };
    const Call peer = [=](int64_t set) {
      PlainLoop(x[set], weight[0], y[set], rows, cols);
      return absl::OkStatus();
    };
    return Calls{ours, peer};
  };
  return {.op = "rms_norm",
          .name = dtype + "/rows:" + std::to_string(rows) +
                  "/cols:" + std::to_string(cols),
          .dtype = dtype,
          .rows = rows,
          .cols = cols,
          .bytes = BytesFor(DTypeOf<T>::value, (2 * rows + 1) * cols),
          .peer = "plain loop",
          .prepare = prepare};
}

}  // namespace

std::vector<Case> RmsNormCases() {
  std::vector<Case> cases;
  for (const int64_t cols : {1592, 2048}) {
    cases.push_back(RmsNormCase<float>(512, cols));
    cases.push_back(RmsNormCase<F16>(512, cols));
  }
  for (const int64_t rows : {1, 8, 32}) {
    cases.push_back(RmsNormCase<BF16>(rows, 4096));
  }
  return cases;
}

}  // namespace lamina::bench
