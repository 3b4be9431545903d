#pragma once

// The GEMM of Hopper's tensor cores, seen from the host.

#include <optional>

#include "lamina/core/device.h"
#include "lamina/core/launch.h"
#include "lamina/core/stream.h"
#include "lamina/gemm/skinny_gemm/gemm_args.h"
#include "lamina/gemm/skinny_gemm/ring_gemm_args.h"
#include "lamina/gemm/skinny_gemm/ring_gemm_policy.h"

namespace lamina::gemm_internal {

// None where the device, the types, an alignment or a size is not for it.
std::optional<RingGemmProblem> RingGemmProblemOf(const GemmArgs& args,
                                                 const DeviceInfo& device);
std::optional<RingGemmPlan> SelectRingGemmPlan(const GemmArgs& args,
                                               const Stream& stream);

gpu::Error RunRingGemm(const GemmArgs& args, const RingGemmPlan& plan,
                       const Stream& stream);

}  // namespace lamina::gemm_internal
