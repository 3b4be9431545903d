#include "lamina/norm/add_rms_norm.h"

#include "lamina/core/device/built_backends.h"
#include "lamina/core/status.h"
#include "lamina/norm/add_rms_norm/add_rms_norm_policy.h"
#include "lamina/norm/norm_gpu.h"

namespace lamina {
namespace {

// What RmsNorm does not have: the residual, in and out.
absl::Status CheckResidual(const norm_internal::AddRmsNormProblem& problem) {
  const char* op = problem.norm.op;
  const ConstMatrixView& x = problem.norm.x;
  const ConstMatrixView& residual = problem.residual;
  const MatrixView& out = problem.residual_out;
  LAMINA_RETURN_IF_ERROR(
      CheckShape(op, "residual", residual, x.batch, x.rows, x.cols));
  LAMINA_RETURN_IF_ERROR(CheckDType(op, "residual", residual.dtype, x.dtype));
  LAMINA_RETURN_IF_ERROR(
      CheckShape(op, "residual_out", out, x.batch, x.rows, x.cols));
  LAMINA_RETURN_IF_ERROR(CheckDType(op, "residual_out", out.dtype, x.dtype));
  if (x.total_rows() == 0) return absl::OkStatus();

  LAMINA_RETURN_IF_ERROR(CheckOverlap(op, "residual_out", out, "x", x,
                                      /*in_place_ok=*/true));
  LAMINA_RETURN_IF_ERROR(CheckOverlap(op, "residual_out", out, "residual",
                                      residual, /*in_place_ok=*/true));
  LAMINA_RETURN_IF_ERROR(
      norm_internal::CheckNotWeights(problem.norm, "residual_out", out));
  LAMINA_RETURN_IF_ERROR(norm_internal::CheckOutputsOverlap(
      problem.norm, "residual", residual, /*in_place_ok=*/true));
  return norm_internal::CheckOutputsOverlap(problem.norm, "residual_out", out,
                                            /*in_place_ok=*/false);
}

}  // namespace

absl::Status AddRmsNorm(const AddRmsNormArgs& args, Stream stream) {
  const norm_internal::AddRmsNormProblem problem{
      .norm = {.op = "AddRmsNorm",
               .x = args.x,
               .weight = args.weight,
               .weight_plus_one = args.weight_plus_one,
               .epsilon = args.epsilon,
               .y = args.y,
               .quantized = args.quantized},
      .residual = args.residual,
      .residual_out = args.residual_out};
  LAMINA_RETURN_IF_ERROR(norm_internal::CheckNorm(problem.norm));
  LAMINA_RETURN_IF_ERROR(CheckResidual(problem));
  LAMINA_RETURN_IF_ERROR(CheckStream(problem.norm.op, stream));
  if (args.x.total_rows() == 0) return absl::OkStatus();
  if (stream.device().backend != Backend::kCpu) {
    if constexpr (kHasGpu) return norm_internal::AddRmsNormGpu(problem, stream);
  }
  norm_internal::AddRmsNormCpu(problem, stream);
  return absl::OkStatus();
}

}  // namespace lamina
