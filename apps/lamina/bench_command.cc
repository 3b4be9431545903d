#include <cerrno>
#include <cstring>
#include <fstream>
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
  LAMINA_ASSIGN_OR_RETURN(const ChosenStream chosen, ChooseStream(options));
  const Stream stream = chosen.stream;
  const std::vector<bench::Case> cases =
      bench::AllCases(stream.device().backend);
  std::set<std::string> ops;
  for (const bench::Case& item : cases) ops.insert(item.op);
  if (!options.op.empty() && ops.count(options.op) == 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--op ", options.op, ": known operators: ", absl::StrJoin(ops, ", ")));
  }
  if (!options.json_file.empty() &&
      !std::ofstream(options.json_file, std::ios::app)) {
    return absl::InvalidArgumentError(absl::StrCat(
        options.json_file, ": cannot write: ", std::strerror(errno)));
  }
  const bench::Options run{
      .op = options.op, .filter = options.filter, .json = options.json_file};
  return bench::RunCases(cases, run, stream) ? kDone : kCheckFailed;
}

}  // namespace lamina::cli
