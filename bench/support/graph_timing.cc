#include "bench/support/graph_timing.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "lamina/core/buffer.h"
#include "lamina/core/copy.h"
#include "lamina/core/device.h"
#include "lamina/core/event.h"
#include "lamina/core/graph.h"
#include "lamina/core/math.h"
#include "lamina/core/status.h"
#include "lamina/core/streaming/streaming.h"

namespace lamina::bench {
namespace {

constexpr int64_t kCacheMultiple = 4;
constexpr int64_t kMaxSets = 64;
constexpr int kWarmUps = 3;
constexpr int kSearchRepeats = 5;

}  // namespace

Timing Summarise(std::vector<double> us) {
  if (us.empty()) return {};
  std::sort(us.begin(), us.end());
  const double median = us[us.size() / 2];
  return {median, (us.back() - us.front()) / 2 / median};
}

int64_t SetsFor(int64_t bytes, const Stream& stream) {
  const int64_t cache = GetDeviceInfo(stream.device()).cache_bytes;
  return std::clamp<int64_t>(
      CeilDiv(kCacheMultiple * cache, std::max<int64_t>(1, bytes)), 2,
      kMaxSets);
}

int64_t NodesFor(int64_t bytes, int64_t sets) {
  const double us = 1 + static_cast<double>(bytes) / 3e6;  // roughly, at 3 TB/s
  const int64_t wanted =
      std::clamp<int64_t>(static_cast<int64_t>(2000 / us), 1, kMaxSets);
  return CeilDiv(wanted, sets) * sets;
}

absl::StatusOr<Timing> MeasureGraph(const Call& call, int64_t nodes,
                                    int64_t sets, int repeats,
                                    const Stream& stream) {
  // Before the recording: modules are loaded, and errors are plain.
  LAMINA_RETURN_IF_ERROR(call(0, stream));
  LAMINA_RETURN_IF_ERROR(Synchronize(stream));
  LAMINA_ASSIGN_OR_RETURN(const Graph graph, Graph::Capture(stream, [&] {
                            for (int64_t node = 0; node < nodes; ++node) {
                              LAMINA_RETURN_IF_ERROR(call(node % sets, stream));
                            }
                            return absl::OkStatus();
                          }));
  for (int i = 0; i < kWarmUps; ++i) {
    LAMINA_RETURN_IF_ERROR(graph.Launch(stream));
  }
  LAMINA_RETURN_IF_ERROR(Synchronize(stream));
  Event start, end;
  std::vector<double> times;
  for (int i = 0; i < repeats; ++i) {
    LAMINA_RETURN_IF_ERROR(start.Record(stream));
    LAMINA_RETURN_IF_ERROR(graph.Launch(stream));
    LAMINA_RETURN_IF_ERROR(end.Record(stream));
    LAMINA_ASSIGN_OR_RETURN(const double us, Event::ElapsedMicros(start, end));
    times.push_back(us / static_cast<double>(nodes));
  }
  return Summarise(std::move(times));
}

namespace {

// The best plan of the streaming kernel, in the same kind of graph.
absl::StatusOr<double> MeasureStreaming(const Traffic& traffic, int64_t nodes,
                                        int64_t sets, const Stream& stream) {
  const int64_t array = RoundUp(16 * traffic.units, 256);
  const Device device = stream.device();
  const auto allocate = [&](int64_t arrays) {
    return Buffer::Allocate(device, sets * arrays * array + 16);
  };
  LAMINA_ASSIGN_OR_RETURN(const Buffer read, allocate(traffic.arrays.reads));
  const bool writes16 = traffic.arrays.writes16 && !traffic.in_place;
  LAMINA_ASSIGN_OR_RETURN(const Buffer write16, allocate(writes16 ? 1 : 0));
  LAMINA_ASSIGN_OR_RETURN(const Buffer write8,
                          allocate(traffic.arrays.writes8 ? 1 : 0));
  LAMINA_RETURN_IF_ERROR(EnqueueFill(read.data(), 0x3a, read.bytes(), stream));

  StreamingPlan plan;
  const Call call = [&](int64_t set, const Stream& on) {
    char* const first = read.as<char>() + set * traffic.arrays.reads * array;
    char* const last = first + (traffic.arrays.reads - 1) * array;
    return EnqueueStreaming(
        traffic.arrays,
        {.read = {first, last},
         .write16 = traffic.in_place ? last : write16.as<char>() + set * array,
         .write8 = write8.as<char>() + set * array,
         .sink = read.as<char>() + read.bytes() - 16,
         .units = traffic.units},
        plan, on);
  };
  double best_us = 0;
  StreamingPlan best;
  std::vector<StreamingPlan> plans =
      StreamingPlans(traffic.units, GetDeviceInfo(device));
  if (plans.empty()) plans.push_back({.threads = 32});  // an empty kernel
  for (const StreamingPlan& candidate : plans) {
    plan = candidate;
    LAMINA_ASSIGN_OR_RETURN(
        const Timing timing,
        MeasureGraph(call, nodes, sets, kSearchRepeats, stream));
    if (best_us == 0 || timing.us < best_us) {
      best_us = timing.us;
      best = candidate;
    }
  }
  plan = best;
  LAMINA_ASSIGN_OR_RETURN(
      const Timing timing,
      MeasureGraph(call, nodes, sets, kGraphRepeats, stream));
  return timing.us;
}

}  // namespace

absl::StatusOr<double> StreamingLimit(const Traffic& traffic, int64_t nodes,
                                      int64_t sets, const Stream& stream) {
  using Key = std::tuple<int, bool, bool, int64_t, bool, bool, int>;
  static auto* const known = new std::map<Key, double>();
  const Key key = {traffic.arrays.reads,   traffic.arrays.writes16,
                   traffic.arrays.writes8, traffic.units,
                   traffic.in_place,       stream.overlap(),
                   stream.device().index};
  const auto found = known->find(key);
  if (found != known->end()) return found->second;
  LAMINA_ASSIGN_OR_RETURN(const double us,
                          MeasureStreaming(traffic, nodes, sets, stream));
  (*known)[key] = us;
  return us;
}

}  // namespace lamina::bench
