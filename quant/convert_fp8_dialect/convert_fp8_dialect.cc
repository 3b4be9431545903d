#include "lamina/quant/convert_fp8_dialect.h"

#include <array>
#include <string>

#include "absl/strings/str_cat.h"
#include "lamina/core/device/built_backends.h"
#include "lamina/core/status.h"
#include "lamina/quant/convert_fp8_dialect/convert_fp8_dialect_policy.h"

namespace lamina {
namespace {

constexpr char kOp[] = "ConvertFp8Dialect";

absl::Status CheckScalePair(const ConvertFp8DialectArgs& args) {
  const ConstScaleView& in = args.scales;
  const ScaleView& out = args.out_scales;
  const int64_t rows = args.codes.total_rows();
  const int64_t cols = args.codes.cols;
  if (in.has_value() != out.has_value()) {
    return InvalidArgument(kOp, "out_scales.data",
                           std::string(out.has_value() ? "a pointer" : "null"),
                           in.has_value() ? "a pointer (scales is given)"
                                          : "null (scales is not given)");
  }
  if (!in.has_value()) return absl::OkStatus();
  LAMINA_RETURN_IF_ERROR(CheckScales(kOp, "scales", in, rows, cols));
  LAMINA_RETURN_IF_ERROR(
      CheckWrittenScales(kOp, "out_scales", out, rows, cols));
  LAMINA_RETURN_IF_ERROR(CheckDType(kOp, "out_scales", out.dtype, in.dtype));
  if (out.granularity != in.granularity) {
    return InvalidArgument(
        kOp, "out_scales.granularity", std::string(Name(out.granularity)),
        absl::StrCat(Name(in.granularity), " (scales.granularity)"));
  }
  if (out.granularity >= ScaleGranularity::kPerBlock &&
      out.block_cols != in.block_cols) {
    return InvalidArgument(kOp, "out_scales.block_cols", out.block_cols,
                           absl::StrCat(in.block_cols, " (scales.block_cols)"));
  }
  const ConstMatrixView in_grid = ScaleGridView(in, rows, cols);
  const ConstMatrixView out_grid = ScaleGridView(out, rows, cols);
  LAMINA_RETURN_IF_ERROR(CheckOverlap(kOp, "out_scales", out_grid, "scales",
                                      in_grid, /*in_place_ok=*/true));
  LAMINA_RETURN_IF_ERROR(CheckOverlap(kOp, "out_scales", out_grid, "codes",
                                      args.codes, /*in_place_ok=*/false));
  LAMINA_RETURN_IF_ERROR(CheckOverlap(kOp, "out_scales", out_grid, "out_codes",
                                      args.out_codes, /*in_place_ok=*/false));
  return CheckOverlap(kOp, "out_codes", args.out_codes, "scales", in_grid,
                      /*in_place_ok=*/false);
}

absl::Status Check(const ConvertFp8DialectArgs& args) {
  const ConstMatrixView& codes = args.codes;
  LAMINA_RETURN_IF_ERROR(CheckMatrix(kOp, "codes", codes));
  LAMINA_RETURN_IF_ERROR(CheckShape(kOp, "out_codes", args.out_codes,
                                    codes.batch, codes.rows, codes.cols));
  const std::array types{codes.dtype, args.out_codes.dtype};
  if (!Dispatch(quant_internal::ConvertFp8DialectTable{}, types, [](auto) {})) {
    return absl::UnimplementedError(absl::StrCat(
        kOp, ": codes -> out_codes: given ", KeyName(types), "; supported: ",
        SupportedRows(quant_internal::ConvertFp8DialectTable{})));
  }
  LAMINA_RETURN_IF_ERROR(CheckOverlap(kOp, "out_codes", args.out_codes, "codes",
                                      codes, /*in_place_ok=*/true));
  return CheckScalePair(args);
}

}  // namespace

absl::Status ConvertFp8Dialect(const ConvertFp8DialectArgs& args,
                               Stream stream) {
  LAMINA_RETURN_IF_ERROR(Check(args));
  LAMINA_RETURN_IF_ERROR(CheckStream(kOp, stream));
  if (args.codes.total_rows() == 0 || args.codes.cols == 0) {
    return absl::OkStatus();
  }
  if (stream.device().backend != Backend::kCpu) {
    if constexpr (kHasGpu) {
      return quant_internal::ConvertFp8DialectGpu(args, stream);
    }
  }
  quant_internal::ConvertFp8DialectCpu(args, stream);
  return absl::OkStatus();
}

}  // namespace lamina
