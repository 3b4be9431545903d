// `lamina tune`: measures the plans of SkinnyGemm that give the same bits and
// writes those that win to a file for LoadGemmTuning (gemm/gemm_tuning.h).

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "apps/lamina/options.h"
#include "apps/lamina/support.h"
#include "lamina/core/buffer.h"
#include "lamina/core/copy.h"
#include "lamina/core/event.h"
#include "lamina/core/graph.h"
#include "lamina/core/status.h"
#include "lamina/core/stream.h"
#include "lamina/gemm/gemm_tuning.h"
#include "lamina/gemm/skinny_gemm.h"

namespace lamina::cli {
namespace {

// Less than this is noise: the policy's plan stays.
constexpr double kLeastGain = 0.01;
// More than any GPU's caches, so that weights come from memory.
constexpr int64_t kWeightBytes = int64_t{192} << 20;
constexpr int64_t kMostRows = 64;
constexpr int kReplays = 7;

// Finite values of either type.
std::vector<uint8_t> RandomBytes(DType type, int64_t bytes) {
  std::vector<uint8_t> values(static_cast<size_t>(bytes));
  uint32_t state = 1;
  for (size_t i = 0; i < values.size(); ++i) {
    state = state * 1664525 + 1013904223;
    const auto bits = static_cast<uint8_t>(state >> 24);
    const bool high = !IsFp8(type) && i % 2 != 0;
    // FP8: up to 2; 16 bits: the high byte of a small number.
    values[i] = high ? static_cast<uint8_t>((bits & 0x80) | 0x3c)
                     : static_cast<uint8_t>(bits & 0xbf);
  }
  return values;
}

// One pair of types and shape with its memory on the device.
class Sweep {
 public:
  static absl::StatusOr<Sweep> Create(const GemmTuningKey& key,
                                      const Stream& stream) {
    Sweep sweep(key, stream);
    const int64_t w_bytes = BytesFor(key.w_type, key.n * key.k);
    sweep.sets_ = std::max<int64_t>(2, kWeightBytes / w_bytes + 1);
    const int64_t free = FreeMemoryBytes(stream.device());
    const int64_t bytes = sweep.sets_ * w_bytes +
                          BytesFor(key.x_type, kMostRows * key.k) +
                          BytesFor(DType::kBF16, kMostRows * key.n);
    if (bytes > free) {
      return absl::ResourceExhaustedError(
          absl::StrCat("too little memory: weights of this shape, ",
                       sweep.sets_, " times, with x and y need ", bytes,
                       " bytes, the device has ", free, " free"));
    }
    LAMINA_ASSIGN_OR_RETURN(
        sweep.w_, Buffer::Allocate(stream.device(), sweep.sets_ * w_bytes));
    LAMINA_ASSIGN_OR_RETURN(
        sweep.x_, Buffer::Allocate(stream.device(),
                                   BytesFor(key.x_type, kMostRows * key.k)));
    LAMINA_ASSIGN_OR_RETURN(
        sweep.y_, Buffer::Allocate(stream.device(),
                                   BytesFor(DType::kBF16, kMostRows * key.n)));
    const auto w = RandomBytes(key.w_type, w_bytes);
    for (int64_t set = 0; set < sweep.sets_; ++set) {
      LAMINA_RETURN_IF_ERROR(
          Copy(sweep.Weights(set), w.data(), w_bytes, stream));
    }
    const auto x =
        RandomBytes(key.x_type, BytesFor(key.x_type, kMostRows * key.k));
    LAMINA_RETURN_IF_ERROR(Copy(sweep.x_.data(), x.data(),
                                static_cast<int64_t>(x.size()), stream));
    return sweep;
  }

  // The fastest plan, with its time and that of the policy's.
  absl::StatusOr<GemmTuningEntry> Fastest(int64_t rows, bool overlap) {
    key_.rows = rows;
    key_.overlap = overlap;
    const auto candidates =
        GemmTuningCandidates(key_, GetDeviceInfo(stream_.device()));
    if (candidates.empty()) {
      return absl::UnavailableError("there is nothing to tune");
    }
    GemmTuningEntry best;
    std::vector<uint8_t> want;
    for (const GemmTuningEntry& candidate : candidates) {
      GemmTuning tuning;
      tuning.Add(candidate);
      const bool policy = &candidate == &candidates[0];
      std::vector<uint8_t> got;
      absl::StatusOr<double> us = Time(tuning, &got);
      if (policy) {
        LAMINA_RETURN_IF_ERROR(us.status());
        best = candidate;
        best.us = best.policy_us = *us;
        want = std::move(got);
      } else if (us.ok() && got == want &&
                 *us < (1 - kLeastGain) * best.policy_us && *us < best.us) {
        const double policy_us = best.policy_us;
        best = candidate;
        best.us = *us;
        best.policy_us = policy_us;
      }
    }
    return best;
  }

 private:
  Sweep(const GemmTuningKey& key, const Stream& stream)
      : key_(key), stream_(stream) {}

  char* Weights(int64_t set) const {
    return static_cast<char*>(w_.data()) +
           set * BytesFor(key_.w_type, key_.n * key_.k);
  }

  absl::Status Run(const GemmTuning& tuning, int64_t set) const {
    const auto matrix = [](const void* data, DType type, int64_t rows,
                           int64_t cols) {
      return ConstMatrixView{.data = data,
                             .dtype = type,
                             .rows = rows,
                             .cols = cols,
                             .row_stride = cols};
    };
    return SkinnyGemm(
        {.x = matrix(x_.data(), key_.x_type, key_.rows, key_.k),
         .w = matrix(Weights(set), key_.w_type, key_.n, key_.k),
         .y = Matrix(static_cast<BF16*>(y_.data()), key_.rows, key_.n),
         .tuning = &tuning},
        key_.overlap ? stream_.WithOverlap() : stream_);
  }

  // Microseconds a call, in a graph; the bits of y.
  absl::StatusOr<double> Time(const GemmTuning& tuning,
                              std::vector<uint8_t>* y) const {
    const int64_t calls = 2 * sets_;
    LAMINA_RETURN_IF_ERROR(Run(tuning, 0));
    LAMINA_ASSIGN_OR_RETURN(const Graph graph, Graph::Capture(stream_, [&] {
                              for (int64_t i = 0; i < calls; ++i) {
                                LAMINA_RETURN_IF_ERROR(Run(tuning, i % sets_));
                              }
                              return absl::OkStatus();
                            }));
    LAMINA_RETURN_IF_ERROR(graph.Launch(stream_));
    std::vector<double> times;
    for (int i = 0; i < kReplays; ++i) {
      Event start, end;
      LAMINA_RETURN_IF_ERROR(start.Record(stream_));
      LAMINA_RETURN_IF_ERROR(graph.Launch(stream_));
      LAMINA_RETURN_IF_ERROR(end.Record(stream_));
      LAMINA_ASSIGN_OR_RETURN(const double us,
                              Event::ElapsedMicros(start, end));
      times.push_back(us);
    }
    std::sort(times.begin(), times.end());
    y->resize(static_cast<size_t>(BytesFor(DType::kBF16, key_.rows * key_.n)));
    LAMINA_RETURN_IF_ERROR(
        Copy(y->data(), y_.data(), static_cast<int64_t>(y->size()), stream_));
    return times[times.size() / 2] / static_cast<double>(calls);
  }

  GemmTuningKey key_;
  Stream stream_;
  int64_t sets_ = 0;
  Buffer w_, x_, y_;
};

// What the file has, to be added to. Not there, or empty: nothing. A file that
// is something else, or for something else, is not written over.
absl::StatusOr<GemmTuning> KnownPlans(const std::string& path,
                                      const DeviceInfo& device) {
  LAMINA_RETURN_IF_ERROR(CheckCanWrite(path));
  if (!IsRegularFile(path)) return GemmTuning();
  LAMINA_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(path));
  if (text.empty()) return GemmTuning();
  absl::StatusOr<GemmTuning> known = ParseGemmTuning(text, device);
  if (known.ok()) return known;
  return absl::InvalidArgumentError(absl::StrCat(
      "--output ", path,
      ": not written over: ", std::string(known.status().message())));
}

// Rows of a dense matrix begin at multiples of 16 bytes, or there is no ring.
absl::Status CheckRows(const char* what, DType type, int64_t k) {
  const int64_t bytes = BytesFor(type, k);
  if (bytes % 16 == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "--k ", k, ": nothing to tune: rows of ", what, " have ", bytes,
      " bytes, want a multiple of 16, or SkinnyGemm has no choice of plans"));
}

}  // namespace

absl::StatusOr<int> RunTune(const TuneOptions& options) {
  LAMINA_ASSIGN_OR_RETURN(const Device device, ChooseDevice(options));
  const DeviceInfo& info = GetDeviceInfo(device);
  const bool fp8 = options.weights == "fp8";
  GemmTuningKey key = {.x_type = options.activations == "fp8" ? DType::kF8E4M3Fn
                                 : options.activations == "f16" ? DType::kF16
                                                                : DType::kBF16,
                       .w_type = fp8                        ? DType::kF8E4M3Fn
                                 : options.weights == "f16" ? DType::kF16
                                                            : DType::kBF16,
                       .n = options.n,
                       .k = options.k};
  LAMINA_RETURN_IF_ERROR(CheckRows("weights", key.w_type, key.k));
  LAMINA_RETURN_IF_ERROR(CheckRows("activations", key.x_type, key.k));
  LAMINA_ASSIGN_OR_RETURN(GemmTuning tuning, KnownPlans(options.output, info));
  std::vector<int64_t> bands;
  for (const int64_t rows : {8, 16, 32, 64}) {
    key.rows = rows;
    if (!GemmTuningCandidates(key, info).empty()) bands.push_back(rows);
  }
  if (bands.empty()) {
    return absl::UnavailableError(absl::StrCat(
        "no tuning for ", Name(device.backend),
        " with these types: plans to choose from have SkinnyGemm's kernels of "
        "compute capability 9.0 alone (--backend cuda)"));
  }
  LAMINA_ASSIGN_OR_RETURN(const OwnedStream owned, OwnedStream::Create(device));
  LAMINA_ASSIGN_OR_RETURN(Sweep sweep, Sweep::Create(key, owned.stream()));
  for (const int64_t rows : bands) {
    for (const bool overlap : {false, true}) {
      LAMINA_ASSIGN_OR_RETURN(const GemmTuningEntry best,
                              sweep.Fastest(rows, overlap));
      absl::PrintF("n %d k %d, up to %2d rows, %-12s %8.2f us, policy %8.2f\n",
                   key.n, key.k, rows, overlap ? "overlap" : "plain", best.us,
                   best.policy_us);
      if (best.us < best.policy_us) tuning.Add(best);
    }
  }
  LAMINA_RETURN_IF_ERROR(
      WriteTextFile(options.output, FormatGemmTuning(tuning, info)));
  absl::PrintF("%s: %d plans\n", options.output, tuning.entries().size());
  return kDone;
}

}  // namespace lamina::cli
