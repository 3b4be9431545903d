#pragma once

// The GPU backends of SkinnyGemm, seen from the host. The arguments are valid
// and there is something to do.

#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "lamina/core/stream.h"
#include "lamina/gemm/skinny_gemm.h"
#include "lamina/gemm/skinny_gemm/general_gemm_args.h"
#include "lamina/gemm/skinny_gemm/ring_gemm_policy.h"
#include "lamina/gemm/skinny_gemm/wave_gemm_args.h"

namespace lamina::gemm_internal {

// Rows of x that one launch takes; more take several.
inline constexpr int64_t kGpuRowBlock = 64;

int64_t SkinnyGemmGpuWorkspaceBytes(const SkinnyGemmProblem& problem);

// What overrides the policies, for tests and tuning: that kernel then takes the
// problem, or there is an error.
struct SkinnyGemmGpuPlan {
  std::optional<GeneralGemmPlan> general = std::nullopt;
  std::optional<RingGemmChoice> ring = std::nullopt;
  std::optional<WaveGemmPlan> wave = std::nullopt;
};

absl::Status SkinnyGemmGpu(const SkinnyGemmArgs& args, const Stream& stream,
                           const SkinnyGemmGpuPlan& plan = {});

}  // namespace lamina::gemm_internal
