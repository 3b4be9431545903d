#pragma once

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "lamina/core/stream.h"

namespace lamina {

// Runs body(begin, end, range) over a partition of [0, count) into contiguous
// ranges whose sizes differ by one at most, and returns when all are done.
// There are as many ranges as the stream has threads, or fewer, so that each
// holds `grain` items or more; one range (work too small to share) runs on the
// calling thread. The partition depends on count, grain and the number of
// threads alone. `range` is in [0, stream.num_threads()) and belongs to one
// thread at a time: an index for scratch memory.
//
// Within another ParallelFor the ranges run one after the other. The body must
// not throw. Several host threads may call it at once.
void ParallelFor(const Stream& stream, int64_t count, int64_t grain,
                 absl::FunctionRef<void(int64_t, int64_t, int)> body);

}  // namespace lamina
