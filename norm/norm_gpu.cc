#include "lamina/norm/norm_gpu.h"

#include "lamina/core/device.h"
#include "lamina/core/device/runtime.h"
#include "lamina/core/octet_access.h"
#include "lamina/norm/lean_norm_policy.h"
#include "lamina/norm/norm_policy.h"
#include "lamina/quant/lean_rows_gpu.h"
#include "lamina/quant/to_quantized_args.h"

namespace lamina::norm_internal {
namespace {

using quant_internal::IsLean;
using quant_internal::LeanPitch;

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

// The arguments of the lean kernels when the case is theirs. All operands can
// be moved by octets.
std::optional<LeanNormArgs> ToLeanArgs(const NormArgs& args, LeanOutput output,
                                       const LeanNormPlan& plan) {
  const DType type = args.x.dtype;
  const QuantizedArgs& quantized = args.quantized;
  const MatrixView out =
      output == LeanOutput::kY ? Flattened(args.y) : quantized.codes;
  const ConstMatrixView x = Flattened(args.x);
  const ConstMatrixView residual = Flattened(args.residual);
  const MatrixView residual_out = Flattened(args.residual_out);
  const LeanNormVariant variant{.octets = plan.split.octets, .output = output};
  if (!variant.CompiledForType(type == DType::kF32) ||
      !args.weight.has_value() || args.weight.dtype != type ||
      args.bias.has_value() || !IsLean(x) || !IsLean(residual) ||
      !IsLean(residual_out) || !IsLean(out) ||
      args.x.total_rows() > gpu::kMaxBlocks / 8) {
    return std::nullopt;
  }
  return LeanNormArgs{.x = x.data,
                      .residual = residual.data,
                      .residual_out = residual_out.data,
                      .weight = args.weight.data,
                      .out = out.data,
                      .scales = static_cast<float*>(quantized.scales.data),
                      .x_pitch = LeanPitch(x),
                      .residual_pitch = LeanPitch(residual),
                      .residual_out_pitch = LeanPitch(residual_out),
                      .out_pitch = LeanPitch(out),
                      .rows = static_cast<uint32_t>(args.x.total_rows()),
                      .cols = static_cast<int32_t>(args.x.cols),
                      .epsilon = args.epsilon,
                      .code = quantized.codes.dtype,
                      .weight_plus_one = args.weight_plus_one,
                      .clamp = quantized.clamp,
                      .qmax = quantized.qmax,
                      .inverse_qmax = quantized.inverse_qmax,
                      .min_scale = quantized.min_scale,
                      .scale_ub = quantized.scale_ub,
                      .block_shift = quantized.scales.col_shift - 3,
                      .scale_row_stride = quantized.scales.row_stride,
                      .scale_col_stride = quantized.scales.col_stride};
}

using Launcher = gpu::Error (*)(const NormArgs&, const NormPlan&,
                                const gpu::LaunchTarget&);

absl::Status Run(Launcher launch, const NormProblem& problem,
                 const NormArgs& args, const Stream& stream,
                 const std::optional<NormPlan>& forced) {
  const int64_t rows = args.x.total_rows();
  const int64_t cols = args.x.cols;
  const gpu::RowArch arch = gpu::RowArchOf(GetDeviceInfo(stream.device()));
  const bool whole = MovesOctets(args, problem.quantized.codes);
  const std::optional<LeanOutput> output =
      quant_internal::LeanOutputOf(args.y, args.quantized);
  const auto lean_plan = SelectLeanNormPlan(
      rows, cols, args.residual.has_value(), args.x.dtype == DType::kF32,
      args.quantized.dynamic, arch);
  if (!forced.has_value() && whole && output.has_value() &&
      lean_plan.has_value() && launch != &LaunchLayerNorm) {
    if (const auto lean_args = ToLeanArgs(args, *output, *lean_plan)) {
      return ToStatus(problem.op,
                      LaunchLeanNorm(*lean_args, args.x.dtype, *lean_plan,
                                     *output, TargetOf(stream)));
    }
  }
  const NormPlan plan =
      forced.has_value() ? *forced : SelectNormPlan(rows, cols, whole, arch);
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
