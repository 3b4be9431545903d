#pragma once

// The benchmark harness: times each case on cold caches, beside peers and
// beside the limit, all in the same run.
//
// On the CPU a measurement is a row of calls, and the limit the time that
// streaming sums need to read as many bytes (MeasureReadBandwidth). On a GPU it
// is a graph of many calls, and the limit the best kernel that moves the same
// bytes and computes nothing (core/streaming), in the same kind of graph; once
// plainly (mode "graph") and once with overlap (mode "pdl"). Working sets
// rotate through four times the last-level cache; on a GPU through 64 of them
// at most, so that what a few rows of activations need is found in the L2, as
// it is after the kernel before.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "lamina/core/stream.h"
#include "lamina/core/streaming/streaming_args.h"
#include "lamina/core/views.h"

namespace lamina::bench {

// Enqueues one call on working set `set`.
using Call = std::function<absl::Status(int64_t set, const Stream& stream)>;

struct Peer {
  std::string name;  // "plain loop"
  Call call;
};

struct Calls {
  Call ours = {};
  std::vector<Peer> peers = {};
  // Optional, to see that peers compute the same: what a call writes, and how a
  // working set gets its inputs back when calls change them.
  std::function<ConstVectorView(int64_t set)> output = {};
  std::function<void(int64_t set)> reset = {};
};

struct Case {
  std::string op = {};    // "rms_norm"
  std::string name = {};  // "bf16/rows:32/cols:4096"
  std::string dtype = {};
  int64_t rows = 0, cols = 0;  // or
  int64_t m = 0, n = 0, k = 0;
  int64_t bytes = 0;  // what one call has to read and write
  // The same for a GPU's limit; no units: reading `bytes`.
  StreamingTraffic traffic = {};
  int64_t units = 0;
  bool in_place = false;  // the 16 bytes are written where they were read
  // Allocates `sets` working sets. The harness goes round them, so that none
  // is in the caches when its turn comes.
  std::function<Calls(int64_t sets, const Stream& stream)> prepare = {};
};

struct Options {
  std::string op;      // only this operator; empty: all
  std::string filter;  // only cases whose name has this in it
  std::string json;    // file to append to, one object a line; empty: none
};

// Runs the cases on the stream and prints a table. A GPU's stream must not be
// its default stream. False when a call failed (says which).
bool RunCases(const std::vector<Case>& cases, const Options& options,
              const Stream& stream);

}  // namespace lamina::bench
