#include "lamina/activation/activation.h"

#include <array>

#include "absl/strings/str_cat.h"
#include "lamina/activation/activation/activation_cpu.h"
#include "lamina/activation/activation/activation_policy.h"
#include "lamina/activation/row_outputs.h"
#include "lamina/activation/row_outputs_gpu.h"
#include "lamina/core/device/built_backends.h"
#include "lamina/core/status.h"

namespace lamina {
namespace {

absl::Status Validate(const ActivationArgs& args) {
  constexpr const char* kOp = "Activation";
  LAMINA_RETURN_IF_ERROR(CheckMatrix(kOp, "x", args.x));
  if (!Dispatch(ActivationTable{}, std::array{args.x.dtype}, [](auto) {})) {
    return absl::UnimplementedError(
        absl::StrCat(kOp, ": x.dtype: given ", Name(args.x.dtype),
                     "; supported: ", SupportedRows(ActivationTable{})));
  }
  if (static_cast<int>(args.kind) >= kNumActivationKinds) {
    return InvalidArgument(kOp, "kind", static_cast<int64_t>(args.kind),
                           "an ActivationKind");
  }
  return activation_internal::CheckRowOutputs(kOp, {args.y, args.quantized},
                                              args.x, args.x.cols,
                                              /*in_place_ok=*/true);
}

}  // namespace

absl::Status Activation(const ActivationArgs& args, Stream stream) {
  LAMINA_RETURN_IF_ERROR(CheckStream("Activation", stream));
  LAMINA_RETURN_IF_ERROR(Validate(args));
  if (args.x.total_rows() == 0 || args.x.cols == 0) return absl::OkStatus();
  if (stream.device().backend != Backend::kCpu) {
    if constexpr (kHasGpu) {
      return activation_internal::ActivationGpu(args, stream);
    }
  }
  activation_internal::ActivationCpu(args, stream);
  return absl::OkStatus();
}

}  // namespace lamina
