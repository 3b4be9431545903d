#pragma once

// y = x · wᵀ by cuBLASLt, to be timed beside SkinnyGemm: the fastest of the
// first eight algorithms that its heuristics name, in a graph of calls.
//
// libcublasLt is looked for when a case runs, not when the program is linked;
// where there is none, there is no peer.

#include <cstdint>
#include <functional>
#include <vector>

#include "bench/support/harness.h"
#include "lamina/core/dtype.h"
#include "lamina/core/stream.h"

namespace lamina::bench {

struct CublasLtProblem {
  DType type = DType::kBF16;  // of x and w; y is bf16
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;
  // FP8: one scale each.
  const float* x_scale = nullptr;
  const float* w_scale = nullptr;
};

struct CublasLtOperands {
  const void* x = nullptr;
  const void* w = nullptr;
  void* y = nullptr;
};

// The peer, or nothing. operands(set) for 0 <= set < sets.
std::vector<Peer> CublasLtPeer(
    const CublasLtProblem& problem, int64_t sets,
    const std::function<CublasLtOperands(int64_t set)>& operands,
    const Stream& stream);

}  // namespace lamina::bench
