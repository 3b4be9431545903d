#include "lamina/quant/quantize.h"

#include <array>
#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "lamina/core/device/built_backends.h"
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

// What a GPU needs. The other arguments have been checked.
absl::Status CheckWorkspace(const QuantizeArgs& args) {
  const int64_t needed = quant_internal::QuantizeGpuWorkspaceBytes(
      {.total_rows = args.x.total_rows(),
       .cols = args.x.cols,
       .granularity = args.out.scales.granularity,
       .dynamic = args.out.dynamic});
  if (needed == 0) return absl::OkStatus();
  if (args.workspace_bytes < needed) {
    return InvalidArgument(
        kOp, "workspace_bytes", args.workspace_bytes,
        absl::StrCat("at least ", needed, " (QuantizeWorkspaceBytes)"));
  }
  if (args.workspace == nullptr) {
    return InvalidArgument(kOp, "workspace", std::string("null"), "a pointer");
  }
  if (reinterpret_cast<uintptr_t>(args.workspace) % alignof(float) != 0) {
    return InvalidArgument(kOp, "workspace",
                           std::string("a misaligned pointer"),
                           "alignment of one f32 (4 bytes)");
  }
  const ConstMatrixView workspace{
      .data = args.workspace, .dtype = DType::kI8, .rows = 1, .cols = needed};
  LAMINA_RETURN_IF_ERROR(CheckOverlap(kOp, "workspace", workspace, "x", args.x,
                                      /*in_place_ok=*/false));
  return CheckQuantizedOverlap(kOp, "out", args.out, "workspace", workspace);
}

}  // namespace

absl::Status Quantize(const QuantizeArgs& args, Stream stream) {
  LAMINA_RETURN_IF_ERROR(Check(args));
  LAMINA_RETURN_IF_ERROR(CheckStream(kOp, stream));
  if (args.x.total_rows() == 0 || args.x.cols == 0) return absl::OkStatus();
  if (stream.device().backend != Backend::kCpu) {
    if constexpr (kHasGpu) {
      LAMINA_RETURN_IF_ERROR(CheckWorkspace(args));
      return quant_internal::QuantizeGpu(args, stream);
    }
  }
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
  const Backend backend = device.device.backend;
  if (!IsBuilt(backend)) {
    return absl::UnimplementedError(
        absl::StrCat(kQuery, ": device: this build has no ", Name(backend),
                     " backend; built backends: ", kBuiltBackends));
  }
  if (backend != Backend::kCpu) {
    if constexpr (kHasGpu) {
      return quant_internal::QuantizeGpuWorkspaceBytes(problem);
    }
  }
  return 0;
}

}  // namespace lamina
