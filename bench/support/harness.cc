#include "bench/support/harness.h"

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <fstream>
#include <memory>

#include "bench/support/timing.h"
#include "benchmark/benchmark.h"
#include "lamina/core/device.h"
#include "nlohmann/json.hpp"

namespace lamina::bench {
namespace {

// Collects the repetitions of one benchmark.
class Collector : public benchmark::BenchmarkReporter {
 public:
  bool ReportContext(const Context&) override { return true; }
  void ReportRuns(const std::vector<Run>& runs) override {
    for (const Run& run : runs) {
      if (run.run_type == Run::RT_Iteration && run.iterations > 0) {
        us.push_back(run.real_accumulated_time * 1e6 /
                     static_cast<double>(run.iterations));
      }
    }
  }
  std::vector<double> us;
};

std::string CurrentCommit() {
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(
      popen("git -C '" LAMINA_SOURCE_DIR "' describe --always --dirty "
            "--abbrev=12 --exclude='*' 2>/dev/null",
            "r"),
      pclose);
  char line[64] = "";
  if (pipe == nullptr ||
      std::fgets(line, sizeof(line), pipe.get()) == nullptr) {
    return "unknown";
  }
  std::string commit = line;
  while (!commit.empty() && commit.back() == '\n') commit.pop_back();
  return commit;
}

std::string Today() {
  const std::time_t now = std::time(nullptr);
  char date[16];
  std::strftime(date, sizeof(date), "%Y-%m-%d", std::gmtime(&now));
  return date;
}

// The fastest of the peers, or null.
const std::pair<std::string, Timing>* BestPeer(const Result& result) {
  const auto best = std::min_element(
      result.peers.begin(), result.peers.end(),
      [](const auto& a, const auto& b) { return a.second.us < b.second.us; });
  return best == result.peers.end() ? nullptr : &*best;
}

nlohmann::ordered_json Record(const Case& c, const Result& result,
                              const Stream& stream) {
  nlohmann::ordered_json record = {
      {"op", c.op}, {"case", c.name}, {"dtype", c.dtype}};
  if (c.rows > 0) {
    record["rows"] = c.rows;
    record["cols"] = c.cols;
  } else {
    record["m"] = c.m;
    record["n"] = c.n;
    record["k"] = c.k;
  }
  record["mode"] = result.mode;
  const bool on_cpu = stream.device().backend == Backend::kCpu;
  if (on_cpu) record["threads"] = stream.num_threads();
  record["bytes"] = c.bytes;
  record["us"] = result.ours.us;
  record["noise"] = result.ours.noise;
  record["limit_us"] = result.limit_us;
  if (!on_cpu) {
    record["read_limit_us"] = result.read_limit_us;
    record["empty_us"] = result.empty_us;
  }
  if (const auto* best = BestPeer(result)) {
    record["peer"] = best->first;
    record["peer_us"] = best->second.us;
  }
  if (result.peers.size() > 1) {
    for (const auto& [name, timing] : result.peers) {
      record["peers"][name] = timing.us;
    }
  }
  const DeviceInfo& device = GetDeviceInfo(stream.device());
  record["device"] = device.name + " (" + device.arch + ")";
  record["date"] = Today();
  record["commit"] = CurrentCommit();
  return record;
}

void PrintRow(const Case& c, const Result& result) {
  std::printf("%-18s %-50s %-5s %10.2f ±%3.0f%% %10.2f %6.0f%%", c.op.c_str(),
              c.name.c_str(), result.mode.c_str(), result.ours.us,
              result.ours.noise * 100, result.limit_us,
              result.limit_us / result.ours.us * 100);
  if (const auto* best = BestPeer(result)) {
    std::printf(" %10.2f %6.2fx %s", best->second.us,
                best->second.us / result.ours.us, best->first.c_str());
    for (const auto& [name, timing] : result.peers) {
      if (name != best->first)
        std::printf(", %s %.2f", name.c_str(), timing.us);
    }
  }
  std::puts("");
  std::fflush(stdout);
}

}  // namespace

absl::StatusOr<Timing> Repeat(int repeats, const MeasureOnce& once) {
  absl::Status status;
  const auto time_once = [&](benchmark::State& state) {
    for (auto _ : state) {
      const absl::StatusOr<double> us = once();
      if (!us.ok()) status = us.status();
      // NOTE: an iteration without a time would never end.
      state.SetIterationTime(us.value_or(1) * 1e-6);
    }
  };
  benchmark::ClearRegisteredBenchmarks();
  benchmark::RegisterBenchmark("case", time_once)
      ->UseManualTime()
      ->Iterations(1)
      ->Repetitions(repeats);
  Collector collector;
  benchmark::RunSpecifiedBenchmarks(&collector, "case");
  if (!status.ok()) return status;
  return Summarise(collector.us);
}

bool RunCases(const std::vector<Case>& cases, const Options& options,
              const Stream& stream) {
  const bool on_cpu = stream.device().backend == Backend::kCpu;
  const DeviceInfo& device = GetDeviceInfo(stream.device());
  std::printf("%s (%s)", device.name.c_str(), device.arch.c_str());
  if (on_cpu) std::printf(", %d threads", stream.num_threads());
  std::printf("; cold caches, medians; us a call\n");
  std::printf("%-18s %-50s %-5s %10s %6s %10s %7s %10s %7s\n", "op", "case",
              "mode", "us", "", "limit us", "limit", "peer us", "faster");
  std::ofstream json;
  if (!options.json.empty()) {
    json.open(options.json, std::ios::app);
    if (!json) {
      std::fprintf(stderr, "bench: cannot write %s\n", options.json.c_str());
      return false;
    }
  }
  for (const Case& c : cases) {
    if (!options.op.empty() && c.op != options.op) continue;
    if (c.name.find(options.filter) == std::string::npos) continue;
    const absl::StatusOr<std::vector<Result>> results =
        on_cpu ? MeasureOnCpu(c, stream) : MeasureOnGpu(c, stream);
    if (!results.ok()) {
      std::fprintf(stderr, "bench: %s %s: %s\n", c.op.c_str(), c.name.c_str(),
                   results.status().ToString().c_str());
      return false;
    }
    for (const Result& result : *results) {
      PrintRow(c, result);
      if (json.is_open()) {
        json << Record(c, result, stream).dump() << std::endl;
        if (!json) {
          std::fprintf(stderr, "bench: %s: not everything was written\n",
                       options.json.c_str());
          return false;
        }
      }
    }
  }
  return true;
}

}  // namespace lamina::bench
