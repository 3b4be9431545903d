#include "lamina/activation/row_outputs_gpu.h"

#include "lamina/activation/lean_swiglu.h"
#include "lamina/activation/row_outputs_policy.h"
#include "lamina/core/device.h"
#include "lamina/core/device/runtime.h"
#include "lamina/core/octet_access.h"
#include "lamina/quant/lean_rows_gpu.h"
#include "lamina/quant/to_quantized_args.h"

namespace lamina::activation_internal {
namespace {

// Every operand can be moved by whole octets.
bool IsWhole(const RowKernelArgs& args) {
  const auto octets = [&](const ConstMatrixView& view, int64_t begin) {
    const int64_t alignment = gpu::OctetAlignment(view.dtype);
    return RowsAreAligned(view, alignment) &&
           BytesFor(view.dtype, begin) % alignment == 0;
  };
  return args.cols % 8 == 0 && octets(args.x, args.gate_begin) &&
         octets(args.x, args.up_begin) && octets(args.y, 0) &&
         (!args.quantized.has_value() || args.quantized.octets);
}

gpu::Error Launch(const RowKernelArgs& args, const RowKernelPlan& plan,
                  const gpu::LaunchTarget& target) {
  switch (args.x.dtype) {
    case DType::kF32:
      return LaunchRowKernelF32(args, plan, target);
    case DType::kF16:
      return LaunchRowKernelF16(args, plan, target);
    case DType::kBF16:
      return LaunchRowKernelBf16(args, plan, target);
    default:
      return gpu::kNoKernel;
  }
}

bool IsSwiGlu(const RowKernelArgs& args) {
  return args.input == RowInput::kHalves && !args.gate.clamped &&
         args.gate.kind == ActivationKind::kSilu;
}

// Launches a lean kernel when the case is theirs.
std::optional<gpu::Error> LaunchLean(const RowKernelArgs& args, bool whole,
                                     const DeviceInfo& device,
                                     const gpu::LaunchTarget& target) {
  if (!whole || !IsSwiGlu(args)) return std::nullopt;
  const char* const x = static_cast<const char*>(args.x.data);
  const auto call = quant_internal::SelectLeanRows(
      {.x = args.x,
       .first = x + BytesFor(args.x.dtype, args.gate_begin),
       .up = x + BytesFor(args.x.dtype, args.up_begin),
       .cols = args.cols},
      args.y, args.quantized, device);
  if (!call.has_value()) return std::nullopt;
  return LaunchLeanSwiGlu(call->args, args.x.dtype, call->plan, target);
}

absl::Status Run(const char* op, RowKernelArgs args,
                 const QuantizedOutput& quantized, const Stream& stream,
                 const std::optional<RowKernelPlan>& forced) {
  args.x = Flattened(args.x);
  args.y = Flattened(args.y);
  args.quantized = ToQuantizedArgs(quantized);
  const DeviceInfo& device = GetDeviceInfo(stream.device());
  const bool whole = IsWhole(args);
  if (!forced.has_value()) {
    const auto error = LaunchLean(args, whole, device, TargetOf(stream));
    if (error.has_value()) return ToStatus(op, *error);
  }
  const RowKernelProblem problem{.rows = args.x.total_rows(),
                                 .cols = args.cols,
                                 .scale_of_row = args.quantized.scale_of_row(),
                                 .whole = whole,
                                 .swiglu = IsSwiGlu(args)};
  const RowKernelPlan plan =
      forced.has_value() ? *forced
                         : SelectRowKernelPlan(problem, gpu::RowArchOf(device));
  return ToStatus(op, Launch(args, plan, TargetOf(stream)));
}

}  // namespace

absl::Status ActivationGpu(const ActivationArgs& args, const Stream& stream,
                           std::optional<RowKernelPlan> plan) {
  return Run("Activation",
             {.x = args.x,
              .gate = {.kind = args.kind},
              .cols = args.x.cols,
              .y = args.y},
             args.quantized, stream, plan);
}

absl::Status GatedActivationGpu(const GatedActivationArgs& args,
                                const Stream& stream,
                                std::optional<RowKernelPlan> plan) {
  const int64_t cols = args.x.cols / 2;
  RowKernelArgs kernel{.x = args.x,
                       .input = RowInput::kHalves,
                       .gate = args.gate,
                       .cols = cols,
                       .y = args.y};
  switch (args.gate.layout) {
    case GateLayout::kGateFirst:
      kernel.up_begin = cols;
      break;
    case GateLayout::kGateSecond:
      kernel.gate_begin = cols;
      break;
    case GateLayout::kInterleaved:
      kernel.input = RowInput::kInterleaved;
      break;
  }
  return Run("GatedActivation", kernel, args.quantized, stream, plan);
}

}  // namespace lamina::activation_internal
