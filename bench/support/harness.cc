#include "bench/support/harness.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <fstream>
#include <memory>

#include "benchmark/benchmark.h"
#include "lamina/core/device.h"
#include "lamina/core/math.h"
#include "nlohmann/json.hpp"

namespace lamina::bench {
namespace {

// More than three times the last-level cache, so that what a call reads was
// evicted since its last turn.
constexpr int64_t kCacheMultiple = 4;
constexpr int64_t kMinFootprint = int64_t{64} << 20;
constexpr int64_t kMaxFootprint = int64_t{2} << 30;
constexpr double kMinSeconds = 0.03;  // a repetition

int64_t WorkingSets(int64_t bytes) {
  const int64_t cache = GetDeviceInfo(Device{}).cache_bytes;
  const int64_t footprint =
      std::clamp(kCacheMultiple * cache, kMinFootprint, kMaxFootprint);
  return std::max<int64_t>(2, CeilDiv(footprint, std::max<int64_t>(1, bytes)));
}

struct Timing {
  double us = 0;     // median of the repetitions
  double noise = 0;  // half of their range, as a part of the median
};

Timing Summarise(std::vector<double> us) {
  if (us.empty()) return {};
  std::sort(us.begin(), us.end());
  const double median = us[us.size() / 2];
  return {median, (us.back() - us.front()) / 2 / median};
}

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

// Times a call; an error of it ends the measurement.
absl::Status Measure(const Call& call, int64_t sets, int repeats,
                     Timing* timing) {
  absl::Status status;
  int64_t set = 0;
  const auto time_calls = [&](benchmark::State& state) {
    for (auto _ : state) {
      const auto start = std::chrono::steady_clock::now();
      const absl::Status result = call(set);
      const std::chrono::duration<double> elapsed =
          std::chrono::steady_clock::now() - start;
      state.SetIterationTime(elapsed.count());
      set = (set + 1) % sets;
      if (!result.ok()) status = result;
    }
  };
  benchmark::ClearRegisteredBenchmarks();
  benchmark::RegisterBenchmark("case", time_calls)
      ->UseManualTime()
      ->MinTime(kMinSeconds)
      ->Repetitions(repeats);
  Collector collector;
  benchmark::RunSpecifiedBenchmarks(&collector, "case");
  *timing = Summarise(collector.us);
  return status;
}

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

nlohmann::ordered_json Record(const Case& c, const Timing& ours,
                              double limit_us, const Timing& peer,
                              int threads) {
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
  record["mode"] = "cpu";
  record["threads"] = threads;
  record["bytes"] = c.bytes;
  record["us"] = ours.us;
  record["noise"] = ours.noise;
  record["limit_us"] = limit_us;
  if (!c.peer.empty()) {
    record["peer"] = c.peer;
    record["peer_us"] = peer.us;
  }
  const DeviceInfo& device = GetDeviceInfo(Device{});
  record["device"] = device.name + " (" + device.arch + ")";
  record["date"] = Today();
  record["commit"] = CurrentCommit();
  return record;
}

void PrintRow(const Case& c, const Timing& ours, double limit_us,
              const Timing& peer) {
  std::printf("%-18s %-42s %10.2f ±%3.0f%% %10.2f %6.0f%%", c.op.c_str(),
              c.name.c_str(), ours.us, ours.noise * 100, limit_us,
              limit_us / ours.us * 100);
  if (c.peer.empty()) {
    std::puts("");
  } else {
    std::printf(" %10.2f %6.2fx %s\n", peer.us, peer.us / ours.us,
                c.peer.c_str());
  }
  std::fflush(stdout);
}

}  // namespace

bool RunCases(const std::vector<Case>& cases, const Options& options) {
  const Stream stream = Stream::Cpu(options.threads);
  const DeviceInfo& device = GetDeviceInfo(Device{});
  std::printf("%s (%s), %d threads; cold caches, median of %d\n",
              device.name.c_str(), device.arch.c_str(), stream.num_threads(),
              options.repeats);
  std::printf("%-18s %-42s %10s %6s %10s %7s %10s %7s\n", "op", "case", "us",
              "", "limit us", "limit", "peer us", "faster");
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
    const int64_t sets = WorkingSets(c.bytes);
    const Calls calls = c.prepare(sets, stream);
    const double limit_us =
        static_cast<double>(c.bytes) * 1e6 /
        MeasureReadBandwidth(Device{}, stream.num_threads());
    Timing ours;
    Timing peer;
    absl::Status status = Measure(calls.ours, sets, options.repeats, &ours);
    if (status.ok() && calls.peer) {
      status = Measure(calls.peer, sets, options.repeats, &peer);
    }
    if (!status.ok()) {
      std::fprintf(stderr, "bench: %s %s: %s\n", c.op.c_str(), c.name.c_str(),
                   status.ToString().c_str());
      return false;
    }
    PrintRow(c, ours, limit_us, peer);
    if (json.is_open()) {
      json << Record(c, ours, limit_us, peer, stream.num_threads()).dump()
           << std::endl;
    }
  }
  return true;
}

}  // namespace lamina::bench
