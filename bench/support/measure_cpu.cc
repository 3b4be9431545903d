#include <algorithm>
#include <chrono>

#include "bench/support/timing.h"
#include "lamina/core/device.h"
#include "lamina/core/math.h"
#include "lamina/core/status.h"

namespace lamina::bench {
namespace {

// More than three times the last-level cache, so that what a call reads was
// evicted since its last turn.
constexpr int64_t kCacheMultiple = 4;
constexpr int64_t kMinFootprint = int64_t{64} << 20;
constexpr int64_t kMaxFootprint = int64_t{2} << 30;
constexpr int kRepeats = 7;
constexpr double kMinSeconds = 0.03;  // a repetition

using Clock = std::chrono::steady_clock;

int64_t SetsFor(int64_t bytes) {
  const int64_t cache = GetDeviceInfo(Device{}).cache_bytes;
  const int64_t footprint =
      std::clamp(kCacheMultiple * cache, kMinFootprint, kMaxFootprint);
  return std::max<int64_t>(2, CeilDiv(footprint, std::max<int64_t>(1, bytes)));
}

absl::StatusOr<Timing> Measure(const Call& call, int64_t sets,
                               const Stream& stream) {
  int64_t set = 0;
  return Repeat(kRepeats, [&]() -> absl::StatusOr<double> {
    const auto start = Clock::now();
    std::chrono::duration<double> elapsed{};
    int64_t calls = 0;
    for (; elapsed.count() < kMinSeconds; ++calls) {
      LAMINA_RETURN_IF_ERROR(call(set, stream));
      set = (set + 1) % sets;
      elapsed = Clock::now() - start;
    }
    return elapsed.count() * 1e6 / static_cast<double>(calls);
  });
}

}  // namespace

absl::StatusOr<std::vector<Result>> MeasureOnCpu(const Case& c,
                                                 const Stream& stream) {
  const int64_t sets = SetsFor(c.bytes);
  const Calls calls = c.prepare(sets, stream);
  Result result{.mode = "cpu"};
  result.limit_us = static_cast<double>(c.bytes) * 1e6 /
                    MeasureReadBandwidth(Device{}, stream.num_threads());
  LAMINA_ASSIGN_OR_RETURN(result.ours, Measure(calls.ours, sets, stream));
  for (const Peer& peer : calls.peers) {
    LAMINA_ASSIGN_OR_RETURN(const Timing timing,
                            Measure(peer.call, sets, stream));
    result.peers.emplace_back(peer.name, timing);
  }
  return std::vector<Result>{result};
}

}  // namespace lamina::bench
