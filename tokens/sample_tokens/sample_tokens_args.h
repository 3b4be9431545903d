#pragma once

// What the host hands to the kernels of SampleTokens, the CPU's too: plain
// values.

#include <cstdint>

#include "lamina/core/launch.h"
#include "lamina/core/math.h"
#include "lamina/core/views.h"

namespace lamina::tokens_internal {

struct SampleTokensKernelArgs {
  ConstMatrixView logits;
  const int32_t* positions = nullptr;
  const int32_t* sequence_ids = nullptr;  // null: the row's index
  int64_t* tokens = nullptr;

  bool greedy = false;
  float temperature = 1;
  float inverse_temperature = 1;
  int64_t top_k = 0;          // 0: all
  uint64_t portion = 0;       // top_p in 2^-32
  uint64_t least_weight = 0;  // min_p in 2^-40
  uint64_t seed = 0;

  bool octets = false;  // rows begin where octets can be moved
  int64_t first_row = 0;
  int64_t segment = 0;  // columns of a wave
};

// How a row is spread over a GPU: a block, or a cluster of blocks when rows are
// few and long.
// H200, 2026-11-30, us a node of a graph with overlap, 128256 logits: a row in
// 8 blocks 30 plain, 47 with top_k 40, 67 with top_p 0.9 (4 blocks: 49, 63, 97;
// one: 190, 225, 317); 64 rows in 2 blocks each 115, 134, 228 (4: 129, 167,
// 248). Half the lanes take 1.4 to 1.9 times as long.
struct SampleTokensPlan {
  int lanes = 512;  // a block; 256 at least, which own the bins
  int cluster_blocks = 1;
};
constexpr SampleTokensPlan SelectSampleTokensPlan(int64_t rows, int64_t cols,
                                                  int units,
                                                  int max_cluster_blocks) {
  SampleTokensPlan plan;
  if (cols <= 4096) plan.lanes = 256;
  int blocks = max_cluster_blocks;
  while (blocks > 1 && (blocks * rows > units || cols < blocks * 4096)) {
    blocks /= 2;
  }
  plan.cluster_blocks = blocks;
  return plan;
}

gpu::Error LaunchSampleTokens(const SampleTokensKernelArgs& args,
                              const SampleTokensPlan& plan,
                              const gpu::LaunchTarget& target);

}  // namespace lamina::tokens_internal
