#include "lamina/core/device.h"
#include "lamina/core/device/runtime.h"
#include "lamina/core/octet_access.h"
#include "lamina/quant/dequantize/dequantize_args.h"
#include "lamina/quant/dequantize/dequantize_policy.h"
#include "lamina/quant/to_quantized_args.h"

namespace lamina::quant_internal {

absl::Status DequantizeGpu(const DequantizeArgs& args, const Stream& stream) {
  const DequantizeKernelArgs kernel{.codes = Flattened(args.codes),
                                    .scales = ToScaleArgs(args.scales),
                                    .y = Flattened(args.y)};
  const bool whole = args.y.cols % 8 == 0 && RowsAreAligned(args.codes, 8) &&
                     RowsAreAligned(args.y, gpu::OctetAlignment(args.y.dtype));
  const gpu::SpanSplit split =
      gpu::SelectSpanSplit(args.y.total_rows(), args.y.cols,
                           GetDeviceInfo(stream.device()).num_units);
  return ToStatus("Dequantize",
                  LaunchDequantize(kernel, split, whole, TargetOf(stream)));
}

}  // namespace lamina::quant_internal
