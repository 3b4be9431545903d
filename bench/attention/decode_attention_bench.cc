// DecodeAttention: one token of Llama-3-8B (32 heads, 8 of keys and values,
// 128 wide) over a cache of `context` tokens.

#include <string>
#include <vector>

#include "bench/cases.h"
#include "bench/support/working_sets.h"
#include "lamina/attention/decode_attention.h"

namespace lamina::bench {
namespace {

constexpr int64_t kHeads = 32;
constexpr int64_t kKvHeads = 8;
constexpr int64_t kHeadDim = 128;

template <class Kv>
Case DecodeAttentionCase(int64_t context) {
  constexpr DType kKvType = DTypeOf<Kv>::value;
  const int64_t elements = context * kKvHeads * kHeadDim;
  const auto prepare = [=](int64_t sets, const Stream& stream) {
    const WorkingSets<BF16> q(stream, 1, kHeads * kHeadDim);
    const WorkingSets<BF16> y(stream, 1, kHeads * kHeadDim);
    const WorkingSets<Kv> k(stream, sets, elements);
    const WorkingSets<Kv> v(stream, sets, elements);
    const auto position = std::make_shared<int32_t>(context - 1);
    const DecodeAttentionProblem problem{.tokens = 1,
                                         .heads = kHeads,
                                         .kv_heads = kKvHeads,
                                         .head_dim = kHeadDim,
                                         .max_position = context - 1,
                                         .kv_type = kKvType};
    const int64_t workspace_bytes =
        DecodeAttentionWorkspaceBytes(problem, GetDeviceInfo(stream.device()),
                                      stream.num_threads())
            .value_or(0);
    auto workspace = std::make_shared<std::vector<char>>(workspace_bytes);
    const Call ours = [=](int64_t set, const Stream& on) {
      return DecodeAttention(
          {.q = Heads(q[0], 1, kHeads, kHeadDim),
           .cache = DenseKvCache(k[set], v[set], kKvType, 1, context, kKvHeads,
                                 kHeadDim),
           .positions = position.get(),
           .max_position = context - 1,
           .y = Heads(y[0], 1, kHeads, kHeadDim),
           .workspace = workspace->data(),
           .workspace_bytes = workspace_bytes},
          on);
    };
    return Calls{.ours = ours};
  };
  const std::string dtype = std::string("bf16_") + Name(kKvType);
  return {.op = "decode_attention",
          .name = dtype + "/context:" + std::to_string(context),
          .dtype = dtype,
          .m = 1,
          .n = context,
          .k = kKvHeads * kHeadDim,
          .bytes = BytesFor(kKvType, 2 * elements),
          .prepare = prepare};
}

}  // namespace

std::vector<Case> DecodeAttentionCases(Backend backend) {
  if (backend != Backend::kCpu) return {};
  std::vector<Case> cases;
  for (const int64_t context : {512, 8192}) {
    cases.push_back(DecodeAttentionCase<BF16>(context));
    cases.push_back(DecodeAttentionCase<F8E4M3Fn>(context));
  }
  return cases;
}

}  // namespace lamina::bench
