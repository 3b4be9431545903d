#pragma once

// The GPU backend of both operators, seen from the host. The arguments are
// valid and there is something to do.

#include <optional>

#include "absl/status/status.h"
#include "lamina/activation/activation.h"
#include "lamina/activation/gated_activation.h"
#include "lamina/activation/row_outputs_args.h"
#include "lamina/core/stream.h"

namespace lamina::activation_internal {

// `plan` overrides the policy, for tests and tuning.
absl::Status ActivationGpu(const ActivationArgs& args, const Stream& stream,
                           std::optional<RowKernelPlan> plan = std::nullopt);
absl::Status GatedActivationGpu(
    const GatedActivationArgs& args, const Stream& stream,
    std::optional<RowKernelPlan> plan = std::nullopt);

}  // namespace lamina::activation_internal
