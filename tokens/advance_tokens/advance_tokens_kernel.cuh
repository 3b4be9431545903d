#pragma once

// AdvanceTokens on a GPU: one block, whose lanes go over the sequences. Limit:
// latency.

#include <cstdint>

#include "lamina/core/device/intrinsics.cuh"
#include "lamina/tokens/advance_tokens/advance_tokens_args.h"

namespace lamina::tokens_internal {

inline constexpr int kAdvanceTokensLanes = 128;

__device__ inline void AdvanceBlock(const AdvanceTokensKernelArgs& args) {
  gpu::AllowDependents();
  gpu::WaitForPredecessor();
  const int64_t step = *args.step;
  const int64_t slot = step % args.history.rows;
  for (int64_t t = gpu::ThreadIndex(); t < args.sequences;
       t += kAdvanceTokensLanes) {
    AdvanceSequence(args, slot, t);
  }
  // Everybody has read the step.
  gpu::BlockSync();
  if (gpu::ThreadIndex() == 0) *args.step = step + 1;
}

}  // namespace lamina::tokens_internal
