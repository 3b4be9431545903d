// ReduceRows: the next token's id from a row of logits, and sums of rows.

#include <string>
#include <vector>

#include "bench/cases.h"
#include "bench/peers/peer_calls.h"
#include "bench/support/quantized_sets.h"
#include "bench/support/working_sets.h"
#include "lamina/reduce/reduce_rows.h"

namespace lamina::bench {
namespace {

// cub::DeviceSegmentedReduce on the same rows.
std::vector<Peer> SegmentedSum(const WorkingSets<float>& x,
                               const WorkingSets<float>& y, int64_t rows,
                               int64_t cols, const Stream& stream) {
  std::vector<Peer> peers;
  if (!HasGpuPeers(stream)) return peers;
  if constexpr (kHasCuda) {
    size_t bytes = 0;
    const SegmentedSumArgs query{.rows = rows, .cols = cols};
    if (!LaunchSegmentedSum(query, &bytes, TargetOf(stream)).ok()) return peers;
    // At least a byte: without scratch nothing is computed.
    const WorkingSets<F8E4M3Fn> scratch(stream, 1,
                                        static_cast<int64_t>(bytes) + 1);
    peers.push_back({"CUB segmented", [=](int64_t set, const Stream& on) {
                       size_t given = bytes;
                       return ToStatus(
                           "CUB", LaunchSegmentedSum({.x = x[set],
                                                      .y = y[set],
                                                      .rows = rows,
                                                      .cols = cols,
                                                      .scratch = scratch[0]},
                                                     &given, TargetOf(on)));
                     }});
  }
  return peers;
}

Case SumCase(int64_t rows, int64_t cols) {
  const auto prepare = [=](int64_t sets, const Stream& stream) {
    const WorkingSets<float> x(stream, sets, rows * cols);
    const WorkingSets<float> y(stream, sets, rows);
    Calls calls;
    calls.ours = [=](int64_t set, const Stream& on) {
      return ReduceRows({.x = Matrix(x[set], rows, cols),
                         .reduction = RowReduction::kSum,
                         .y = Vector(y[set], rows)},
                        on);
    };
    calls.peers = SegmentedSum(x, y, rows, cols, stream);
    calls.output = [=](int64_t set) { return Vector(y[set], rows); };
    return calls;
  };
  return {.op = "reduce_rows",
          .name = ShapeName("sum/f32", rows, cols),
          .dtype = "f32",
          .rows = rows,
          .cols = cols,
          .bytes = 4 * rows * cols,
          .prepare = prepare};
}

Case ArgMaxCase(int64_t rows, int64_t cols) {
  const auto prepare = [=](int64_t sets, const Stream& stream) {
    const WorkingSets<float> x(stream, sets, rows * cols);
    const WorkingSets<int64_t> ids(stream, 1, rows);
    const Call ours = [=](int64_t set, const Stream& on) {
      return ReduceRows({.x = Matrix(x[set], rows, cols),
                         .reduction = RowReduction::kArgMax,
                         .y = Vector(ids[0], rows)},
                        on);
    };
    return Calls{.ours = ours};
  };
  return {.op = "reduce_rows",
          .name = ShapeName("argmax/f32", rows, cols),
          .dtype = "f32",
          .rows = rows,
          .cols = cols,
          .bytes = 4 * rows * cols,
          .prepare = prepare};
}

}  // namespace

std::vector<Case> ReduceRowsCases(Backend backend) {
  std::vector<Case> cases = {ArgMaxCase(1, 49152), ArgMaxCase(1, 128256),
                             ArgMaxCase(8, 128256)};
  if (backend == Backend::kCpu) return cases;
  cases.push_back(SumCase(1, 128256));
  cases.push_back(SumCase(512, 2048));
  cases.push_back(SumCase(4096, 4096));
  cases.push_back(SumCase(16384, 128));
  return cases;
}

}  // namespace lamina::bench
