#include "lamina/attention/decode_attention.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"
#include "lamina/attention/decode_attention/decode_attention_cpu.h"
#include "lamina/attention/decode_attention/decode_attention_gpu.h"
#include "lamina/attention/decode_attention/decode_attention_policy.h"
#include "lamina/core/device/built_backends.h"
#include "lamina/core/math.h"
#include "lamina/core/parallel.h"
#include "lamina/core/status.h"

namespace lamina {
namespace {

using namespace attention_internal;  // NOLINT(google-build-using-namespace)

constexpr const char* kOp = "DecodeAttention";

absl::Status CheckHeads(const char* op, const char* argument, int64_t heads,
                        int64_t kv_heads) {
  if (heads >= 1 && heads % kv_heads == 0) return absl::OkStatus();
  return InvalidArgument(
      op, argument, heads,
      absl::StrCat("a multiple of ", kv_heads, " (kv_heads), >= 1"));
}

absl::Status CheckHeadDim(const char* op, int64_t head_dim) {
  if (head_dim <= kMaxHeadDim) return absl::OkStatus();
  return absl::UnimplementedError(absl::StrCat(
      op, ": head_dim: given ", head_dim, ", supported: 1 to ", kMaxHeadDim));
}

absl::Status CheckQType(const char* op, const char* argument, DType given) {
  if (Dispatch(DecodeAttentionTable{}, std::array{given}, [](auto) {})) {
    return absl::OkStatus();
  }
  return absl::UnimplementedError(
      absl::StrCat(op, ": ", argument, ": given ", Name(given),
                   ", supported: ", SupportedRows(DecodeAttentionTable{})));
}

absl::Status CheckNonNegative(const char* op, const char* argument,
                              int64_t given) {
  if (given >= 0) return absl::OkStatus();
  return InvalidArgument(op, argument, given, ">= 0");
}

absl::Status Validate(const DecodeAttentionArgs& args) {
  const KvCacheView& cache = args.cache;
  const ConstMatrixView& q = args.q;
  LAMINA_RETURN_IF_ERROR(CheckCache(kOp, cache));
  LAMINA_RETURN_IF_ERROR(
      CheckShape(kOp, "q", q, q.batch, q.rows, cache.head_dim));
  LAMINA_RETURN_IF_ERROR(CheckQType(kOp, "q.dtype", q.dtype));
  LAMINA_RETURN_IF_ERROR(CheckHeads(kOp, "q.rows", q.rows, cache.kv_heads));
  LAMINA_RETURN_IF_ERROR(CheckHeadDim(kOp, cache.head_dim));
  LAMINA_RETURN_IF_ERROR(CheckShape(kOp, "y", args.y, q.batch, q.rows, q.cols));
  LAMINA_RETURN_IF_ERROR(CheckDType(kOp, "y", args.y.dtype, q.dtype));
  LAMINA_RETURN_IF_ERROR(CheckOverlap(kOp, "y", args.y, "q", q, false));
  const int64_t extent = CacheExtent(cache);
  for (void* memory : {cache.k, cache.v}) {
    const ConstMatrixView whole = {.data = memory,
                                   .dtype = cache.dtype,
                                   .rows = 1,
                                   .cols = extent,
                                   .row_stride = extent};
    LAMINA_RETURN_IF_ERROR(
        CheckOverlap(kOp, "y", args.y,
                     memory == cache.k ? "cache.k" : "cache.v", whole, false));
  }
  LAMINA_RETURN_IF_ERROR(
      CheckNonNegative(kOp, "max_position", args.max_position));
  LAMINA_RETURN_IF_ERROR(CheckNonNegative(kOp, "window", args.window));
  if (!std::isfinite(args.scale)) {
    return InvalidArgument(kOp, "scale", absl::StrCat(args.scale), "finite");
  }
  if (q.batch > 0 && args.positions == nullptr) {
    return InvalidArgument(kOp, "positions", std::string("null"),
                           "a pointer to [tokens]");
  }
  return CheckNonNegative(kOp, "workspace_bytes", args.workspace_bytes);
}

float ScaleOf(const DecodeAttentionArgs& args) {
  if (args.scale != 0.0f) return args.scale;
  return static_cast<float>(
      1.0 / std::sqrt(static_cast<double>(args.cache.head_dim)));
}

AttentionPlan MakePlan(const DecodeAttentionArgs& args) {
  const int64_t head_dim = args.cache.head_dim;
  const float k_scale =
      args.cache.k_scale == nullptr ? 1.0f : *args.cache.k_scale;
  return {.args = args,
          .group = args.q.rows / args.cache.kv_heads,
          .padded_dim = RoundUp(head_dim, kDotSlots),
          .factor = ScaleOf(args) * k_scale};
}

DecodeAttentionShape ShapeOf(const AttentionPlan& plan) {
  const KvTokens tokens = plan.Tokens();
  DecodeAttentionShape shape = {.tokens = tokens.tokens,
                                .group = plan.group,
                                .kv_heads = plan.args.cache.kv_heads,
                                .head_dim = plan.args.cache.head_dim};
  int64_t run = 0;
  for (int64_t t = 0; t < tokens.tokens; ++t) {
    run = t > 0 && tokens.Sequence(t) == tokens.Sequence(t - 1) ? run + 1 : 1;
    shape.longest_run = std::max(shape.longest_run, run);
    shape.chunks =
        std::max(shape.chunks, plan.Last(t) / kAttentionChunk -
                                   plan.First(t) / kAttentionChunk + 1);
  }
  return shape;
}

// The heads of tile `index` of policy.head_tiles.
AttentionTile HeadsOf(const AttentionPlan& plan,
                      const DecodeAttentionPolicy& policy, int64_t index) {
  const int64_t kv_head = index / policy.group_tiles * policy.kv_heads;
  const int64_t row = index % policy.group_tiles * policy.group_rows;
  return {.token_begin = 0,
          .token_end = 0,
          .kv_head_begin = kv_head,
          .kv_head_end =
              std::min(plan.args.cache.kv_heads, kv_head + policy.kv_heads),
          .group_begin = row,
          .group_end = std::min(plan.group, row + policy.group_rows)};
}

// Whole tiles to threads.
void AttendTiles(const AttentionPlan& plan, const DecodeAttentionPolicy& policy,
                 const Stream& stream) {
  const int64_t tokens = plan.args.q.batch;
  const int64_t tiles = CeilDiv(tokens, policy.tokens) * policy.head_tiles;
  ParallelFor(stream, tiles, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      // Later tokens of a prefill have more to attend to: a thread takes
      // tiles from both ends.
      const int64_t index = i % 2 == 0 ? i / 2 : tiles - 1 - i / 2;
      AttentionTile tile = HeadsOf(plan, policy, index % policy.head_tiles);
      const int64_t token = index / policy.head_tiles * policy.tokens;
      const int64_t token_end = std::min(tokens, token + policy.tokens);
      // Runs of tokens of one sequence.
      const KvTokens all = plan.Tokens();
      for (tile.token_begin = token; tile.token_begin < token_end;
           tile.token_begin = tile.token_end) {
        tile.token_end = tile.token_begin + 1;
        while (tile.token_end < token_end &&
               all.Sequence(tile.token_end) == all.Sequence(tile.token_begin)) {
          ++tile.token_end;
        }
        AttendTile(plan, tile);
      }
    }
  });
}

// Walks over (token, head tile, chunk), chunks fastest.
class ChunkCursor {
 public:
  ChunkCursor(const AttentionPlan& plan, const DecodeAttentionPolicy& policy)
      : plan_(plan), policy_(policy) {
    StartToken();
  }
  AttentionTile tile() const {
    AttentionTile tile = HeadsOf(plan_, policy_, head_tile_);
    tile.token_begin = token_;
    tile.token_end = token_ + 1;
    return tile;
  }
  int64_t chunk() const { return chunk_; }
  bool first() const { return chunk_ == first_; }
  bool last() const { return chunk_ == last_; }
  // Positions times KV heads.
  int64_t Work() const {
    const int64_t begin = chunk_ * kAttentionChunk;
    const AttentionTile heads = HeadsOf(plan_, policy_, head_tile_);
    return (std::min(begin + kAttentionChunk, plan_.Last(token_) + 1) -
            std::max(begin, plan_.First(token_))) *
           (heads.kv_head_end - heads.kv_head_begin);
  }
  void Advance() {
    if (++chunk_ <= last_) return;
    chunk_ = first_;
    if (++head_tile_ < policy_.head_tiles) return;
    head_tile_ = 0;
    if (++token_ < plan_.args.q.batch) StartToken();
  }
  static int64_t Count(const AttentionPlan& plan,
                       const DecodeAttentionPolicy& policy) {
    int64_t count = 0;
    for (int64_t t = 0; t < plan.args.q.batch; ++t) {
      count +=
          plan.Last(t) / kAttentionChunk - plan.First(t) / kAttentionChunk + 1;
    }
    return count * policy.head_tiles;
  }

 private:
  void StartToken() {
    first_ = plan_.First(token_) / kAttentionChunk;
    last_ = plan_.Last(token_) / kAttentionChunk;
    chunk_ = first_;
  }

  const AttentionPlan& plan_;
  const DecodeAttentionPolicy& policy_;
  int64_t token_ = 0;
  int64_t head_tile_ = 0;
  int64_t first_ = 0, last_ = 0, chunk_ = 0;
};

// Chunks to threads, in rounds whose partial results fit the caller's stack.
void AttendChunks(const AttentionPlan& plan,
                  const DecodeAttentionPolicy& policy, const Stream& stream) {
  constexpr int64_t kPartialFloats = 32768;
  float partials[kPartialFloats];
  float state[kTileFloats + 2 * kTileRows];
  const int64_t partial_size =
      policy.kv_heads * policy.group_rows * (2 + plan.padded_dim);
  const int64_t round_size = kPartialFloats / partial_size;
  const int64_t count = ChunkCursor::Count(plan, policy);
  ChunkCursor round_start(plan, policy);
  for (int64_t done = 0; done < count; done += round_size) {
    const int64_t round = std::min(round_size, count - done);
    int64_t work = 0;
    ChunkCursor cursor = round_start;
    for (int64_t i = 0; i < round; ++i, cursor.Advance()) work += cursor.Work();
    // Equal shares of the work: the last chunk of a context may be short. A
    // chunk belongs to the share that its middle is in.
    ParallelFor(stream, work, 1, [&](int64_t begin, int64_t end, int) {
      ChunkCursor chunk = round_start;
      int64_t before = 0;
      for (int64_t i = 0; i < round; ++i, chunk.Advance()) {
        const int64_t middle = before + chunk.Work() / 2;
        before += chunk.Work();
        if (middle < begin || middle >= end) continue;
        AttendChunk(plan, chunk.tile(), chunk.chunk(),
                    partials + i * partial_size);
      }
    });
    for (int64_t i = 0; i < round; ++i, round_start.Advance()) {
      FoldChunk(plan, round_start.tile(), partials + i * partial_size,
                round_start.first(), round_start.last(), state);
    }
  }
}

}  // namespace

absl::Status DecodeAttention(const DecodeAttentionArgs& args, Stream stream) {
  LAMINA_RETURN_IF_ERROR(Validate(args));
  LAMINA_RETURN_IF_ERROR(CheckStream(kOp, stream));
  const int64_t tokens = args.q.batch;
  if (tokens == 0) return absl::OkStatus();
  if (stream.device().backend != Backend::kCpu) {
    if constexpr (kHasGpu) {
      return DecodeAttentionGpu(args, ScaleOf(args), stream);
    }
  }
  LAMINA_RETURN_IF_ERROR(CheckCacheScales(kOp, args.cache));
  LAMINA_RETURN_IF_ERROR(
      CheckTokens(kOp, args.cache, {tokens, args.sequence_ids, args.positions},
                  args.max_position, args.window));
  const AttentionPlan plan = MakePlan(args);
  const DecodeAttentionPolicy policy =
      SelectDecodeAttentionPolicy(ShapeOf(plan), stream.num_threads());
  if (policy.split) {
    AttendChunks(plan, policy, stream);
  } else {
    AttendTiles(plan, policy, stream);
  }
  return absl::OkStatus();
}

absl::StatusOr<int64_t> DecodeAttentionWorkspaceBytes(
    const DecodeAttentionProblem& problem, const DeviceInfo& device,
    int num_threads) {
  constexpr const char* kQuery = "DecodeAttentionWorkspaceBytes";
  LAMINA_RETURN_IF_ERROR(CheckNonNegative(kQuery, "tokens", problem.tokens));
  LAMINA_RETURN_IF_ERROR(
      CheckNonNegative(kQuery, "max_position", problem.max_position));
  LAMINA_RETURN_IF_ERROR(CheckNonNegative(kQuery, "num_threads", num_threads));
  if (problem.kv_heads < 1) {
    return InvalidArgument(kQuery, "kv_heads", problem.kv_heads, ">= 1");
  }
  if (problem.head_dim < 1) {
    return InvalidArgument(kQuery, "head_dim", problem.head_dim, ">= 1");
  }
  LAMINA_RETURN_IF_ERROR(
      CheckHeads(kQuery, "heads", problem.heads, problem.kv_heads));
  LAMINA_RETURN_IF_ERROR(CheckHeadDim(kQuery, problem.head_dim));
  LAMINA_RETURN_IF_ERROR(CheckQType(kQuery, "q_type", problem.q_type));
  if (!Dispatch(KvCacheTable{}, std::array{problem.kv_type}, [](auto) {})) {
    return absl::UnimplementedError(
        absl::StrCat(kQuery, ": kv_type: given ", Name(problem.kv_type),
                     ", supported: ", SupportedRows(KvCacheTable{})));
  }
  if (device.device.backend != Backend::kCpu) {
    if constexpr (kHasGpu) {
      if (IsBuilt(device.device.backend)) {
        return DecodeAttentionGpuWorkspaceBytes(problem, device);
      }
    }
    return absl::UnimplementedError(absl::StrCat(
        kQuery, ": device: this build has no ", Name(device.device.backend),
        " backend; built backends: ", kBuiltBackends));
  }
  return 0;  // Partial results of the CPU are on the stack.
}

}  // namespace lamina
