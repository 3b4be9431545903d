#include "absl/status/status.h"
#include "apps/lamina/options.h"
namespace lamina::cli {
absl::StatusOr<int> RunBench(const BenchOptions&) {
  return absl::UnimplementedError("bench: not yet");
}
}  // namespace lamina::cli
