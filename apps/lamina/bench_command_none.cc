// In place of bench_command.cc in a build without the benchmarks.

#include "absl/status/status.h"
#include "apps/lamina/options.h"
#include "apps/lamina/support.h"
#include "lamina/core/status.h"

namespace lamina::cli {

absl::StatusOr<int> RunBench(const BenchOptions& options) {
  LAMINA_RETURN_IF_ERROR(ChooseDevice(options).status());
  return absl::UnavailableError(
      "this build has no benchmarks; configure with -DLAMINA_BUILD_BENCH=ON");
}

}  // namespace lamina::cli
