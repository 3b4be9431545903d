#include "apps/lamina/options.h"
#include "apps/lamina/support.h"
#include "lamina/core/status.h"

namespace lamina::cli {

absl::StatusOr<int> RunTune(const TuneOptions& options) {
  LAMINA_ASSIGN_OR_RETURN([[maybe_unused]] const Stream stream,
                          MakeStream(options));
  return absl::UnavailableError(
      "there is no tuning search: policies are constants measured in "
      "bench/history");
}

}  // namespace lamina::cli
