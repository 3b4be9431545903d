#pragma once

// Time on a GPU, as nodes of a graph, and the limit beside it.

#include <cstdint>

#include "absl/status/statusor.h"
#include "bench/support/timing.h"
#include "lamina/core/stream.h"
#include "lamina/core/streaming/streaming_args.h"

namespace lamina::bench {

inline constexpr int kGraphRepeats = 15;

// Working sets of so many bytes that rotate through four times the L2, at least
// 2, at most 64.
int64_t SetsFor(int64_t bytes, const Stream& stream);
// Nodes of a graph: a multiple of the sets, 64 or about 2 ms of them.
int64_t NodesFor(int64_t bytes, int64_t sets);

// Microseconds a node of a graph of `nodes` calls. The stream is not the
// vendor's default stream.
absl::StatusOr<Timing> MeasureGraph(const Call& call, int64_t nodes,
                                    int64_t sets, int repeats,
                                    const Stream& stream);

struct Traffic {
  StreamingTraffic arrays = {};
  int64_t units = 0;
  bool in_place = false;
};
// Microseconds of the best kernel that moves these bytes and does nothing else,
// in the same kind of graph. Measured once for each size.
absl::StatusOr<double> StreamingLimit(const Traffic& traffic, int64_t nodes,
                                      int64_t sets, const Stream& stream);

}  // namespace lamina::bench
