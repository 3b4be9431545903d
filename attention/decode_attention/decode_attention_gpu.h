#pragma once

// The GPU backends of DecodeAttention, seen from the host. The arguments are
// valid and there is something to do.

#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "lamina/attention/decode_attention.h"
#include "lamina/attention/decode_attention/general_attention_args.h"
#include "lamina/core/device.h"

namespace lamina::attention_internal {

int64_t DecodeAttentionGpuWorkspaceBytes(const DecodeAttentionProblem& problem,
                                         const DeviceInfo& device);

// `general_plan` overrides the policy, for tests and tuning: the general kernel
// then takes the problem.
absl::Status DecodeAttentionGpu(
    const DecodeAttentionArgs& args, float scale, const Stream& stream,
    const std::optional<GeneralAttentionPlan>& general_plan = std::nullopt);

}  // namespace lamina::attention_internal
