#include "lamina/norm/rms_norm.h"

#include "lamina/core/device/built_backends.h"
#include "lamina/core/status.h"
#include "lamina/norm/norm_gpu.h"
#include "lamina/norm/rms_norm/rms_norm_policy.h"

namespace lamina {

absl::Status RmsNorm(const RmsNormArgs& args, Stream stream) {
  const norm_internal::NormProblem problem{
      .op = "RmsNorm",
      .x = args.x,
      .weight = args.weight,
      .weight_plus_one = args.weight_plus_one,
      .epsilon = args.epsilon,
      .y = args.y,
      .quantized = args.quantized};
  LAMINA_RETURN_IF_ERROR(norm_internal::CheckNorm(problem));
  LAMINA_RETURN_IF_ERROR(CheckStream(problem.op, stream));
  if (problem.x.total_rows() == 0) return absl::OkStatus();
  if (stream.device().backend != Backend::kCpu) {
    if constexpr (kHasGpu) return norm_internal::RmsNormGpu(problem, stream);
  }
  norm_internal::RmsNormCpu(problem, stream);
  return absl::OkStatus();
}

}  // namespace lamina
