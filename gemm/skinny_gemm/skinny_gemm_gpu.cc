// SkinnyGemm on a GPU: blocks of rows of x, each one launch, and with dynamic
// scales another one of Quantize.

#include "lamina/gemm/skinny_gemm/skinny_gemm_gpu.h"

#include <algorithm>

#include "lamina/core/device.h"
#include "lamina/core/device/built_backends.h"
#include "lamina/core/device/runtime.h"
#include "lamina/core/octet_access.h"
#include "lamina/core/status.h"
#include "lamina/gemm/skinny_gemm/general_gemm_policy.h"
#include "lamina/gemm/skinny_gemm/ring_gemm.h"
#include "lamina/gemm/skinny_gemm/wave_gemm.h"
#include "lamina/quant/quantize.h"
#include "lamina/quant/to_quantized_args.h"

namespace lamina::gemm_internal {
namespace {

constexpr int64_t kValuesAlignment = 16;

// ---- The part of the arguments that belongs to rows [first, …) --------------

template <class View>
View FromRow(View view, int64_t first) {
  if (!view.has_value()) return view;
  using Byte = std::conditional_t<std::is_same_v<View, ConstMatrixView>,
                                  const char, char>;
  view.data = static_cast<Byte*>(view.data) +
              BytesFor(view.dtype, first * view.row_stride);
  return view;
}

// NOTE: `first` is a multiple of kGpuRowBlock: the rows that follow share the
// scales of a tile.
template <class View>
View ScalesFromRow(View scales, int64_t first) {
  static_assert(128 % kGpuRowBlock == 0, "row blocks lie within tiles");
  if (!scales.has_value()) return scales;
  using Byte = std::conditional_t<std::is_same_v<View, ConstScaleView>,
                                  const char, char>;
  scales.data = static_cast<Byte*>(scales.data) +
                BytesFor(scales.dtype, scales.Index(first, 0));
  return scales;
}

SkinnyGemmArgs RowBlock(SkinnyGemmArgs args, int64_t first) {
  const int64_t rows = std::min(kGpuRowBlock, args.x.rows - first);
  args.x = FromRow(args.x, first);
  args.x_scales = ScalesFromRow(args.x_scales, first);
  args.residual = FromRow(args.residual, first);
  args.y = FromRow(args.y, first);
  args.quantized.codes = FromRow(args.quantized.codes, first);
  args.quantized.scales = ScalesFromRow(args.quantized.scales, first);
  args.x.rows = args.residual.rows = args.y.rows = rows;
  args.quantized.codes.rows = rows;
  return args;
}

// ---- To plain values --------------------------------------------------------

int64_t Pitch(const ConstMatrixView& view) {
  return BytesFor(view.dtype, view.row_stride);
}

bool HasBlocks(const ConstScaleView& scales) {
  return scales.has_value() &&
         scales.granularity >= ScaleGranularity::kPerBlock;
}

// Where the results go that Quantize takes.
float* Values(const SkinnyGemmArgs& args) {
  char* const begin = static_cast<char*>(args.workspace);
  return reinterpret_cast<float*>(begin + -reinterpret_cast<uintptr_t>(begin) %
                                              kValuesAlignment);
}

GemmArgs ToGemmArgs(const SkinnyGemmArgs& args) {
  const bool gated = args.gate.has_value();
  const int64_t cols = gated ? args.w.rows / 2 : args.w.rows;
  GemmArgs gemm{
      .x = args.x.data,
      .w = args.w.data,
      .x_pitch = Pitch(args.x),
      .w_pitch = Pitch(args.w),
      .m = static_cast<int>(args.x.rows),
      .n = static_cast<int>(args.w.rows),
      .k = static_cast<int>(args.x.cols),
      .x_type = args.x.dtype,
      .w_type = args.w.dtype,
      .x_scales = ToScaleArgs(args.x_scales),
      .w_scales = ToScaleArgs(args.w_scales),
      .block_scales = HasBlocks(args.x_scales) || HasBlocks(args.w_scales),
      .epilogue = {.bias = args.bias.data,
                   .bias_type = args.bias.dtype,
                   .gated = gated,
                   .gate = args.gate.value_or(GateSpec{}),
                   .cols = static_cast<int>(cols),
                   .residual = args.residual.data,
                   .residual_pitch = Pitch(args.residual),
                   .y = args.y.data,
                   .y_pitch = Pitch(args.y),
                   .y_type = args.y.dtype}};
  if (args.quantized.has_value() && args.quantized.dynamic) {
    gemm.epilogue.values = Values(args);
    gemm.epilogue.round_values = args.quantized.round_before_quant;
  } else {
    gemm.epilogue.quantized = ToQuantizedArgs(args.quantized);
  }
  return gemm;
}

// ---- Launches ---------------------------------------------------------------

gpu::Error LaunchGeneral(const SkinnyGemmArgs& args, const GemmArgs& gemm,
                         const Stream& stream,
                         const std::optional<GeneralGemmPlan>& forced) {
  const auto octets = [](const ConstMatrixView& view) {
    return RowsAreAligned(view, gpu::OctetAlignment(view.dtype));
  };
  const GeneralGemmPlan plan =
      forced.has_value()
          ? *forced
          : SelectGeneralGemmPlan({.m = gemm.m,
                                   .n = gemm.n,
                                   .fp8 = IsFp8(gemm.w_type),
                                   .octets = octets(args.x) && octets(args.w)},
                                  GetDeviceInfo(stream.device()).num_units);
  return LaunchGeneralGemm(gemm, plan, TargetOf(stream));
}

// The kernels of tensor cores take the problem, or say that they do not.
gpu::Error LaunchOnTensorCores(const GemmArgs& gemm, const Stream& stream,
                               const SkinnyGemmGpuPlan& plan) {
  if constexpr (kHasCuda) {
    if (!plan.wave.has_value()) {
      const gpu::Error error = RunRingGemm(gemm, stream, plan.ring);
      if (error.code != gpu::kNoKernel.code || plan.ring.has_value()) {
        return error;
      }
    }
    return RunWaveGemm(gemm, stream, plan.wave);
  }
  return gpu::kNoKernel;
}

gpu::Error Launch(const SkinnyGemmArgs& args, const GemmArgs& gemm,
                  const Stream& stream, const SkinnyGemmGpuPlan& plan) {
  if (!plan.general.has_value()) {
    const gpu::Error error = LaunchOnTensorCores(gemm, stream, plan);
    if (error.code != gpu::kNoKernel.code || plan.ring.has_value() ||
        plan.wave.has_value()) {
      return error;
    }
  }
  return LaunchGeneral(args, gemm, stream, plan.general);
}

absl::Status RunRowBlock(const SkinnyGemmArgs& args, const Stream& stream,
                         const SkinnyGemmGpuPlan& plan) {
  const GemmArgs gemm = ToGemmArgs(args);
  LAMINA_RETURN_IF_ERROR(
      ToStatus("SkinnyGemm", Launch(args, gemm, stream, plan)));
  if (gemm.epilogue.values == nullptr) return absl::OkStatus();
  return Quantize(
      {.x = Matrix(gemm.epilogue.values, gemm.m, gemm.epilogue.cols),
       .out = args.quantized},
      stream);
}

}  // namespace

int64_t SkinnyGemmGpuWorkspaceBytes(const SkinnyGemmProblem& problem) {
  if (!problem.quantized) return 0;
  const int64_t cols = problem.gated ? problem.n / 2 : problem.n;
  return std::min(problem.m, kGpuRowBlock) * cols * int64_t{sizeof(float)} +
         kValuesAlignment;
}

absl::Status SkinnyGemmGpu(const SkinnyGemmArgs& args, const Stream& stream,
                           const SkinnyGemmGpuPlan& plan) {
  for (int64_t first = 0; first < args.x.rows; first += kGpuRowBlock) {
    LAMINA_RETURN_IF_ERROR(RunRowBlock(RowBlock(args, first), stream, plan));
  }
  return absl::OkStatus();
}

}  // namespace lamina::gemm_internal
