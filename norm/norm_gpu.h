#pragma once

// The GPU backends of the norms, seen from the host. The arguments are valid
// and there is something to do.

#include <optional>

#include "absl/status/status.h"
#include "lamina/core/stream.h"
#include "lamina/norm/norm_args.h"
#include "lamina/norm/norm_problem.h"

namespace lamina::norm_internal {

// `plan` overrides the policy, for tests and tuning: the general kernels then
// take the rows.
absl::Status RmsNormGpu(const NormProblem& problem, const Stream& stream,
                        std::optional<NormPlan> plan = std::nullopt);
absl::Status AddRmsNormGpu(const AddRmsNormProblem& problem,
                           const Stream& stream,
                           std::optional<NormPlan> plan = std::nullopt);
absl::Status LayerNormGpu(const NormProblem& problem, const Stream& stream,
                          std::optional<NormPlan> plan = std::nullopt);

}  // namespace lamina::norm_internal
