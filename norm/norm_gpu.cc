#include "lamina/norm/norm_gpu.h"

#include "lamina/core/device.h"
#include "lamina/core/device/runtime.h"
#include "lamina/core/octet_access.h"
#include "lamina/norm/norm_policy.h"
#include "lamina/quant/to_quantized_args.h"

namespace lamina::norm_internal {
namespace {

NormArgs ToArgs(const NormProblem& problem) {
  return {.x = problem.x,
          .residual = {},
          .residual_out = {},
          .weight = problem.weight,
          .bias = problem.bias,
          .weight_plus_one = problem.weight_plus_one,
          .epsilon = problem.epsilon,
          .y = problem.y,
          .quantized = ToQuantizedArgs(problem.quantized)};
}

bool MovesOctets(const NormArgs& args, const ConstMatrixView& codes) {
  using gpu::MovesOctets;
  return MovesOctets(args.x) && MovesOctets(args.residual) &&
         MovesOctets(args.residual_out) && MovesOctets(args.weight) &&
         MovesOctets(args.bias) && MovesOctets(args.y) && MovesOctets(codes);
}

using Launcher = gpu::Error (*)(const NormArgs&, const NormPlan&,
                                const gpu::LaunchTarget&);

absl::Status Run(Launcher launch, const NormProblem& problem,
                 const NormArgs& args, const Stream& stream,
                 const std::optional<NormPlan>& forced) {
  const bool whole = MovesOctets(args, problem.quantized.codes);
  const NormPlan plan =
      forced.has_value()
          ? *forced
          : SelectNormPlan(args.x.total_rows(), args.x.cols, whole,
                           gpu::RowArchOf(GetDeviceInfo(stream.device())));
  return ToStatus(problem.op, launch(args, plan, TargetOf(stream)));
}

}  // namespace

absl::Status RmsNormGpu(const NormProblem& problem, const Stream& stream,
                        std::optional<NormPlan> plan) {
  return Run(&LaunchRmsNorm, problem, ToArgs(problem), stream, plan);
}

absl::Status AddRmsNormGpu(const AddRmsNormProblem& problem,
                           const Stream& stream, std::optional<NormPlan> plan) {
  NormArgs args = ToArgs(problem.norm);
  args.residual = problem.residual;
  args.residual_out = problem.residual_out;
  return Run(&LaunchAddRmsNorm, problem.norm, args, stream, plan);
}

absl::Status LayerNormGpu(const NormProblem& problem, const Stream& stream,
                          std::optional<NormPlan> plan) {
  return Run(&LaunchLayerNorm, problem, ToArgs(problem), stream, plan);
}

}  // namespace lamina::norm_internal
