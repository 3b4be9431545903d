#pragma once

// The GEMM of one wave's tensor cores, seen from the host.

#include <optional>

#include "lamina/core/launch.h"
#include "lamina/core/stream.h"
#include "lamina/gemm/skinny_gemm/gemm_args.h"
#include "lamina/gemm/skinny_gemm/wave_gemm_args.h"

namespace lamina::gemm_internal {

// kNoKernel where the device, the types, an alignment or a size is not for it.
// `plan` overrides the policy, for tests and tuning.
gpu::Error RunWaveGemm(const GemmArgs& args, const Stream& stream,
                       const std::optional<WaveGemmPlan>& plan = std::nullopt);

}  // namespace lamina::gemm_internal
