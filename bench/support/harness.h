#pragma once

// The CPU benchmark harness: times each case on cold caches, beside a peer and
// beside the limit, all in the same run.
//
// The limit of a case is the time that streaming sums need to read as many
// bytes (MeasureReadBandwidth), measured just before the case.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "lamina/core/stream.h"

namespace lamina::bench {

// One call on working set `set`.
using Call = std::function<absl::Status(int64_t set)>;

struct Calls {
  Call ours = {};
  Call peer = {};  // optional
};

struct Case {
  std::string op = {};    // "rms_norm"
  std::string name = {};  // "bf16/rows:32/cols:4096"
  std::string dtype = {};
  int64_t rows = 0, cols = 0;  // or
  int64_t m = 0, n = 0, k = 0;
  int64_t bytes = 0;      // what one call has to read and write
  std::string peer = {};  // "plain loop"; empty without one
  // Allocates `sets` working sets. The harness goes round them, so that none
  // is in the caches when its turn comes.
  std::function<Calls(int64_t sets, Stream stream)> prepare = {};
};

struct Options {
  std::string op;    // only this operator; empty: all
  std::string json;  // file to append to, one object a line; empty: none
  int threads = 0;   // 0: all usable cores
  int repeats = 7;   // the median counts
};

// Runs the cases and prints a table. False when a call failed (says which).
bool RunCases(const std::vector<Case>& cases, const Options& options);

}  // namespace lamina::bench
