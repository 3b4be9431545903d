#pragma once

// What the host hands to the general attention kernel: plain values.

#include <cstdint>

#include "lamina/attention/decode_attention/attention_kernel_args.h"
#include "lamina/core/launch.h"
#include "lamina/core/math.h"

namespace lamina::attention_internal {

// Query heads of a KV head that share one pass over its keys and values.
inline constexpr int kGeneralRows = 4;
inline constexpr int kGeneralThreads = 256;
static_assert(kGeneralThreads == kGpuChunk,
              "a thread has a position of a chunk");

struct GeneralAttentionArgs {
  AttentionKernelArgs attention = {};
  // Chunks go to blocks of their own, and their results to `partials`.
  bool split = false;
  // Of a launch:
  FastDivisor parts = {};   // of a KV head's group
  FastDivisor heads = {};   // KV heads
  FastDivisor chunks = {};  // that a token has at most; 1 unless split
};

// Floats of a chunk's result for one query head: m, l, o.
LAMINA_HD constexpr int64_t PartialSize(int64_t head_dim) {
  return 2 + head_dim;
}

// How a launch goes about it. NOTE: it never changes a result.
struct GeneralAttentionPlan {
  bool split = false;
  int64_t tokens = 1;  // of a launch
};

gpu::Error LaunchGeneralAttention(const AttentionKernelArgs& args,
                                  int64_t tokens, int64_t chunks,
                                  const GeneralAttentionPlan& plan,
                                  const gpu::LaunchTarget& target);

}  // namespace lamina::attention_internal
