#include "lamina/activation/gated_activation.h"

#include <array>

#include "absl/strings/str_cat.h"
#include "lamina/activation/gated_activation/gated_activation_cpu.h"
#include "lamina/activation/gated_activation/gated_activation_policy.h"
#include "lamina/activation/row_outputs.h"
#include "lamina/activation/row_outputs_gpu.h"
#include "lamina/core/device/built_backends.h"
#include "lamina/core/status.h"

namespace lamina {
namespace {

absl::Status Validate(const GatedActivationArgs& args) {
  constexpr const char* kOp = "GatedActivation";
  LAMINA_RETURN_IF_ERROR(CheckMatrix(kOp, "x", args.x));
  if (!Dispatch(GatedActivationTable{}, std::array{args.x.dtype},
                [](auto) {})) {
    return absl::UnimplementedError(
        absl::StrCat(kOp, ": x.dtype: given ", Name(args.x.dtype),
                     "; supported: ", SupportedRows(GatedActivationTable{})));
  }
  if (args.x.cols % 2 != 0) {
    return InvalidArgument(kOp, "x.cols", args.x.cols,
                           "an even number (gate and up)");
  }
  LAMINA_RETURN_IF_ERROR(CheckGateSpec(kOp, "gate", args.gate));
  return activation_internal::CheckRowOutputs(kOp, {args.y, args.quantized},
                                              args.x, args.x.cols / 2,
                                              /*in_place_ok=*/false);
}

}  // namespace

absl::Status GatedActivation(const GatedActivationArgs& args, Stream stream) {
  LAMINA_RETURN_IF_ERROR(CheckStream("GatedActivation", stream));
  LAMINA_RETURN_IF_ERROR(Validate(args));
  if (args.x.total_rows() == 0 || args.x.cols == 0) return absl::OkStatus();
  if (stream.device().backend != Backend::kCpu) {
    if constexpr (kHasGpu) {
      return activation_internal::GatedActivationGpu(args, stream);
    }
  }
  activation_internal::GatedActivationCpu(args, stream);
  return absl::OkStatus();
}

}  // namespace lamina
