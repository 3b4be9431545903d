#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lamina/attention/kv_cache.h"
#include "lamina/core/stream.h"
#include "lamina/core/views.h"

namespace lamina {

// Each row of q is one token that attends to positions
// [max(0, p + 1 - window), p] of its sequence, p its own position. One token a
// sequence is decoding; several tokens of one sequence with rising positions
// are a causal prefill.
struct DecodeAttentionArgs {
  ConstMatrixView q;  // [tokens, heads, head_dim]: f32, f16, bf16
  KvCacheView cache;
  const int32_t* sequence_ids = nullptr;  // [tokens]; null: token t is of sequence t
  const int32_t* positions = nullptr;     // [tokens]
  int64_t max_position = 0;  // upper bound of positions (workspace, grid)
  int64_t window = 0;        // 0: no sliding window
  float scale = 0;           // 0: 1 / sqrt(head_dim)
  MatrixView y;              // [tokens, heads, head_dim], q's dtype
  void* workspace = nullptr;
  int64_t workspace_bytes = 0;
};
[[nodiscard]] absl::Status DecodeAttention(const DecodeAttentionArgs& args,
                                           Stream stream);

struct DecodeAttentionProblem {
  int64_t tokens = 0, heads = 0, kv_heads = 0, head_dim = 0;
  int64_t max_position = 0;
  DType q_type = DType::kBF16;
  DType kv_type = DType::kBF16;
};
[[nodiscard]] absl::StatusOr<int64_t> DecodeAttentionWorkspaceBytes(
    const DecodeAttentionProblem& problem, const DeviceInfo& device,
    int num_threads = 0);

}  // namespace lamina
