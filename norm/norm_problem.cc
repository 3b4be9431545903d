#include "lamina/norm/norm_problem.h"

#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"
#include "lamina/core/status.h"

namespace lamina::norm_internal {
namespace {

constexpr char kQuantized[] = "quantized";

ConstMatrixView AsMatrix(const ConstVectorView& v) {
  return {.data = v.data,
          .dtype = v.dtype,
          .rows = 1,
          .cols = v.size,
          .row_stride = v.size};
}

absl::Status CheckTypes(const NormProblem& problem) {
  if (Dispatch(NormTable{}, problem.types(), [](auto) {})) {
    return absl::OkStatus();
  }
  return absl::UnimplementedError(absl::StrCat(
      problem.op, ": x, weight: given ", KeyName(problem.types(), " x "),
      ", supported ", SupportedRows(NormTable{}, " x ")));
}

absl::Status CheckWeights(const NormProblem& problem) {
  const ConstVectorView& weight = problem.weight;
  const ConstVectorView& bias = problem.bias;
  const int64_t cols = problem.x.cols;
  if (weight.has_value()) {
    LAMINA_RETURN_IF_ERROR(CheckVector(problem.op, "weight", weight, cols));
  } else if (problem.weight_plus_one) {
    return InvalidArgument(problem.op, "weight", std::string("null"),
                           "a vector (weight_plus_one)");
  }
  if (bias.has_value()) {
    if (weight.has_value()) {
      LAMINA_RETURN_IF_ERROR(
          CheckDType(problem.op, "bias", bias.dtype, weight.dtype));
    }
    LAMINA_RETURN_IF_ERROR(CheckVector(problem.op, "bias", bias, cols));
  }
  return absl::OkStatus();
}

absl::Status CheckOutputs(const NormProblem& problem) {
  const ConstMatrixView& x = problem.x;
  const MatrixView& y = problem.y;
  const QuantizedOutput& quantized = problem.quantized;
  if (!y.has_value() && !quantized.has_value()) {
    return InvalidArgument(problem.op, "y", std::string("null"),
                           "a matrix (or quantized.codes)");
  }
  if (y.has_value()) {
    LAMINA_RETURN_IF_ERROR(
        CheckShape(problem.op, "y", y, x.batch, x.rows, x.cols));
    LAMINA_RETURN_IF_ERROR(CheckDType(problem.op, "y", y.dtype, x.dtype));
  }
  if (quantized.has_value()) {
    LAMINA_RETURN_IF_ERROR(CheckRowwiseQuantizedOutput(
        problem.op, kQuantized, quantized, x.batch, x.rows, x.cols));
  } else if (quantized.scales.has_value()) {
    return InvalidArgument(problem.op, "quantized.codes", std::string("null"),
                           "a matrix (quantized.scales is given)");
  }
  return absl::OkStatus();
}

absl::Status CheckAliasing(const NormProblem& problem) {
  LAMINA_RETURN_IF_ERROR(
      CheckOutputsOverlap(problem, "x", problem.x, /*in_place_ok=*/true));
  LAMINA_RETURN_IF_ERROR(CheckOutputsOverlap(
      problem, "weight", AsMatrix(problem.weight), /*in_place_ok=*/false));
  LAMINA_RETURN_IF_ERROR(CheckOutputsOverlap(
      problem, "bias", AsMatrix(problem.bias), /*in_place_ok=*/false));
  if (!problem.y.has_value() || !problem.quantized.has_value()) {
    return absl::OkStatus();
  }
  LAMINA_RETURN_IF_ERROR(CheckQuantizedOverlap(
      problem.op, kQuantized, problem.quantized, "y", problem.y));
  // Scales that are read must not change under way either.
  return CheckOverlap(problem.op, "y", problem.y, "quantized.scales",
                      ScaleGridView(problem.quantized.scales,
                                    problem.x.total_rows(), problem.x.cols),
                      /*in_place_ok=*/false);
}

}  // namespace

absl::Status CheckOutputsOverlap(const NormProblem& problem,
                                 const char* in_name, const ConstMatrixView& in,
                                 bool in_place_ok) {
  if (problem.y.has_value()) {
    LAMINA_RETURN_IF_ERROR(
        CheckOverlap(problem.op, "y", problem.y, in_name, in, in_place_ok));
  }
  if (!problem.quantized.has_value()) return absl::OkStatus();
  return CheckQuantizedOverlap(problem.op, kQuantized, problem.quantized,
                               in_name, in);
}

absl::Status CheckNotWeights(const NormProblem& problem, const char* out_name,
                             const ConstMatrixView& out) {
  LAMINA_RETURN_IF_ERROR(CheckOverlap(problem.op, out_name, out, "weight",
                                      AsMatrix(problem.weight),
                                      /*in_place_ok=*/false));
  return CheckOverlap(problem.op, out_name, out, "bias", AsMatrix(problem.bias),
                      /*in_place_ok=*/false);
}

absl::Status CheckNorm(const NormProblem& problem) {
  LAMINA_RETURN_IF_ERROR(CheckMatrix(problem.op, "x", problem.x));
  if (problem.x.cols == 0) {
    return InvalidArgument(problem.op, "x.cols", problem.x.cols, ">= 1");
  }
  LAMINA_RETURN_IF_ERROR(CheckTypes(problem));
  if (!std::isfinite(problem.epsilon) || problem.epsilon < 0) {
    return InvalidArgument(problem.op, "epsilon", absl::StrCat(problem.epsilon),
                           "a finite number >= 0");
  }
  LAMINA_RETURN_IF_ERROR(CheckWeights(problem));
  if (problem.x.total_rows() == 0) return absl::OkStatus();
  LAMINA_RETURN_IF_ERROR(CheckOutputs(problem));
  return CheckAliasing(problem);
}

}  // namespace lamina::norm_internal
