#pragma once

// The GEMM of Hopper's tensor cores, seen from the host.

#include <optional>

#include "lamina/core/launch.h"
#include "lamina/core/stream.h"
#include "lamina/gemm/skinny_gemm/gemm_args.h"
#include "lamina/gemm/skinny_gemm/ring_gemm_policy.h"

namespace lamina::gemm_internal {

// kNoKernel where the device, the types, an alignment or a size is not for it.
// `choice` overrides the policy, for tests and tuning.
gpu::Error RunRingGemm(
    const GemmArgs& args, const Stream& stream,
    const std::optional<RingGemmChoice>& choice = std::nullopt);

}  // namespace lamina::gemm_internal
