#include "lamina/core/device.h"
#include "lamina/core/device/runtime.h"
#include "lamina/core/status.h"
#include "lamina/quant/convert_fp8_dialect/convert_fp8_dialect_args.h"
#include "lamina/quant/convert_fp8_dialect/convert_fp8_dialect_policy.h"
#include "lamina/quant/to_quantized_args.h"

namespace lamina::quant_internal {
namespace {

// The grid that scales of this granularity make.
ConvertScalesArgs ToScalesArgs(const ConvertFp8DialectArgs& args,
                               float factor) {
  ConvertScalesArgs kernel{.scales = ToScaleArgs(args.scales),
                           .out_scales = ToScaleArgs(args.out_scales),
                           .rows = 1,
                           .cols = 1,
                           .factor = factor};
  const ScaleArgs& scales = kernel.scales;
  if (scales.granularity == ScaleGranularity::kPerTensor) return kernel;
  kernel.rows =
      CeilDiv(args.codes.total_rows(), int64_t{1} << scales.row_shift);
  if (scales.granularity == ScaleGranularity::kPerRow) return kernel;
  kernel.cols = CeilDiv(args.codes.cols, int64_t{1} << scales.col_shift);
  return kernel;
}

}  // namespace

absl::Status ConvertFp8DialectGpu(const ConvertFp8DialectArgs& args,
                                  const Stream& stream) {
  constexpr const char* kOp = "ConvertFp8Dialect";
  const Fp8FormatPair formats = FormatsOf(args);
  const ConvertCodesArgs codes{.codes = Flattened(args.codes),
                               .out_codes = Flattened(args.out_codes),
                               .from = formats.from,
                               .to = formats.to};
  const bool whole = args.codes.cols % 8 == 0 &&
                     RowsAreAligned(args.codes, 8) &&
                     RowsAreAligned(args.out_codes, 8);
  const gpu::SpanSplit split =
      gpu::SelectSpanSplit(args.codes.total_rows(), args.codes.cols,
                           GetDeviceInfo(stream.device()).num_units);
  const gpu::LaunchTarget target = TargetOf(stream);
  LAMINA_RETURN_IF_ERROR(
      ToStatus(kOp, LaunchConvertCodes(codes, split, whole, target)));
  if (!args.scales.has_value()) return absl::OkStatus();
  return ToStatus(
      kOp,
      LaunchConvertScales(
          ToScalesArgs(args, Fp8DialectScaleFactor(formats.from, formats.to)),
          target));
}

}  // namespace lamina::quant_internal
