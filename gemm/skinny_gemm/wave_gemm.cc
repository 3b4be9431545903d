#include "lamina/gemm/skinny_gemm/wave_gemm.h"

#include <cstdint>

#include "lamina/core/device/runtime.h"
#include "lamina/gemm/skinny_gemm/wave_gemm_policy.h"

namespace lamina::gemm_internal {

gpu::Error RunWaveGemm(const GemmArgs& args, const Stream& stream,
                       const std::optional<WaveGemmPlan>& plan) {
  if (stream.device().backend != Backend::kCuda ||
      !RowsStartAt16Bytes(args.x, args.x_pitch, args.m) ||
      !RowsStartAt16Bytes(args.w, args.w_pitch, args.n)) {
    return gpu::kNoKernel;
  }
  const std::optional<WaveGemmPlan> selected = SelectWaveGemmPlan(
      {.m = args.m, .k = args.k, .x_type = args.x_type, .w_type = args.w_type});
  if (!selected.has_value()) return gpu::kNoKernel;
  return LaunchWaveGemm(args, plan.value_or(*selected), TargetOf(stream));
}

}  // namespace lamina::gemm_internal
