#pragma once

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "lamina/core/stream.h"

namespace lamina {

// Runs body(begin, end, thread) over a partition of [0, count) into contiguous
// ranges, at most one for each of the stream's threads, and returns when all
// are done. A range is `grain` items or more (the last may be less), so that
// work too small to share stays on the calling thread. `thread` is in
// [0, stream.num_threads()). Which thread gets which range depends on count,
// grain and the number of threads alone.
void ParallelFor(const Stream& stream, int64_t count, int64_t grain,
                 absl::FunctionRef<void(int64_t, int64_t, int)> body);

}  // namespace lamina
