#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lamina/attention/kv_cache.h"
#include "lamina/core/stream.h"
#include "lamina/core/views.h"

namespace lamina {

// Softmax attention over a KV cache. Each row of q is one token that attends
// to positions [max(0, p + 1 - window), p] of its sequence, p its own position
// (its key and value are in the cache already: KvAppend first). One token a
// sequence is decoding; several tokens of one sequence are a causal prefill.
// Query head h reads KV head h / (heads / kv_heads): MHA, GQA and MQA.
//
//   y = softmax(scale * q · Kᵀ) · V
//
// The rule, in fp32, for one token and head (split softmax: Milakov and
// Gimelshein, "Online normalizer calculation for softmax" (2018); Dao et al.,
// "FlashAttention" (2022)):
//
//   The positions are cut at multiples of 256 (kAttentionChunk) into chunks.
//   In a chunk, over the positions j that the token attends to:
//     dot_j  16 slots from +0; slot i takes the dimensions k ≡ i (mod 16) in
//            rising order, slot = fma(q_k, K_jk, slot); dimensions up to the
//            next multiple of 16 count as +0. Then slots i and i + 8 are
//            added, i and i + 4, i and i + 2, 0 and 1.
//     s_j  = dot_j * factor, factor = scale * k_scale (rounded; k_scale = 1
//            unless the cache is FP8)
//     m    = max s_j over those that are not NaN; -Inf if there are none
//     p_j  = Exp(s_j - m)  (core/elementary.h); m = -Inf is taken as 0 here
//     l    = canonical sum of p_j (core/canonical_sum.h) over the 256 columns
//            j mod 256, absent ones being +0
//     o_d  = fma(p_j, V_jd, o_d) from +0 in rising j
//   Chunks are merged in rising order. The first one's (m, l, o) is the start;
//   then, with M = max(m, m') (-Inf taken as 0 below), a = Exp(m - M),
//   b = Exp(m' - M):
//     l = l * a + l' * b      each product rounded, then the sum
//     o = o * a + o' * b      likewise
//     m = max(m, m')
//   y = round_T(o / l), for an FP8 cache round_T((o / l) * v_scale).
//
// The same bits on a GPU, but that a NaN is any NaN; not so on the tensor cores
// of CUDA GPUs. They take q of bf16 or f16, a cache of q's type or of F8E4M3Fn,
// head_dim <= 128 and a multiple of 8 (of an FP8 cache, 16), where all rows of
// q and the cache are aligned to 16 bytes. There s_j, p_j, m, l and o are fp32
// as well, but dot_j adds up in the hardware's order, Exp is the hardware's,
// and positions are cut at multiples of 16 into tiles and these into splits:
// attention/decode_attention/tensor_attention.cuh says how, and in which order
// they are merged. p_j is the sum of two numbers of the 16-bit type there, so
// that 16 bits of it are kept (bf16), or 22.
//
// So chunks may be computed anywhere and at any time: the result does not
// depend on the number of threads, on how the work is split, on pages, on
// max_position nor on the other tokens of the call (batch-invariant,
// deterministic); on tensor cores it does on the number of SMs. Keys and values
// outside the attended positions are never read. A NaN score gives NaN; an
// infinite V counts even if its weight is 0 (NaN).
//
// Accuracy    a few fp32 ULP of the largest |V|, and before the exponential of
//             the largest |s_j|; on tensor cores 2^-16 of the largest |V|.
//             Weights p_j are never rounded to a 16-bit type.
// Shapes      q, y [tokens, heads, head_dim], any strides (a slice of a fused
//             qkv row: batch_stride = the pitch of that row); heads a multiple
//             of cache.kv_heads; head_dim = cache.head_dim <= 512.
// Types       q f32, f16, bf16, y the same; cache f32, f16, bf16, FP8, in any
//             combination.
// Aliasing    y overlaps neither q nor the cache.
// Workspace   DecodeAttentionWorkspaceBytes, any alignment, contents irrelevant
//             before and after; 0 on the CPU.
// Errors      InvalidArgument; Unimplemented for other types or a larger
//             head_dim. On the CPU a sequence id, position or page index out
//             of bounds is InvalidArgument and names the token, and scales
//             are checked; nothing has been written then. A GPU backend does
//             not see these values before it runs: there they are the
//             caller's duty.
//
//   absl::Status status =
//       DecodeAttention({.q = Heads(q, tokens, heads, head_dim),
//                        .cache = cache,
//                        .positions = positions,
//                        .max_position = 4095,
//                        .y = Heads(y, tokens, heads, head_dim)},
//                       stream);
struct DecodeAttentionArgs {
  ConstMatrixView q;
  KvCacheView cache;
  const int32_t* sequence_ids =
      nullptr;  // [tokens]; null: token t is of sequence t
  const int32_t* positions = nullptr;  // [tokens]
  // No position is larger. It decides the workspace and on a GPU the grid: near
  // the true one it is faster, and below 4096 one launch may do.
  int64_t max_position = 0;
  int64_t window = 0;  // 0: no sliding window
  float scale = 0;     // finite; 0: 1 / sqrt(head_dim), rounded to fp32
  MatrixView y;
  void* workspace = nullptr;
  int64_t workspace_bytes = 0;
};
[[nodiscard]] absl::Status DecodeAttention(const DecodeAttentionArgs& args,
                                           Stream stream);

inline constexpr int64_t kAttentionChunk = 256;

// The part of the arguments that decides how much workspace is needed.
struct DecodeAttentionProblem {
  int64_t tokens = 0, heads = 0, kv_heads = 0, head_dim = 0;
  int64_t max_position = 0;
  DType q_type = DType::kBF16;
  DType kv_type = DType::kBF16;
};
// Needs no GPU. Grows with each of tokens, heads, head_dim and max_position.
// num_threads: of the CPU stream; 0 for all.
[[nodiscard]] absl::StatusOr<int64_t> DecodeAttentionWorkspaceBytes(
    const DecodeAttentionProblem& problem, const DeviceInfo& device,
    int num_threads = 0);

}  // namespace lamina
