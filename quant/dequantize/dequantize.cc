#include "lamina/quant/dequantize.h"

#include <array>

#include "absl/strings/str_cat.h"
#include "lamina/core/device/built_backends.h"
#include "lamina/core/status.h"
#include "lamina/quant/dequantize/dequantize_policy.h"

namespace lamina {
namespace {

constexpr char kOp[] = "Dequantize";

absl::Status Check(const DequantizeArgs& args) {
  const ConstMatrixView& codes = args.codes;
  LAMINA_RETURN_IF_ERROR(CheckMatrix(kOp, "codes", codes));
  LAMINA_RETURN_IF_ERROR(
      CheckShape(kOp, "y", args.y, codes.batch, codes.rows, codes.cols));
  LAMINA_RETURN_IF_ERROR(
      CheckScales(kOp, "scales", args.scales, codes.total_rows(), codes.cols));
  const std::array types{codes.dtype, args.y.dtype};
  if (!Dispatch(quant_internal::DequantizeTable{}, types, [](auto) {})) {
    return absl::UnimplementedError(absl::StrCat(
        kOp, ": codes -> y: given ", KeyName(types),
        "; supported: ", SupportedRows(quant_internal::DequantizeTable{})));
  }
  LAMINA_RETURN_IF_ERROR(
      CheckOverlap(kOp, "y", args.y, "codes", codes, /*in_place_ok=*/false));
  return CheckOverlap(
      kOp, "y", args.y, "scales",
      ScaleGridView(args.scales, codes.total_rows(), codes.cols),
      /*in_place_ok=*/false);
}

}  // namespace

absl::Status Dequantize(const DequantizeArgs& args, Stream stream) {
  LAMINA_RETURN_IF_ERROR(Check(args));
  LAMINA_RETURN_IF_ERROR(CheckStream(kOp, stream));
  if (args.codes.total_rows() == 0 || args.codes.cols == 0) {
    return absl::OkStatus();
  }
  if (stream.device().backend != Backend::kCpu) {
    if constexpr (kHasGpu) {
      return quant_internal::DequantizeGpu(args, stream);
    }
  }
  quant_internal::DequantizeCpu(args, stream);
  return absl::OkStatus();
}

}  // namespace lamina
