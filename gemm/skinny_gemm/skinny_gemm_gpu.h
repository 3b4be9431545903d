#pragma once

// The GPU backends of SkinnyGemm, seen from the host. The arguments are valid
// and there is something to do.

#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "lamina/core/stream.h"
#include "lamina/gemm/skinny_gemm.h"
#include "lamina/gemm/skinny_gemm/general_gemm_args.h"

namespace lamina::gemm_internal {

// Rows of x that one launch takes; more take several.
inline constexpr int64_t kGpuRowBlock = 64;

int64_t SkinnyGemmGpuWorkspaceBytes(const SkinnyGemmProblem& problem);

// `plan` overrides the policy, for tests and tuning: the general kernel then
// takes the problem.
absl::Status SkinnyGemmGpu(const SkinnyGemmArgs& args, const Stream& stream,
                           std::optional<GeneralGemmPlan> plan = std::nullopt);

}  // namespace lamina::gemm_internal
