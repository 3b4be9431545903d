// In place of bench_command.cc in a build without the benchmarks.

#include "absl/status/status.h"
#include "apps/lamina/options.h"

namespace lamina::cli {

absl::StatusOr<int> RunBench(const BenchOptions&) {
  return absl::UnavailableError(
      "this build has no benchmarks; configure with -DLAMINA_BUILD_BENCH=ON");
}

}  // namespace lamina::cli
