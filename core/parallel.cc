#include "lamina/core/parallel.h"

#include <omp.h>

#include <algorithm>

#include "lamina/core/math.h"

namespace lamina {

void ParallelFor(const Stream& stream, int64_t count, int64_t grain,
                 absl::FunctionRef<void(int64_t, int64_t, int)> body) {
  if (count <= 0) return;
  const int64_t ranges = std::min<int64_t>(
      stream.num_threads(),
      std::max<int64_t>(1, count / std::max<int64_t>(1, grain)));
  if (ranges == 1) {
    body(0, count, 0);
    return;
  }
  // The first `extra` ranges hold one item more.
  const int64_t base = count / ranges;
  const int64_t extra = count % ranges;
  const auto run = [&](int64_t range) {
    const int64_t begin = range * base + std::min(range, extra);
    body(begin, begin + base + (range < extra ? 1 : 0),
         static_cast<int>(range));
  };
  // NOTE: the runtime may give fewer threads than asked for (nested regions,
  // limits); each thread then takes several ranges.
#pragma omp parallel num_threads(static_cast <int>(ranges))
  {
    const int threads = omp_get_num_threads();
    for (int64_t r = omp_get_thread_num(); r < ranges; r += threads) run(r);
  }
}

}  // namespace lamina
