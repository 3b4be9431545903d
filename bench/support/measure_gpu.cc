#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <tuple>

#include "bench/support/timing.h"
#include "lamina/core/buffer.h"
#include "lamina/core/copy.h"
#include "lamina/core/device.h"
#include "lamina/core/event.h"
#include "lamina/core/graph.h"
#include "lamina/core/math.h"
#include "lamina/core/status.h"
#include "lamina/core/streaming/streaming.h"
#include "lamina/quant/fp8.h"

namespace lamina::bench {
namespace {

constexpr int64_t kCacheMultiple = 4;
constexpr int64_t kMaxSets = 64;
constexpr int kWarmUps = 3;
constexpr int kRepeats = 15;
constexpr int kSearchRepeats = 5;

int64_t SetsFor(int64_t bytes, const Stream& stream) {
  const int64_t cache = GetDeviceInfo(stream.device()).cache_bytes;
  return std::clamp<int64_t>(
      CeilDiv(kCacheMultiple * cache, std::max<int64_t>(1, bytes)), 2,
      kMaxSets);
}

// Nodes of a graph: a multiple of the sets, 64 or about 2 ms of them.
int64_t NodesFor(int64_t bytes, int64_t sets) {
  const double us = 1 + static_cast<double>(bytes) / 3e6;  // roughly, at 3 TB/s
  const int64_t wanted =
      std::clamp<int64_t>(static_cast<int64_t>(2000 / us), 1, kMaxSets);
  return CeilDiv(wanted, sets) * sets;
}

// Microseconds a node of a graph of `nodes` calls.
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
  return Repeat(repeats, [&]() -> absl::StatusOr<double> {
    LAMINA_RETURN_IF_ERROR(start.Record(stream));
    LAMINA_RETURN_IF_ERROR(graph.Launch(stream));
    LAMINA_RETURN_IF_ERROR(end.Record(stream));
    LAMINA_ASSIGN_OR_RETURN(const double us, Event::ElapsedMicros(start, end));
    return us / static_cast<double>(nodes);
  });
}

// ---- The limit --------------------------------------------------------------

struct Traffic {
  StreamingTraffic arrays = {};
  int64_t units = 0;
  bool in_place = false;
};

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
  LAMINA_ASSIGN_OR_RETURN(const Timing timing,
                          MeasureGraph(call, nodes, sets, kRepeats, stream));
  return timing.us;
}

// Measured once for each size: several cases move the same bytes.
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

// ---- Peers ------------------------------------------------------------------

std::vector<float> ToFloats(const std::vector<char>& bytes, DType dtype,
                            int64_t count) {
  std::vector<float> values(static_cast<size_t>(count));
  const auto convert = [&]<class T>(T) {
    const T* const typed = reinterpret_cast<const T*>(bytes.data());
    for (size_t i = 0; i < values.size(); ++i) values[i] = ToFloat(typed[i]);
  };
  switch (dtype) {
    case DType::kF32:
      convert(float());
      break;
    case DType::kF16:
      convert(F16());
      break;
    case DType::kBF16:
      convert(BF16());
      break;
    case DType::kF8E4M3Fn:
      convert(F8E4M3Fn());
      break;
    default:
      break;
  }
  return values;
}

absl::StatusOr<std::vector<float>> Fetch(const ConstVectorView& view,
                                         const Stream& stream) {
  constexpr int64_t kMost = 1 << 20;
  const int64_t count = std::min(view.size, kMost);
  std::vector<char> bytes(static_cast<size_t>(BytesFor(view.dtype, count)));
  LAMINA_RETURN_IF_ERROR(Copy(bytes.data(), view.data,
                              static_cast<int64_t>(bytes.size()), stream));
  return ToFloats(bytes, view.dtype, count);
}

// The part of the elements that differ by more than two steps of the type.
double PartThatDiffers(const std::vector<float>& a, const std::vector<float>& b,
                       DType dtype) {
  const float tolerance = dtype == DType::kF32    ? 1e-5f
                          : dtype == DType::kF16  ? 2e-3f
                          : dtype == DType::kBF16 ? 2e-2f
                                                  : 0.25f;
  size_t different = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const float size = std::max(std::abs(a[i]), std::abs(b[i]));
    if (!(std::abs(a[i] - b[i]) <= tolerance * size + 1e-2f * tolerance)) {
      ++different;
    }
  }
  return static_cast<double>(different) /
         static_cast<double>(std::max<size_t>(1, a.size()));
}

// An error when a peer computes something else than we do.
absl::Status CheckPeers(const Case& c, const Calls& calls,
                        const Stream& stream) {
  if (!calls.output) return absl::OkStatus();
  const auto result_of = [&](const Call& call, int64_t set) {
    if (calls.reset) calls.reset(set);
    const absl::Status status = call(set, stream);
    return status.ok() ? Fetch(calls.output(set), stream)
                       : absl::StatusOr<std::vector<float>>(status);
  };
  LAMINA_ASSIGN_OR_RETURN(const std::vector<float> ours,
                          result_of(calls.ours, 0));
  for (const Peer& peer : calls.peers) {
    LAMINA_ASSIGN_OR_RETURN(const std::vector<float> theirs,
                            result_of(peer.call, 1));
    const double part = PartThatDiffers(ours, theirs, calls.output(0).dtype);
    if (part > 1e-3) {
      std::fprintf(stderr,
                   "bench: %s %s: %.2f %% of the elements of '%s' are "
                   "not ours\n",
                   c.op.c_str(), c.name.c_str(), part * 100, peer.name.c_str());
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<Result>> MeasureOnGpu(const Case& c,
                                                 const Stream& stream) {
  const int64_t sets = SetsFor(c.bytes, stream);
  const int64_t nodes = NodesFor(c.bytes, sets);
  std::vector<Result> results;
  {
    const Calls calls = c.prepare(sets, stream);
    LAMINA_RETURN_IF_ERROR(CheckPeers(c, calls, stream));
    for (const bool overlap : {false, true}) {
      const Stream on = stream.WithOverlap(overlap);
      Result result{.mode = overlap ? "pdl" : "graph"};
      LAMINA_ASSIGN_OR_RETURN(
          result.ours, MeasureGraph(calls.ours, nodes, sets, kRepeats, on));
      for (const Peer& peer : calls.peers) {
        LAMINA_ASSIGN_OR_RETURN(
            const Timing timing,
            MeasureGraph(peer.call, nodes, sets, kRepeats, on));
        result.peers.emplace_back(peer.name, timing);
      }
      results.push_back(std::move(result));
    }
  }
  for (Result& result : results) {
    const Stream on = stream.WithOverlap(result.mode == "pdl");
    const Traffic reading{.units = CeilDiv(c.bytes, 16)};
    LAMINA_ASSIGN_OR_RETURN(result.read_limit_us,
                            StreamingLimit(reading, nodes, sets, on));
    result.limit_us = result.read_limit_us;
    if (c.units > 0) {
      LAMINA_ASSIGN_OR_RETURN(
          result.limit_us,
          StreamingLimit({c.traffic, c.units, c.in_place}, nodes, sets, on));
    }
    LAMINA_ASSIGN_OR_RETURN(result.empty_us,
                            StreamingLimit({}, kMaxSets, 1, on));
  }
  return results;
}

}  // namespace lamina::bench
