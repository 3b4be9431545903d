#pragma once

// Repeated measurements, and what a case's come to.

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "bench/support/harness.h"

namespace lamina::bench {

struct Timing {
  double us = 0;     // median of the repetitions
  double noise = 0;  // half of their range, as a part of the median
};

Timing Summarise(std::vector<double> us);

// Microseconds a call, measured once.
using MeasureOnce = std::function<absl::StatusOr<double>()>;
absl::StatusOr<Timing> Repeat(int repeats, const MeasureOnce& once);

struct Result {
  std::string mode = {};  // "cpu", "graph", "pdl"
  Timing ours = {};
  double limit_us = 0;
  double read_limit_us = 0;  // GPU: reading as many bytes
  double empty_us = 0;       // GPU: an empty kernel
  std::vector<std::pair<std::string, Timing>> peers = {};
};

// A case in every mode of the stream's device.
absl::StatusOr<std::vector<Result>> MeasureOnCpu(const Case& c,
                                                 const Stream& stream);
absl::StatusOr<std::vector<Result>> MeasureOnGpu(const Case& c,
                                                 const Stream& stream);

}  // namespace lamina::bench
