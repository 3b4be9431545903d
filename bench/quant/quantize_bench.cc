// Quantize: bf16 rows to FP8 codes.

#include <string>
#include <vector>

#include "bench/cases.h"
#include "bench/peers/peer_calls.h"
#include "bench/support/quantized_sets.h"
#include "bench/support/working_sets.h"
#include "lamina/quant/quantize.h"

namespace lamina::bench {
namespace {

Calls Prepare(int64_t rows, int64_t cols, Scaling scaling, int64_t sets,
              const Stream& stream) {
  const WorkingSets<BF16> x(stream, sets, rows * cols);
  const QuantizedSets quantized(stream, sets, rows, cols, scaling);
  Calls calls;
  calls.ours = [=](int64_t set, const Stream& on) {
    return Quantize({.x = Matrix(x[set], rows, cols), .out = quantized[set]},
                    on);
  };
  if (scaling == Scaling::kPerRow) {
    calls.peers = GpuPeers<QuantizePeerArgs>(
        stream, {PeerKind::kNaive, PeerKind::kVectorised}, &LaunchQuantizePeer,
        [=](int64_t set) {
          return QuantizePeerArgs{.x = x[set],
                                  .codes = quantized.codes(set),
                                  .scales = quantized.scales(set),
                                  .rows = rows,
                                  .cols = cols};
        });
  }
  calls.output = [=](int64_t set) { return quantized.Codes(set); };
  return calls;
}

Case QuantizeCase(int64_t rows, int64_t cols, Scaling scaling) {
  const std::string dtype = "bf16_f8e4m3fn";
  return {.op = "quantize",
          .name = ShapeName(dtype + "/" + Name(scaling), rows, cols),
          .dtype = dtype,
          .rows = rows,
          .cols = cols,
          .bytes = 2 * rows * cols + QuantizedSets::Bytes(rows, cols, scaling),
          .traffic = {.reads = 1, .writes8 = true},
          .units = rows * cols / 8,
          .prepare = [=](int64_t sets, const Stream& stream) {
            return Prepare(rows, cols, scaling, sets, stream);
          }};
}

}  // namespace

std::vector<Case> QuantizeCases(Backend backend) {
  if (backend == Backend::kCpu) {
    return {QuantizeCase(1, 4096, Scaling::kPerRow),
            QuantizeCase(32, 4096, Scaling::kPerRow),
            QuantizeCase(32, 14336, Scaling::kPerRow)};
  }
  std::vector<Case> cases;
  for (const Scaling scaling :
       {Scaling::kStatic, Scaling::kPerRow, Scaling::kPerBlock}) {
    for (const int64_t rows : {1, 32, 2048}) {
      cases.push_back(QuantizeCase(rows, 4096, scaling));
    }
    cases.push_back(QuantizeCase(32, 14336, scaling));
  }
  return cases;
}

}  // namespace lamina::bench
