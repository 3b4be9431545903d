#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "apps/lamina/options.h"
#include "apps/lamina/support.h"
#include "bench/cases.h"
#include "lamina/core/status.h"

namespace lamina::cli {

absl::StatusOr<int> RunBench(const BenchOptions& options) {
  LAMINA_ASSIGN_OR_RETURN(const Stream stream, MakeStream(options));
  const std::vector<bench::Case> cases = bench::AllCases();
  std::set<std::string> ops;
  for (const bench::Case& item : cases) ops.insert(item.op);
  if (!options.op.empty() && ops.count(options.op) == 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--op ", options.op, ": known operators: ", absl::StrJoin(ops, ", ")));
  }
  bench::Options run;
  run.op = options.op;
  run.json = options.json_file;
  run.threads = stream.num_threads();
  return bench::RunCases(cases, run) ? kDone : kCheckFailed;
}

}  // namespace lamina::cli
