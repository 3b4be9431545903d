// SkinnyGemm on a GPU: blocks of rows of x, each one launch, and with dynamic
// scales another one of Quantize; many rows by a library that is given, with a
// launch for the epilogue.

#include "lamina/gemm/skinny_gemm/skinny_gemm_gpu.h"

#include <algorithm>

#include "lamina/core/device.h"
#include "lamina/core/device/built_backends.h"
#include "lamina/core/device/runtime.h"
#include "lamina/core/math.h"
#include "lamina/core/octet_access.h"
#include "lamina/core/status.h"
#include "lamina/gemm/gemm_tuning/ring_plans.h"
#include "lamina/gemm/prefill_gemm/prefill_epilogue.h"
#include "lamina/gemm/skinny_gemm/general_gemm_policy.h"
#include "lamina/gemm/skinny_gemm/ring_gemm.h"
#include "lamina/gemm/skinny_gemm/wave_gemm.h"
#include "lamina/gemm/skinny_gemm/wave_gemm_policy.h"
#include "lamina/quant/quantize.h"
#include "lamina/quant/to_quantized_args.h"

namespace lamina::gemm_internal {
namespace {

constexpr int64_t kWorkspaceAlignment = 256;

// Rows that PrefillGemm takes at a time, where its sums take the epilogue.
constexpr int64_t kPrefillRows = 1024;

constexpr bool UsesPrefill(int64_t rows, bool given) {
  return kHasCuda && given && rows > kGpuRowBlock;
}
constexpr int64_t SumsBytes(int64_t rows, int64_t n) {
  return RoundUp(std::min(rows, kPrefillRows) * n * int64_t{sizeof(float)},
                 kWorkspaceAlignment);
}

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
  static_assert(kPrefillRows % 128 == 0, "or are whole tiles");
  if (!scales.has_value()) return scales;
  using Byte = std::conditional_t<std::is_same_v<View, ConstScaleView>,
                                  const char, char>;
  scales.data = static_cast<Byte*>(scales.data) +
                BytesFor(scales.dtype, scales.Index(first, 0));
  return scales;
}

SkinnyGemmArgs RowBlock(SkinnyGemmArgs args, int64_t first, int64_t most) {
  const int64_t rows = std::min(most, args.x.rows - first);
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

// The workspace: the library's, sums of its products, and the results that
// Quantize takes.
float* Aligned(void* p) {
  char* const begin = static_cast<char*>(p);
  return reinterpret_cast<float*>(begin + -reinterpret_cast<uintptr_t>(begin) %
                                              kWorkspaceAlignment);
}
float* Values(const SkinnyGemmArgs& args) {
  float* const begin = Aligned(args.workspace);
  if (!UsesPrefill(args.x.rows, args.prefill != nullptr)) return begin;
  return begin +
         (PrefillGemm::kWorkspaceBytes + SumsBytes(args.x.rows, args.w.rows)) /
             int64_t{sizeof(float)};
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

GemmTuningKey TuningKeyOf(const GemmArgs& gemm, const Stream& stream) {
  GemmTuningKey key = {.x_type = gemm.x_type,
                       .w_type = gemm.w_type,
                       .n = gemm.n,
                       .k = gemm.k,
                       .gated = gemm.epilogue.gated,
                       .block_scales = gemm.block_scales,
                       .overlap = stream.overlap()};
  while (key.rows < gemm.m) key.rows *= 2;
  return key;
}

// The kernels of tensor cores take the problem, or say that they do not.
gpu::Error LaunchOnTensorCores(const GemmArgs& gemm, const Stream& stream,
                               const SkinnyGemmGpuPlan& plan,
                               const GemmTuning* tuning) {
  if constexpr (kHasCuda) {
    if (!plan.wave.has_value() && !plan.ring.has_value() &&
        PrefersWaveGemm({.m = gemm.m,
                         .k = gemm.k,
                         .x_type = gemm.x_type,
                         .w_type = gemm.w_type},
                        gemm.n)) {
      const gpu::Error error = RunWaveGemm(gemm, stream, std::nullopt);
      if (error.code != gpu::kNoKernel.code) return error;
    }
    if (tuning != nullptr && !plan.wave.has_value() && !plan.ring.has_value()) {
      const GemmTuningEntry* const entry =
          tuning->Find(TuningKeyOf(gemm, stream));
      const std::optional<RingGemmChoice> tuned =
          entry == nullptr ? std::nullopt
                           : ChoiceOf(*entry, GetDeviceInfo(stream.device()));
      if (tuned.has_value()) {
        const gpu::Error error = RunRingGemm(gemm, stream, tuned);
        if (error.code != gpu::kNoKernel.code) return error;
      }
    }
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
    const gpu::Error error =
        LaunchOnTensorCores(gemm, stream, plan, args.tuning);
    if (error.code != gpu::kNoKernel.code || plan.ring.has_value() ||
        plan.wave.has_value()) {
      return error;
    }
  }
  return LaunchGeneral(args, gemm, stream, plan.general);
}

// Dynamic scales.
absl::Status QuantizeValues(const SkinnyGemmArgs& args, const GemmArgs& gemm,
                            const Stream& stream) {
  if (gemm.epilogue.values == nullptr) return absl::OkStatus();
  return Quantize(
      {.x = Matrix(gemm.epilogue.values, gemm.m, gemm.epilogue.cols),
       .out = args.quantized},
      stream);
}

absl::Status RunRowBlock(const SkinnyGemmArgs& args, const Stream& stream,
                         const SkinnyGemmGpuPlan& plan) {
  const GemmArgs gemm = ToGemmArgs(args);
  LAMINA_RETURN_IF_ERROR(
      ToStatus("SkinnyGemm", Launch(args, gemm, stream, plan)));
  return QuantizeValues(args, gemm, stream);
}

absl::Status RunRowBlocks(const SkinnyGemmArgs& args, const Stream& stream,
                          const SkinnyGemmGpuPlan& plan) {
  for (int64_t first = 0; first < args.x.rows; first += kGpuRowBlock) {
    LAMINA_RETURN_IF_ERROR(
        RunRowBlock(RowBlock(args, first, kGpuRowBlock), stream, plan));
  }
  return absl::OkStatus();
}

// ---- By a library -----------------------------------------------------------

bool IsTakenByPrefill(const SkinnyGemmArgs& args) {
  const DType type = args.w.dtype;
  return UsesPrefill(args.x.rows, args.prefill != nullptr) &&
         args.x.dtype == type &&
         (type == DType::kF16 || type == DType::kBF16 ||
          type == DType::kF8E4M3Fn) &&
         args.x.cols > 0 && !HasBlocks(args.x_scales) &&
         !HasBlocks(args.w_scales) && RowsAreAligned(args.x, 16) &&
         RowsAreAligned(args.w, 16);
}

// Its results are y: no epilogue.
bool IsPlain(const SkinnyGemmArgs& args) {
  // NOTE: cuBLASLt 13.1 refused a scale 4 bytes past such an address.
  const auto scalar = [](const ConstScaleView& scales) {
    return scales.has_value() && scales.dtype == DType::kF32 &&
           scales.granularity == ScaleGranularity::kPerTensor &&
           reinterpret_cast<uintptr_t>(scales.data) % 16 == 0;
  };
  return !args.bias.has_value() && !args.gate.has_value() &&
         !args.residual.has_value() && !args.quantized.has_value() &&
         RowsAreAligned(ConstMatrixView(args.y), 16) &&
         (scalar(args.x_scales)
              ? scalar(args.w_scales)
              : !args.x_scales.has_value() && !args.w_scales.has_value());
}

// `plain`: straight to y.
absl::Status RunPrefill(const SkinnyGemmArgs& args, const Stream& stream,
                        bool plain) {
  float* const begin = Aligned(args.workspace);
  float* const sums =
      begin + PrefillGemm::kWorkspaceBytes / int64_t{sizeof(float)};
  PrefillProblem problem = {.x = args.x.data,
                            .w = args.w.data,
                            .out = sums,
                            .x_pitch = args.x.row_stride,
                            .w_pitch = args.w.row_stride,
                            .out_pitch = args.w.rows,
                            .m = args.x.rows,
                            .n = args.w.rows,
                            .k = args.x.cols,
                            .type = args.w.dtype,
                            .workspace = begin};
  if (plain) {
    problem.out = args.y.data;
    problem.out_pitch = args.y.row_stride;
    problem.out_type = args.y.dtype;
    problem.x_scale = static_cast<const float*>(args.x_scales.data);
    problem.w_scale = static_cast<const float*>(args.w_scales.data);
  }
  LAMINA_RETURN_IF_ERROR(args.prefill->Run(problem, stream));
  if (plain) return absl::OkStatus();
  const GemmArgs gemm = ToGemmArgs(args);
  if constexpr (kHasCuda) {
    LAMINA_RETURN_IF_ERROR(ToStatus(
        "SkinnyGemm",
        LaunchPrefillEpilogue({.gemm = gemm, .sums = sums}, TargetOf(stream))));
  }
  return QuantizeValues(args, gemm, stream);
}

}  // namespace

int64_t SkinnyGemmGpuWorkspaceBytes(const SkinnyGemmProblem& problem) {
  const bool prefill = UsesPrefill(problem.m, problem.prefill);
  const int64_t rows =
      std::min(problem.m, prefill ? kPrefillRows : kGpuRowBlock);
  const int64_t cols = problem.gated ? problem.n / 2 : problem.n;
  const int64_t values =
      problem.quantized ? rows * cols * int64_t{sizeof(float)} : 0;
  const int64_t library =
      prefill ? PrefillGemm::kWorkspaceBytes + SumsBytes(problem.m, problem.n)
              : 0;
  if (values + library == 0) return 0;
  return values + library + kWorkspaceAlignment;
}

absl::Status SkinnyGemmGpu(const SkinnyGemmArgs& args, const Stream& stream,
                           const SkinnyGemmGpuPlan& plan) {
  if (!IsTakenByPrefill(args)) return RunRowBlocks(args, stream, plan);
  if (IsPlain(args)) {
    const absl::Status status = RunPrefill(args, stream, /*plain=*/true);
    if (!absl::IsUnimplemented(status)) return status;
  }
  for (int64_t first = 0; first < args.x.rows; first += kPrefillRows) {
    const SkinnyGemmArgs block = RowBlock(args, first, kPrefillRows);
    absl::Status status =
        IsTakenByPrefill(block)
            ? RunPrefill(block, stream, /*plain=*/false)
            : absl::UnimplementedError("SkinnyGemm: too few rows");
    if (absl::IsUnimplemented(status)) {
      status = RunRowBlocks(block, stream, plan);
    }
    LAMINA_RETURN_IF_ERROR(status);
  }
  return absl::OkStatus();
}

}  // namespace lamina::gemm_internal
