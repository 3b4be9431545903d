#include "lamina/norm/layer_norm.h"

#include "lamina/core/device/built_backends.h"
#include "lamina/core/status.h"
#include "lamina/norm/layer_norm/layer_norm_policy.h"
#include "lamina/norm/norm_gpu.h"

namespace lamina {

absl::Status LayerNorm(const LayerNormArgs& args, Stream stream) {
  const norm_internal::NormProblem problem{
      .op = "LayerNorm",
      .x = args.x,
      .weight = args.weight,
      .bias = args.bias,
      .weight_plus_one = args.weight_plus_one,
      .epsilon = args.epsilon,
      .y = args.y,
      .quantized = args.quantized};
  LAMINA_RETURN_IF_ERROR(norm_internal::CheckNorm(problem));
  LAMINA_RETURN_IF_ERROR(CheckStream(problem.op, stream));
  if (problem.x.total_rows() == 0) return absl::OkStatus();
  if (stream.device().backend != Backend::kCpu) {
    if constexpr (kHasGpu) return norm_internal::LayerNormGpu(problem, stream);
  }
  norm_internal::LayerNormCpu(problem, stream);
  return absl::OkStatus();
}

}  // namespace lamina
