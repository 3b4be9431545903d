#pragma once

// The GPU backends of DecodeAttention, seen from the host. The arguments are
// valid and there is something to do.

#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "lamina/attention/decode_attention.h"
#include "lamina/attention/decode_attention/general_attention_args.h"
#include "lamina/attention/decode_attention/tensor_attention_args.h"
#include "lamina/core/device.h"

namespace lamina::attention_internal {

int64_t DecodeAttentionGpuWorkspaceBytes(const DecodeAttentionProblem& problem,
                                         const DeviceInfo& device);

// Overrides the policy, for tests and tuning: the kernel that has a plan takes
// the problem.
struct DecodeAttentionGpuPlan {
  std::optional<GeneralAttentionPlan> general = std::nullopt;
  std::optional<TensorAttentionPlan> tensor = std::nullopt;
};

absl::Status DecodeAttentionGpu(const DecodeAttentionArgs& args, float scale,
                                const Stream& stream,
                                const DecodeAttentionGpuPlan& plan = {});

}  // namespace lamina::attention_internal
