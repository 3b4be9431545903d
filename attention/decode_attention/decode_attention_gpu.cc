#include "lamina/attention/decode_attention/decode_attention_gpu.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "lamina/attention/decode_attention/general_attention_policy.h"
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

}  // namespace

int64_t DecodeAttentionGpuWorkspaceBytes(const DecodeAttentionProblem& problem,
                                         const DeviceInfo& device) {
  const int64_t bytes = GeneralWorkspaceBytes(
      problem.tokens, problem.heads, problem.kv_heads, problem.head_dim,
      MaxChunks(problem.max_position, 0), device.num_units);
  return bytes == 0 ? 0 : bytes + kPartialsAlignment;
}

absl::Status DecodeAttentionGpu(
    const DecodeAttentionArgs& args, float scale, const Stream& stream,
    const std::optional<GeneralAttentionPlan>& general_plan) {
  const DeviceInfo& device = GetDeviceInfo(stream.device());
  const int64_t tokens = args.q.batch;
  const int64_t needed =
      DecodeAttentionGpuWorkspaceBytes({.tokens = tokens,
                                        .heads = args.q.rows,
                                        .kv_heads = args.cache.kv_heads,
                                        .head_dim = args.q.cols,
                                        .max_position = args.max_position,
                                        .q_type = args.q.dtype,
                                        .kv_type = args.cache.dtype},
                                       device);
  if (args.workspace_bytes < needed) {
    return InvalidArgument(
        kOp, "workspace_bytes", args.workspace_bytes,
        absl::StrCat("at least ", needed, " (DecodeAttentionWorkspaceBytes)"));
  }
  if (needed > 0 && args.workspace == nullptr) {
    return InvalidArgument(kOp, "workspace", std::string("null"),
                           absl::StrCat("a pointer to ", needed, " bytes"));
  }
  const int64_t chunks = MaxChunks(args.max_position, args.window);
  const GeneralAttentionPlan plan =
      general_plan.value_or(SelectGeneralAttentionPlan(
          tokens, args.cache.kv_heads, chunks, device.num_units));
  return ToStatus(kOp, LaunchGeneralAttention(ToKernelArgs(args, scale), tokens,
                                              chunks, plan, TargetOf(stream)));
}

}  // namespace lamina::attention_internal
