// SkinnyGemm: validate once, choose, run.

#include "lamina/gemm/skinny_gemm.h"

#include <array>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "lamina/core/device/built_backends.h"
#include "lamina/core/status.h"
#include "lamina/gemm/skinny_gemm/skinny_gemm_cpu.h"
#include "lamina/gemm/skinny_gemm/skinny_gemm_gpu.h"
#include "lamina/gemm/skinny_gemm/skinny_gemm_policy.h"

namespace lamina {
namespace {

using gemm_internal::PlanSkinnyGemmWorkspace;
using gemm_internal::SelectSkinnyGemmPolicy;

constexpr char kOp[] = "SkinnyGemm";

template <class Table>
absl::Status CheckTypeIn(Table table, const char* argument, DType given) {
  if (Dispatch(table, std::array{given}, [](auto) {})) return absl::OkStatus();
  return InvalidArgument(kOp, absl::StrCat(argument, ".dtype").c_str(),
                         std::string(Name(given)),
                         absl::StrCat("one of ", SupportedRows(table)));
}

absl::Status CheckPlain(const char* argument, const ConstMatrixView& view) {
  if (view.batch != 1) {
    return InvalidArgument(kOp, absl::StrCat(argument, ".batch").c_str(),
                           view.batch, "1");
  }
  return CheckMatrix(kOp, argument, view);
}

absl::Status CheckOperandScales(const char* argument, const char* operand,
                                const ConstMatrixView& matrix,
                                const ConstScaleView& scales, bool tiles) {
  if (!scales.has_value()) return absl::OkStatus();
  if (!IsFp8(matrix.dtype)) {
    return InvalidArgument(
        kOp, argument,
        absl::StrCat("scales for ", Name(matrix.dtype), " ", operand),
        absl::StrCat("none, or FP8 ", operand));
  }
  LAMINA_RETURN_IF_ERROR(
      CheckScales(kOp, argument, scales, matrix.rows, matrix.cols));
  if (scales.granularity == ScaleGranularity::kPerTile && !tiles) {
    return InvalidArgument(kOp, absl::StrCat(argument, ".granularity").c_str(),
                           std::string(Name(scales.granularity)),
                           "per_tensor, per_row or per_block");
  }
  if (scales.granularity >= ScaleGranularity::kPerBlock &&
      scales.block_cols != gemm_internal::kScaleBlock) {
    return InvalidArgument(kOp, absl::StrCat(argument, ".block_cols").c_str(),
                           scales.block_cols,
                           absl::StrCat(gemm_internal::kScaleBlock));
  }
  return absl::OkStatus();
}

absl::Status CheckGate(const GateSpec& gate, int64_t n) {
  if (static_cast<int>(gate.kind) >= kNumActivationKinds) {
    return InvalidArgument(kOp, "gate.kind", static_cast<int64_t>(gate.kind),
                           "an ActivationKind");
  }
  if (static_cast<int>(gate.layout) >= kNumGateLayouts) {
    return InvalidArgument(kOp, "gate.layout",
                           static_cast<int64_t>(gate.layout), "a GateLayout");
  }
  if (n % 2 != 0) {
    return InvalidArgument(kOp, "w.rows", n, "an even number (gate and up)");
  }
  return absl::OkStatus();
}

absl::Status CheckOperands(const SkinnyGemmArgs& args, int64_t out_cols) {
  const int64_t m = args.x.rows;
  if (args.bias.has_value() || args.bias.size != 0) {
    if (args.bias.dtype != DType::kF32 && args.bias.dtype != args.y.dtype) {
      return InvalidArgument(
          kOp, "bias.dtype", std::string(Name(args.bias.dtype)),
          absl::StrCat("f32 or ", Name(args.y.dtype), " (y.dtype)"));
    }
    LAMINA_RETURN_IF_ERROR(CheckVector(kOp, "bias", args.bias, args.w.rows));
  }
  if (args.residual.has_value()) {
    LAMINA_RETURN_IF_ERROR(
        CheckDType(kOp, "residual", args.residual.dtype, args.y.dtype));
    LAMINA_RETURN_IF_ERROR(
        CheckShape(kOp, "residual", args.residual, 1, m, out_cols));
  }
  if (!args.y.has_value() && !args.quantized.has_value() && m > 0 &&
      out_cols > 0) {
    return InvalidArgument(kOp, "y.data", std::string("null"),
                           "a pointer, or a quantized output");
  }
  if (args.y.has_value()) {
    LAMINA_RETURN_IF_ERROR(CheckShape(kOp, "y", args.y, 1, m, out_cols));
  }
  if (args.quantized.has_value()) {
    LAMINA_RETURN_IF_ERROR(CheckRowwiseQuantizedOutput(
        kOp, "quantized", args.quantized, 1, m, out_cols));
  }
  return absl::OkStatus();
}

struct Input {
  const char* name;
  ConstMatrixView view;
};

ConstMatrixView BytesView(const void* data, int64_t bytes) {
  return {.data = data,
          .dtype = DType::kI8,
          .rows = 1,
          .cols = bytes,
          .row_stride = bytes};
}

// Outputs overlap no input (residual may be y), no other output and not the
// workspace; the workspace overlaps nothing.
absl::Status CheckAliases(const SkinnyGemmArgs& args) {
  std::array<Input, 6> inputs{{{"x", args.x}, {"w", args.w}}};
  size_t count = 2;
  if (args.bias.has_value()) {
    inputs[count++] = {"bias",
                       {.data = args.bias.data,
                        .dtype = args.bias.dtype,
                        .rows = 1,
                        .cols = args.bias.size,
                        .row_stride = args.bias.size}};
  }
  if (args.residual.has_value()) inputs[count++] = {"residual", args.residual};
  if (args.x_scales.has_value()) {
    inputs[count++] = {"x_scales",
                       ScaleGridView(args.x_scales, args.x.rows, args.x.cols)};
  }
  if (args.w_scales.has_value()) {
    inputs[count++] = {"w_scales",
                       ScaleGridView(args.w_scales, args.w.rows, args.w.cols)};
  }
  const ConstMatrixView workspace =
      BytesView(args.workspace, args.workspace_bytes);
  for (size_t i = 0; i < count; ++i) {
    const Input& input = inputs[i];
    const bool in_place = input.view.data == args.residual.data &&
                          std::string_view(input.name) == "residual";
    if (args.y.has_value()) {
      LAMINA_RETURN_IF_ERROR(
          CheckOverlap(kOp, "y", args.y, input.name, input.view, in_place));
    }
    if (args.quantized.has_value()) {
      LAMINA_RETURN_IF_ERROR(CheckQuantizedOverlap(
          kOp, "quantized", args.quantized, input.name, input.view));
    }
    LAMINA_RETURN_IF_ERROR(CheckOverlap(kOp, "workspace", workspace, input.name,
                                        input.view, false));
  }
  if (args.y.has_value()) {
    LAMINA_RETURN_IF_ERROR(
        CheckOverlap(kOp, "workspace", workspace, "y", args.y, false));
  }
  if (args.quantized.has_value()) {
    LAMINA_RETURN_IF_ERROR(CheckQuantizedOverlap(
        kOp, "quantized", args.quantized, "workspace", workspace));
    if (args.y.has_value()) {
      LAMINA_RETURN_IF_ERROR(
          CheckQuantizedOverlap(kOp, "quantized", args.quantized, "y", args.y));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckWorkspace(const SkinnyGemmArgs& args, int64_t bytes,
                            const std::string& for_what) {
  if (args.workspace_bytes < bytes) {
    return InvalidArgument(
        kOp, "workspace_bytes", args.workspace_bytes,
        absl::StrCat(">= ", bytes, " (SkinnyGemmWorkspaceBytes", for_what,
                     ")"));
  }
  if (args.workspace == nullptr && bytes > 0) {
    return InvalidArgument(kOp, "workspace", std::string("null"),
                           absl::StrCat(bytes, " bytes"));
  }
  return absl::OkStatus();
}

absl::Status CheckProblem(const SkinnyGemmProblem& problem) {
  const auto size = [](const char* name, int64_t value) {
    if (value >= 0 && value <= std::numeric_limits<int32_t>::max()) {
      return absl::OkStatus();
    }
    return InvalidArgument(kOp, name, value, "0 to 2147483647");
  };
  LAMINA_RETURN_IF_ERROR(size("m", problem.m));
  LAMINA_RETURN_IF_ERROR(size("n", problem.n));
  LAMINA_RETURN_IF_ERROR(size("k", problem.k));
  LAMINA_RETURN_IF_ERROR(
      CheckTypeIn(gemm_internal::XTable{}, "x", problem.x_type));
  LAMINA_RETURN_IF_ERROR(
      CheckTypeIn(gemm_internal::WTable{}, "w", problem.w_type));
  return CheckTypeIn(gemm_internal::YTable{}, "y", problem.y_type);
}

}  // namespace

absl::StatusOr<int64_t> SkinnyGemmWorkspaceBytes(
    const SkinnyGemmProblem& problem, const DeviceInfo& device,
    int num_threads) {
  const Backend backend = device.device.backend;
  if (!IsBuilt(backend)) {
    return absl::UnimplementedError(
        absl::StrCat(kOp, ": device: this build has no ", Name(backend),
                     " backend; built backends: ", kBuiltBackends));
  }
  if (num_threads < 0) {
    return InvalidArgument(kOp, "num_threads", num_threads, ">= 0");
  }
  LAMINA_RETURN_IF_ERROR(CheckProblem(problem));
  if (backend != Backend::kCpu) {
    if constexpr (kHasGpu) {
      return gemm_internal::SkinnyGemmGpuWorkspaceBytes(problem);
    }
  }
  return PlanSkinnyGemmWorkspace(
             problem, SelectSkinnyGemmPolicy(problem),
             num_threads == 0 ? device.num_units : num_threads)
      .bytes;
}

absl::Status SkinnyGemm(const SkinnyGemmArgs& args, Stream stream) {
  LAMINA_RETURN_IF_ERROR(CheckStream(kOp, stream));
  LAMINA_RETURN_IF_ERROR(CheckPlain("x", args.x));
  LAMINA_RETURN_IF_ERROR(CheckPlain("w", args.w));
  if (args.w.cols != args.x.cols) {
    return InvalidArgument(kOp, "w.cols", args.w.cols,
                           absl::StrCat(args.x.cols, " (x.cols)"));
  }
  const SkinnyGemmProblem problem{.m = args.x.rows,
                                  .n = args.w.rows,
                                  .k = args.x.cols,
                                  .x_type = args.x.dtype,
                                  .w_type = args.w.dtype,
                                  .y_type = args.y.dtype,
                                  .gated = args.gate.has_value(),
                                  .quantized = args.quantized.has_value(),
                                  .prefill = args.prefill != nullptr};
  LAMINA_RETURN_IF_ERROR(CheckProblem(problem));
  if (args.gate) LAMINA_RETURN_IF_ERROR(CheckGate(*args.gate, args.w.rows));
  const int64_t out_cols = args.gate ? args.w.rows / 2 : args.w.rows;
  LAMINA_RETURN_IF_ERROR(CheckOperandScales("x_scales", "x", args.x,
                                            args.x_scales, /*tiles=*/false));
  LAMINA_RETURN_IF_ERROR(CheckOperandScales("w_scales", "w", args.w,
                                            args.w_scales, /*tiles=*/true));
  LAMINA_RETURN_IF_ERROR(CheckOperands(args, out_cols));
  if (problem.m == 0 || out_cols == 0) return absl::OkStatus();

  if (stream.device().backend != Backend::kCpu) {
    if constexpr (kHasGpu) {
      LAMINA_RETURN_IF_ERROR(CheckWorkspace(
          args, gemm_internal::SkinnyGemmGpuWorkspaceBytes(problem), ""));
      LAMINA_RETURN_IF_ERROR(CheckAliases(args));
      return gemm_internal::SkinnyGemmGpu(args, stream);
    }
  }
  const auto policy = SelectSkinnyGemmPolicy(problem);
  const auto plan =
      PlanSkinnyGemmWorkspace(problem, policy, stream.num_threads());
  LAMINA_RETURN_IF_ERROR(
      CheckWorkspace(args, plan.bytes,
                     absl::StrCat(" for ", stream.num_threads(), " threads")));
  LAMINA_RETURN_IF_ERROR(CheckAliases(args));
  char* begin = static_cast<char*>(args.workspace);
  begin += -reinterpret_cast<uintptr_t>(begin) % 64;
  gemm_internal::SkinnyGemmCpu(args, policy, plan, begin, stream);
  return absl::OkStatus();
}

}  // namespace lamina
