// GatedActivation: SwiGLU, plain and into FP8.

#include <string>
#include <vector>

#include "bench/cases.h"
#include "bench/peers/peer_calls.h"
#include "bench/support/quantized_sets.h"
#include "bench/support/working_sets.h"
#include "lamina/activation/gated_activation.h"

namespace lamina::bench {
namespace {

Case SwiGluCase(int64_t rows, int64_t cols) {
  const auto prepare = [=](int64_t sets, const Stream& stream) {
    const WorkingSets<BF16> x(stream, sets, 2 * rows * cols, -4.0f, 4.0f);
    const WorkingSets<BF16> y(stream, sets, rows * cols);
    const Call ours = [=](int64_t set, const Stream& on) {
      return GatedActivation({.x = Matrix(x[set], rows, 2 * cols),
                              .y = Matrix(y[set], rows, cols)},
                             on);
    };
    return Calls{.ours = ours};
  };
  return {.op = "gated_activation",
          .name = ShapeName("bf16/silu", rows, cols),
          .dtype = "bf16",
          .rows = rows,
          .cols = cols,
          .bytes = 6 * rows * cols,
          .traffic = {.reads = 2, .writes16 = true},
          .units = rows * cols / 8,
          .prepare = prepare};
}

Calls PrepareQuantized(int64_t rows, int64_t cols, Scaling scaling,
                       int64_t sets, const Stream& stream) {
  const WorkingSets<BF16> x(stream, sets, 2 * rows * cols, -4.0f, 4.0f);
  const QuantizedSets quantized(stream, sets, rows, cols, scaling);
  Calls calls;
  calls.ours = [=](int64_t set, const Stream& on) {
    return GatedActivation(
        {.x = Matrix(x[set], rows, 2 * cols), .quantized = quantized[set]}, on);
  };
  if (scaling == Scaling::kStatic) {
    calls.peers = GpuPeers<GatedPeerArgs>(
        stream, {PeerKind::kNaive, PeerKind::kVectorised}, &LaunchGatedPeer,
        [=](int64_t set) {
          return GatedPeerArgs{.x = x[set],
                               .codes = quantized.codes(set),
                               .scale = quantized.scales(0),
                               .rows = rows,
                               .cols = cols};
        });
  }
  calls.output = [=](int64_t set) { return quantized.Codes(set); };
  return calls;
}

Case QuantizedSwiGluCase(int64_t rows, int64_t cols, Scaling scaling) {
  const std::string dtype = "bf16_f8e4m3fn";
  return {.op = "gated_activation",
          .name = ShapeName(dtype + "/silu/" + Name(scaling), rows, cols),
          .dtype = dtype,
          .rows = rows,
          .cols = cols,
          .bytes = 4 * rows * cols + QuantizedSets::Bytes(rows, cols, scaling),
          .traffic = {.reads = 2, .writes8 = true},
          .units = rows * cols / 8,
          .prepare = [=](int64_t sets, const Stream& stream) {
            return PrepareQuantized(rows, cols, scaling, sets, stream);
          }};
}

}  // namespace

std::vector<Case> GatedActivationCases(Backend backend) {
  std::vector<Case> cases;
  if (backend == Backend::kCpu) {
    for (const int64_t rows : {1, 8, 32}) {
      cases.push_back(SwiGluCase(rows, 14336));
      cases.push_back(QuantizedSwiGluCase(rows, 14336, Scaling::kPerRow));
    }
    return cases;
  }
  for (const int64_t cols : {4096, 8192, 14336, 16384}) {
    cases.push_back(QuantizedSwiGluCase(1, cols, Scaling::kStatic));
  }
  for (const int64_t rows : {16, 32, 128, 2048, 8192}) {
    cases.push_back(QuantizedSwiGluCase(rows, 14336, Scaling::kStatic));
  }
  for (const int64_t rows : {16, 128, 16384}) {
    cases.push_back(QuantizedSwiGluCase(rows, 4096, Scaling::kStatic));
  }
  for (const Scaling scaling : {Scaling::kPerRow, Scaling::kPerBlock}) {
    for (const int64_t rows : {1, 16, 128, 2048}) {
      cases.push_back(QuantizedSwiGluCase(rows, 14336, scaling));
    }
  }
  for (const int64_t rows : {1, 16, 2048}) {
    cases.push_back(SwiGluCase(rows, 14336));
  }
  return cases;
}

}  // namespace lamina::bench
