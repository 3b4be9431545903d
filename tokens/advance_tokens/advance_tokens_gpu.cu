#include "lamina/core/launch.cuh"
#include "lamina/tokens/advance_tokens/advance_tokens_kernel.cuh"

namespace lamina::tokens_internal {
namespace {

__global__ void __launch_bounds__(kAdvanceTokensLanes)
    AdvanceTokensKernel(AdvanceTokensKernelArgs args) {
  AdvanceBlock(args);
}

}  // namespace

gpu::Error LaunchAdvanceTokens(const AdvanceTokensKernelArgs& args,
                               const gpu::LaunchTarget& target) {
  return gpu::Launch(&AdvanceTokensKernel,
                     {.blocks = 1, .threads = kAdvanceTokensLanes}, target,
                     args);
}

}  // namespace lamina::tokens_internal
