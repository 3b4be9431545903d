// DecodeAttention: tokens of Llama-3-8B (32 heads, 8 of keys and values, 128
// wide), each over a cache of its own of `context` tokens.

#include <string>
#include <vector>

#include "bench/cases.h"
#include "bench/support/working_sets.h"
#include "lamina/attention/decode_attention.h"
#include "lamina/core/copy.h"

namespace lamina::bench {
namespace {

constexpr int64_t kHeads = 32;
constexpr int64_t kKvHeads = 8;
constexpr int64_t kHeadDim = 128;

// Each of `tokens` sequences has `context` positions, the last one its own.
template <class Kv>
Calls Prepare(int64_t tokens, int64_t context, int64_t sets,
              const Stream& stream) {
  constexpr DType kKvType = DTypeOf<Kv>::value;
  const int64_t elements = tokens * context * kKvHeads * kHeadDim;
  const WorkingSets<BF16> q(stream, 1, tokens * kHeads * kHeadDim);
  const WorkingSets<BF16> y(stream, 1, tokens * kHeads * kHeadDim);
  const WorkingSets<Kv> k(stream, sets, elements);
  const WorkingSets<Kv> v(stream, sets, elements);
  const WorkingSets<int32_t> positions(stream, 1, tokens);
  const std::vector<int32_t> last(static_cast<std::size_t>(tokens),
                                  static_cast<int32_t>(context - 1));
  const DecodeAttentionProblem problem{.tokens = tokens,
                                       .heads = kHeads,
                                       .kv_heads = kKvHeads,
                                       .head_dim = kHeadDim,
                                       .max_position = context - 1,
                                       .kv_type = kKvType};
  const int64_t workspace_bytes =
      DecodeAttentionWorkspaceBytes(problem, GetDeviceInfo(stream.device()),
                                    stream.num_threads())
          .value_or(0);
  const WorkingSets<int8_t> workspace(stream, 1, workspace_bytes + 1);
  const absl::Status copied = EnqueueCopy(
      positions[0], last.data(), tokens * int64_t{sizeof(int32_t)}, stream);
  const absl::Status done = copied.ok() ? Synchronize(stream) : copied;
  return {.ours = [=](int64_t set, const Stream& on) -> absl::Status {
    if (!done.ok()) return done;
    return DecodeAttention(
        {.q = Heads(q[0], tokens, kHeads, kHeadDim),
         .cache = DenseKvCache(k[set], v[set], kKvType, tokens, context,
                               kKvHeads, kHeadDim),
         .positions = positions[0],
         .max_position = context - 1,
         .y = Heads(y[0], tokens, kHeads, kHeadDim),
         .workspace = workspace[0],
         .workspace_bytes = workspace_bytes},
        on);
  }};
}

template <class Kv>
Case DecodeAttentionCase(int64_t tokens, int64_t context) {
  constexpr DType kKvType = DTypeOf<Kv>::value;
  const std::string dtype = std::string("bf16_") + Name(kKvType);
  const std::string sequences =
      tokens == 1 ? "" : "/sequences:" + std::to_string(tokens);
  return {
      .op = "decode_attention",
      .name = dtype + "/context:" + std::to_string(context) + sequences,
      .dtype = dtype,
      .m = tokens,
      .n = context,
      .k = kKvHeads * kHeadDim,
      .bytes = BytesFor(kKvType, 2 * tokens * context * kKvHeads * kHeadDim),
      .prepare = [=](int64_t sets, const Stream& stream) {
        return Prepare<Kv>(tokens, context, sets, stream);
      }};
}

}  // namespace

std::vector<Case> DecodeAttentionCases(Backend backend) {
  std::vector<Case> cases;
  const auto add = [&](int64_t tokens, int64_t context) {
    cases.push_back(DecodeAttentionCase<BF16>(tokens, context));
    cases.push_back(DecodeAttentionCase<F8E4M3Fn>(tokens, context));
  };
  if (backend == Backend::kCpu) {
    for (const int64_t context : {512, 8192}) add(1, context);
    return cases;
  }
  for (const int64_t context : {1024, 4096, 8192, 32768, 131072}) {
    add(1, context);
  }
  for (const int64_t tokens : {2, 8, 32}) add(tokens, 1024);
  add(8, 8192);
  return cases;
}

}  // namespace lamina::bench
