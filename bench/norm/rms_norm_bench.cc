// RmsNorm beside a plain loop: the shapes of prefill (512 rows; 1592 columns
// are no multiple of a vector) and of decoding.

#include <cmath>
#include <string>
#include <vector>

#include "bench/cases.h"
#include "bench/peers/peer_calls.h"
#include "bench/support/quantized_sets.h"
#include "bench/support/working_sets.h"
#include "lamina/core/float16.h"
#include "lamina/norm/rms_norm.h"

namespace lamina::bench {
namespace {

constexpr float kEpsilon = 1e-5f;

// As one would write it: two passes over a row, one thread.
template <class T>
void PlainLoop(const T* x, const T* weight, T* y, int64_t rows, int64_t cols) {
  for (int64_t r = 0; r < rows; ++r) {
    float sum = 0;
    for (int64_t c = 0; c < cols; ++c) {
      const float v = ToFloat(x[r * cols + c]);
      sum += v * v;
    }
    const float scale =
        1 / std::sqrt(sum / static_cast<float>(cols) + kEpsilon);
    for (int64_t c = 0; c < cols; ++c) {
      y[r * cols + c] =
          FromFloat<T>(ToFloat(x[r * cols + c]) * scale * ToFloat(weight[c]));
    }
  }
}

template <class T>
Calls Prepare(int64_t rows, int64_t cols, int64_t sets, const Stream& stream) {
  const WorkingSets<T> x(stream, sets, rows * cols);
  const WorkingSets<T> y(stream, sets, rows * cols);
  const WorkingSets<T> weight(stream, 1, cols, 0.5f, 1.5f);
  Calls calls;
  calls.ours = [=](int64_t set, const Stream& on) {
    return RmsNorm({.x = Matrix(x[set], rows, cols),
                    .weight = Vector(weight[0], cols),
                    .epsilon = kEpsilon,
                    .y = Matrix(y[set], rows, cols)},
                   on);
  };
  calls.peers = GpuPeers<NormPeerArgs>(
      stream, {PeerKind::kNaive, PeerKind::kVectorised, PeerKind::kCub},
      &LaunchNormPeer, [=](int64_t set) {
        return NormPeerArgs{.dtype = DTypeOf<T>::value,
                            .x = x[set],
                            .weight = weight[0],
                            .y = y[set],
                            .rows = rows,
                            .cols = cols,
                            .epsilon = kEpsilon};
      });
  if (stream.device().backend == Backend::kCpu) {
    calls.peers.push_back({"plain loop", [=](int64_t set, const Stream&) {
                             PlainLoop(x[set], weight[0], y[set], rows, cols);
                             return absl::OkStatus();
                           }});
  }
  calls.output = [=](int64_t set) { return Vector(y[set], rows * cols); };
  return calls;
}

template <class T>
Case RmsNormCase(int64_t rows, int64_t cols) {
  const std::string dtype = Name(DTypeOf<T>::value);
  return {.op = "rms_norm",
          .name = ShapeName(dtype, rows, cols),
          .dtype = dtype,
          .rows = rows,
          .cols = cols,
          .bytes = BytesFor(DTypeOf<T>::value, (2 * rows + 1) * cols),
          .traffic = {.reads = 1, .writes16 = true},
          .units = BytesFor(DTypeOf<T>::value, rows * cols) / 16,
          .prepare = [=](int64_t sets, const Stream& stream) {
            return Prepare<T>(rows, cols, sets, stream);
          }};
}

}  // namespace

std::vector<Case> RmsNormCases(Backend backend) {
  std::vector<Case> cases;
  for (const int64_t cols : {1592, 2048}) {
    cases.push_back(RmsNormCase<float>(512, cols));
    cases.push_back(RmsNormCase<F16>(512, cols));
  }
  for (const int64_t rows : {1, 8, 32}) {
    cases.push_back(RmsNormCase<BF16>(rows, 4096));
  }
  if (backend == Backend::kCpu) return cases;
  for (const int64_t rows : {128, 2048, 16384}) {
    cases.push_back(RmsNormCase<BF16>(rows, 4096));
  }
  // The heads of a query: QK-norm.
  for (const int64_t rows : {40, 2560}) {
    cases.push_back(RmsNormCase<BF16>(rows, 128));
  }
  return cases;
}

}  // namespace lamina::bench
