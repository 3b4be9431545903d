#include "lamina/quant/quantize.h"

#include <array>

#include "absl/strings/str_cat.h"
#include "lamina/core/status.h"
#include "lamina/quant/quantize/quantize_policy.h"

namespace lamina {
namespace {

constexpr char kOp[] = "Quantize";

absl::Status Check(const QuantizeArgs& args) {
  const ConstMatrixView& x = args.x;
  LAMINA_RETURN_IF_ERROR(CheckMatrix(kOp, "x", x));
  LAMINA_RETURN_IF_ERROR(
      CheckQuantizedOutput(kOp, "out", args.out, x.batch, x.rows, x.cols));
  const std::array types{x.dtype, args.out.codes.dtype};
  if (!Dispatch(quant_internal::QuantizeTable{}, types, [](auto) {})) {
    return absl::UnimplementedError(absl::StrCat(
        kOp, ": x -> out.codes: given ", KeyName(types),
        "; supported: ", SupportedRows(quant_internal::QuantizeTable{})));
  }
  return CheckQuantizedOverlap(kOp, "out", args.out, "x", x);
}

}  // namespace

absl::Status Quantize(const QuantizeArgs& args, Stream stream) {
  LAMINA_RETURN_IF_ERROR(Check(args));
  LAMINA_RETURN_IF_ERROR(CheckCpuStream(kOp, stream));
  if (args.x.total_rows() == 0 || args.x.cols == 0) return absl::OkStatus();
  quant_internal::QuantizeCpu(args, stream);
  return absl::OkStatus();
}

absl::StatusOr<int64_t> QuantizeWorkspaceBytes(const QuantizeProblem& problem,
                                               const DeviceInfo& device) {
  constexpr char kQuery[] = "QuantizeWorkspaceBytes";
  if (problem.total_rows < 0) {
    return InvalidArgument(kQuery, "total_rows", problem.total_rows, ">= 0");
  }
  if (problem.cols < 0) {
    return InvalidArgument(kQuery, "cols", problem.cols, ">= 0");
  }
  if (device.device.backend != Backend::kCpu) {
    return absl::UnimplementedError(absl::StrCat(
        kQuery, ": device: this build has no ", Name(device.device.backend),
        " backend; built backends: cpu"));
  }
  return 0;
}

}  // namespace lamina
