// ReduceRows: the next token's id from a row of logits.

#include <string>
#include <vector>

#include "bench/cases.h"
#include "bench/support/working_sets.h"
#include "lamina/reduce/reduce_rows.h"

namespace lamina::bench {
namespace {

Case ArgMaxCase(int64_t rows, int64_t cols) {
  const auto prepare = [=](int64_t sets, Stream stream) {
    const WorkingSets<float> x(sets, rows * cols);
    auto ids = std::make_shared<std::vector<int64_t>>(rows);
    const Call ours = [=](int64_t set) {
      return ReduceRows({.x = Matrix(x[set], rows, cols),
                         .reduction = RowReduction::kArgMax,
                         .y = Vector(ids->data(), rows)},
                        stream);
    };
    return Calls{.ours = ours};
  };
  return {.op = "reduce_rows",
          .name = "argmax/f32/rows:" + std::to_string(rows) +
                  "/cols:" + std::to_string(cols),
          .dtype = "f32",
          .rows = rows,
          .cols = cols,
          .bytes = 4 * rows * cols,
          .prepare = prepare};
}

}  // namespace

std::vector<Case> ReduceRowsCases() {
  return {ArgMaxCase(1, 49152), ArgMaxCase(1, 128256), ArgMaxCase(8, 128256)};
}

}  // namespace lamina::bench
