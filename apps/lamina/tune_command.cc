#include "apps/lamina/options.h"
#include "apps/lamina/support.h"
#include "lamina/core/status.h"

namespace lamina::cli {

absl::StatusOr<int> RunTune(const TuneOptions& options) {
  LAMINA_ASSIGN_OR_RETURN([[maybe_unused]] const Stream stream,
                          MakeStream(options));
  return absl::UnavailableError(
      "the cpu backend has no tuning search: its policies are constants "
      "measured in bench/history; a GPU backend will have one");
}

}  // namespace lamina::cli
