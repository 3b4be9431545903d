#include <algorithm>
#include <cmath>
#include <cstdio>

#include "bench/support/graph_timing.h"
#include "bench/support/timing.h"
#include "lamina/core/copy.h"
#include "lamina/core/math.h"
#include "lamina/core/status.h"
#include "lamina/quant/fp8.h"

namespace lamina::bench {
namespace {

// Nodes of the graph of empty kernels.
constexpr int64_t kEmptyNodes = 64;

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
      LAMINA_ASSIGN_OR_RETURN(result.ours, MeasureGraph(calls.ours, nodes, sets,
                                                        kGraphRepeats, on));
      for (const Peer& peer : calls.peers) {
        LAMINA_ASSIGN_OR_RETURN(
            const Timing timing,
            MeasureGraph(peer.call, nodes, sets, kGraphRepeats, on));
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
                            StreamingLimit({}, kEmptyNodes, 1, on));
  }
  return results;
}

}  // namespace lamina::bench
