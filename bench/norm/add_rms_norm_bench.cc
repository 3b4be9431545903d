// AddRmsNorm as a decoder block uses it: the residual in place, the normalised
// row in FP8.

#include <string>
#include <vector>

#include "bench/cases.h"
#include "bench/peers/peer_calls.h"
#include "bench/support/quantized_sets.h"
#include "bench/support/working_sets.h"
#include "lamina/norm/add_rms_norm.h"

namespace lamina::bench {
namespace {

constexpr float kEpsilon = 1e-5f;

Calls Prepare(int64_t rows, int64_t cols, Scaling scaling, int64_t sets,
              const Stream& stream) {
  const WorkingSets<BF16> x(stream, sets, rows * cols);
  const WorkingSets<BF16> residual(stream, sets, rows * cols, -2.0f, 2.0f);
  const WorkingSets<BF16> weight(stream, 1, cols, 0.5f, 1.5f);
  const QuantizedSets quantized(stream, sets, rows, cols, scaling);
  Calls calls;
  calls.ours = [=](int64_t set, const Stream& on) {
    return AddRmsNorm({.x = Matrix(x[set], rows, cols),
                       .residual = Matrix(residual[set], rows, cols),
                       .residual_out = Matrix(residual[set], rows, cols),
                       .weight = Vector(weight[0], cols),
                       .epsilon = kEpsilon,
                       .quantized = quantized[set]},
                      on);
  };
  if (scaling == Scaling::kStatic) {
    calls.peers = GpuPeers<NormPeerArgs>(
        stream, {PeerKind::kNaive, PeerKind::kVectorised, PeerKind::kCub},
        &LaunchNormPeer, [=](int64_t set) {
          return NormPeerArgs{.x = x[set],
                              .residual = residual[set],
                              .weight = weight[0],
                              .codes = quantized.codes(set),
                              .scale = quantized.scales(0),
                              .rows = rows,
                              .cols = cols,
                              .epsilon = kEpsilon};
        });
  }
  calls.output = [=](int64_t set) { return quantized.Codes(set); };
  calls.reset = [=](int64_t set) { residual.Reset(set); };
  return calls;
}

Case AddRmsNormCase(int64_t rows, int64_t cols, Scaling scaling) {
  const std::string dtype = "bf16_f8e4m3fn";
  // x and the residual are read; the residual, codes and scales written.
  return {.op = "add_rms_norm",
          .name = ShapeName(dtype + "/" + Name(scaling), rows, cols),
          .dtype = dtype,
          .rows = rows,
          .cols = cols,
          .bytes = 6 * rows * cols + 2 * cols +
                   QuantizedSets::Bytes(rows, cols, scaling),
          .traffic = {.reads = 2, .writes16 = true, .writes8 = true},
          .units = rows * cols / 8,
          .in_place = true,
          .prepare = [=](int64_t sets, const Stream& stream) {
            return Prepare(rows, cols, scaling, sets, stream);
          }};
}

}  // namespace

std::vector<Case> AddRmsNormCases(Backend backend) {
  std::vector<Case> cases;
  if (backend == Backend::kCpu) {
    for (const int64_t rows : {1, 8, 32}) {
      cases.push_back(AddRmsNormCase(rows, 4096, Scaling::kPerRow));
    }
    return cases;
  }
  for (const int64_t rows : {1, 16, 32, 128, 2048, 16384}) {
    cases.push_back(AddRmsNormCase(rows, 4096, Scaling::kStatic));
  }
  for (const int64_t rows : {1, 16, 32, 128, 2048, 16384}) {
    cases.push_back(AddRmsNormCase(rows, 8192, Scaling::kStatic));
  }
  for (const int64_t rows : {1, 4, 16, 128, 2048}) {
    cases.push_back(AddRmsNormCase(rows, 16384, Scaling::kStatic));
  }
  for (const Scaling scaling : {Scaling::kPerRow, Scaling::kPerBlock}) {
    for (const int64_t rows : {1, 16, 2048}) {
      cases.push_back(AddRmsNormCase(rows, 4096, scaling));
    }
    cases.push_back(AddRmsNormCase(1, 8192, scaling));
    cases.push_back(AddRmsNormCase(1, 16384, scaling));
  }
  return cases;
}

}  // namespace lamina::bench
