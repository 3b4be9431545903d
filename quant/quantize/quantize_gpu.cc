#include "lamina/core/device.h"
#include "lamina/core/device/runtime.h"
#include "lamina/core/octet_access.h"
#include "lamina/quant/lean_rows_gpu.h"
#include "lamina/quant/quantize/lean_quantize.h"
#include "lamina/quant/quantize/quantize_policy.h"
#include "lamina/quant/quantize/quantize_split.h"
#include "lamina/quant/to_quantized_args.h"

namespace lamina::quant_internal {

int64_t QuantizeGpuWorkspaceBytes(const QuantizeProblem& problem) {
  if (!problem.dynamic || problem.granularity != ScaleGranularity::kPerTensor ||
      problem.total_rows == 0 || problem.cols == 0) {
    return 0;
  }
  return NumPartials(problem.total_rows, problem.cols) * int64_t{sizeof(float)};
}

absl::Status QuantizeGpu(const QuantizeArgs& args, const Stream& stream) {
  QuantizeKernelArgs kernel{.x = Flattened(args.x),
                            .out = ToQuantizedArgs(args.out)};
  const QuantizeShape shape{
      .rows = args.x.total_rows(),
      .cols = args.x.cols,
      .whole = args.x.cols % 8 == 0 &&
               RowsAreAligned(args.x, gpu::OctetAlignment(args.x.dtype)) &&
               kernel.out.octets};
  const DeviceInfo& device = GetDeviceInfo(stream.device());
  if (shape.whole) {
    const auto lean = SelectLeanRows(
        {.x = kernel.x, .first = kernel.x.data, .cols = shape.cols}, {},
        kernel.out, device);
    if (lean.has_value()) {
      return ToStatus("Quantize",
                      LaunchLeanQuantize(lean->args, kernel.x.dtype, lean->plan,
                                         TargetOf(stream)));
    }
  }
  const gpu::RowArch arch = gpu::RowArchOf(device);
  const auto launch = [&](const QuantizePlan& plan) {
    return ToStatus("Quantize", LaunchQuantize(kernel, plan, TargetOf(stream)));
  };
  if (args.out.dynamic) {
    switch (args.out.scales.granularity) {
      case ScaleGranularity::kPerRow:
        return launch(SelectQuantizeRows(shape, arch));
      case ScaleGranularity::kPerTile:
        return launch(SelectQuantizeTiles(shape));
      case ScaleGranularity::kPerTensor: {
        kernel.partials = static_cast<float*>(args.workspace);
        kernel.num_partials =
            static_cast<int>(NumPartials(shape.rows, shape.cols));
        const absl::Status amax = launch(SelectAmaxPlan(shape));
        if (!amax.ok()) return amax;
        break;
      }
      case ScaleGranularity::kPerBlock:
        break;
    }
  }
  return launch(SelectQuantizeSpans(shape, arch));
}

}  // namespace lamina::quant_internal
