#include "lamina/attention/decode_attention/decode_attention_gpu.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "lamina/attention/decode_attention/general_attention_policy.h"
#include "lamina/attention/decode_attention/tensor_attention_policy.h"
#include "lamina/core/device/built_backends.h"
#include "lamina/core/device/runtime.h"
#include "lamina/core/status.h"

namespace lamina::attention_internal {
namespace {

constexpr const char* kOp = "DecodeAttention";
static_assert(kGpuChunk == kAttentionChunk);

// Partial results begin at a multiple of it.
constexpr int64_t kPartialsAlignment = 16;

float* Partials(const DecodeAttentionArgs& args) {
  char* const begin = static_cast<char*>(args.workspace);
  return reinterpret_cast<float*>(begin + -reinterpret_cast<uintptr_t>(begin) %
                                              kPartialsAlignment);
}

AttentionKernelArgs ToKernelArgs(const DecodeAttentionArgs& args, float scale) {
  // NOTE: a window beyond all positions is none; a kernel counts in 32 bits.
  const bool windowed =
      args.window > 0 && args.window <= std::numeric_limits<int32_t>::max();
  return {.q = args.q,
          .y = args.y,
          .cache = args.cache,
          .sequence_ids = args.sequence_ids,
          .positions = args.positions,
          .window = windowed ? static_cast<int32_t>(args.window) : 0,
          .group = static_cast<int32_t>(args.q.rows / args.cache.kv_heads),
          .scale = scale,
          .partials = Partials(args)};
}

TensorAttentionProblem ToTensorProblem(const DecodeAttentionProblem& problem) {
  return {.tokens = problem.tokens,
          .heads = problem.heads,
          .kv_heads = problem.kv_heads,
          .head_dim = problem.head_dim,
          .max_position = problem.max_position,
          .q_type = problem.q_type,
          .kv_type = problem.kv_type};
}
DecodeAttentionProblem ProblemOf(const DecodeAttentionArgs& args) {
  return {.tokens = args.q.batch,
          .heads = args.q.rows,
          .kv_heads = args.cache.kv_heads,
          .head_dim = args.q.cols,
          .max_position = args.max_position,
          .q_type = args.q.dtype,
          .kv_type = args.cache.dtype};
}

absl::Status CheckWorkspace(const DecodeAttentionArgs& args,
                            const DeviceInfo& device) {
  const int64_t needed =
      DecodeAttentionGpuWorkspaceBytes(ProblemOf(args), device);
  if (args.workspace_bytes < needed) {
    return InvalidArgument(
        kOp, "workspace_bytes", args.workspace_bytes,
        absl::StrCat("at least ", needed, " (DecodeAttentionWorkspaceBytes)"));
  }
  if (needed > 0 && args.workspace == nullptr) {
    return InvalidArgument(kOp, "workspace", std::string("null"),
                           absl::StrCat("a pointer to ", needed, " bytes"));
  }
  return absl::OkStatus();
}

gpu::Error LaunchGeneral(const DecodeAttentionArgs& args,
                         const AttentionKernelArgs& kernel,
                         const std::optional<GeneralAttentionPlan>& forced,
                         const DeviceInfo& device, const Stream& stream) {
  const int64_t chunks = MaxChunks(args.max_position, args.window);
  const GeneralAttentionPlan plan = forced.value_or(SelectGeneralAttentionPlan(
      args.q.batch, args.cache.kv_heads, chunks, device.num_units));
  return LaunchGeneralAttention(kernel, args.q.batch, chunks, plan,
                                TargetOf(stream));
}

gpu::Error LaunchTensor(const DecodeAttentionArgs& args,
                        const AttentionKernelArgs& kernel,
                        const std::optional<TensorAttentionPlan>& forced,
                        const DeviceInfo& device, const Stream& stream) {
  if constexpr (kHasCuda) {
    TensorAttentionProblem problem = ToTensorProblem(ProblemOf(args));
    problem.window = args.window;
    problem.neighbours = args.sequence_ids != nullptr;
    const TensorAttentionPlan plan = forced.value_or(
        SelectTensorAttentionPlan(problem, TensorArchOf(device)));
    const auto launch = args.q.dtype == DType::kBF16
                            ? &LaunchTensorAttentionBF16
                            : &LaunchTensorAttentionF16;
    return launch(kernel, args.q.batch, plan, TargetOf(stream));
  }
  return gpu::kNoKernel;
}

}  // namespace

int64_t DecodeAttentionGpuWorkspaceBytes(const DecodeAttentionProblem& problem,
                                         const DeviceInfo& device) {
  int64_t bytes = GeneralWorkspaceBytes(
      problem.tokens, problem.heads, problem.kv_heads, problem.head_dim,
      MaxChunks(problem.max_position, 0), device.num_units);
  if (TensorCoresTake(problem.q_type, problem.kv_type, problem.head_dim)) {
    bytes = std::max(bytes, TensorWorkspaceBytes(ToTensorProblem(problem),
                                                 TensorArchOf(device)));
  }
  return bytes == 0 ? 0 : bytes + kPartialsAlignment;
}

absl::Status DecodeAttentionGpu(const DecodeAttentionArgs& args, float scale,
                                const Stream& stream,
                                const DecodeAttentionGpuPlan& plan) {
  const DeviceInfo& device = GetDeviceInfo(stream.device());
  LAMINA_RETURN_IF_ERROR(CheckWorkspace(args, device));
  const AttentionKernelArgs kernel = ToKernelArgs(args, scale);
  if (!plan.general.has_value() && IsForTensorCores(args, stream)) {
    return ToStatus(kOp,
                    LaunchTensor(args, kernel, plan.tensor, device, stream));
  }
  return ToStatus(kOp,
                  LaunchGeneral(args, kernel, plan.general, device, stream));
}

}  // namespace lamina::attention_internal
