#include "lamina/activation/row_outputs_gpu.h"

#include "lamina/activation/lean_swiglu_policy.h"
#include "lamina/activation/row_outputs_policy.h"
#include "lamina/core/device.h"
#include "lamina/core/device/runtime.h"
#include "lamina/core/octet_access.h"
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

bool FitsUint32(int64_t value) { return value >= 0 && value < 1LL << 32; }

// A flat matrix whose rows are less than 4 GiB apart.
bool IsLean(const MatrixView& view) {
  return view.batch == 1 && FitsUint32(BytesFor(view.dtype, view.row_stride));
}

// The one output, when it is one that the lean kernels have.
std::optional<LeanOutput> LeanOutputOf(const RowKernelArgs& args,
                                       DType device_fp8) {
  const QuantizedArgs& out = args.quantized;
  if (args.y.has_value() == out.has_value()) return std::nullopt;
  if (args.y.has_value()) return LeanOutput::kY;
  if (out.codes.dtype != device_fp8 || out.round_before_quant || out.clamp ||
      out.scales.dtype != DType::kF32 || !FitsUint32(out.scales.row_stride) ||
      !FitsUint32(out.scales.col_stride)) {
    return std::nullopt;
  }
  switch (out.scales.granularity) {
    case ScaleGranularity::kPerTensor:
      return LeanOutput::kStatic;
    case ScaleGranularity::kPerRow:
      if (out.dynamic) return LeanOutput::kPerRow;
      return std::nullopt;
    case ScaleGranularity::kPerBlock:
      if (out.dynamic) return LeanOutput::kPerBlock;
      return std::nullopt;
    case ScaleGranularity::kPerTile:
      return std::nullopt;
  }
  return std::nullopt;
}

// Launches a lean kernel when the case is theirs.
std::optional<gpu::Error> LaunchLean(const RowKernelArgs& args, bool whole,
                                     const DeviceInfo& device,
                                     const gpu::LaunchTarget& target) {
  const std::optional<LeanOutput> output = LeanOutputOf(args, device.fp8);
  if (!whole || !output.has_value() || !IsSwiGlu(args) ||
      (args.x.dtype != DType::kBF16 && args.x.dtype != DType::kF16)) {
    return std::nullopt;
  }
  const QuantizedArgs& quantized = args.quantized;
  const MatrixView& out = args.y.has_value() ? args.y : quantized.codes;
  if (args.x.batch != 1 ||
      !FitsUint32(BytesFor(args.x.dtype, args.x.row_stride)) || !IsLean(out)) {
    return std::nullopt;
  }
  const std::optional<LeanSwiGluPlan> plan = SelectLeanSwiGluPlan(
      *output, args.x.rows, args.cols, gpu::RowArchOf(device));
  if (!plan.has_value()) return std::nullopt;
  const char* const x = static_cast<const char*>(args.x.data);
  return LaunchLeanSwiGlu(
      {.gate = x + BytesFor(args.x.dtype, args.gate_begin),
       .up = x + BytesFor(args.x.dtype, args.up_begin),
       .out = out.data,
       .scales = static_cast<float*>(quantized.scales.data),
       .x_pitch =
           static_cast<uint32_t>(BytesFor(args.x.dtype, args.x.row_stride)),
       .out_pitch = static_cast<uint32_t>(BytesFor(out.dtype, out.row_stride)),
       .rows = static_cast<uint32_t>(args.x.rows),
       .cols = static_cast<int32_t>(args.cols),
       .qmax = quantized.qmax,
       .inverse_qmax = quantized.inverse_qmax,
       .min_scale = quantized.min_scale,
       .scale_ub = quantized.scale_ub,
       .col_shift = quantized.scales.col_shift,
       .scale_row_stride = static_cast<uint32_t>(quantized.scales.row_stride),
       .scale_col_stride = static_cast<uint32_t>(quantized.scales.col_stride)},
      args.x.dtype, *plan, target);
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
