#include <array>
#include <limits>
#include <string>

#include "absl/strings/str_cat.h"
#include "lamina/attention/kv_cache.h"
#include "lamina/attention/kv_cache/kv_append_checks.h"
#include "lamina/attention/kv_cache/kv_append_cpu.h"
#include "lamina/attention/kv_cache/kv_cache_access.h"
#include "lamina/attention/kv_cache/kv_cache_policy.h"
#include "lamina/attention/rope_append/rope_append_gpu.h"
#include "lamina/core/device/built_backends.h"
#include "lamina/core/math.h"
#include "lamina/core/parallel.h"
#include "lamina/core/status.h"

namespace lamina {
namespace {

using namespace attention_internal;  // NOLINT(google-build-using-namespace)

// Elements that are worth a thread.
constexpr int64_t kGrainElements = 1 << 14;

absl::Status CheckNotInCache(const char* op, const char* argument,
                             const ConstMatrixView& source,
                             const KvCacheView& cache, const char* part,
                             void* memory) {
  const int64_t extent = CacheExtent(cache);
  const ConstMatrixView whole = {.data = memory,
                                 .dtype = cache.dtype,
                                 .rows = 1,
                                 .cols = extent,
                                 .row_stride = extent};
  return CheckOverlap(op, part, whole, argument, source, false);
}

}  // namespace

namespace attention_internal {

absl::Status CheckKvAppend(const KvAppendArgs& args, const char* op) {
  const KvCacheView& cache = args.cache;
  const int64_t tokens = args.k.batch;
  LAMINA_RETURN_IF_ERROR(CheckCache(op, cache));
  LAMINA_RETURN_IF_ERROR(
      CheckShape(op, "k", args.k, tokens, cache.kv_heads, cache.head_dim));
  if (!Dispatch(KvAppendTable{}, std::array{args.k.dtype}, [](auto) {})) {
    return absl::UnimplementedError(
        absl::StrCat(op, ": k.dtype: given ", Name(args.k.dtype),
                     ", supported: ", SupportedRows(KvAppendTable{})));
  }
  LAMINA_RETURN_IF_ERROR(
      CheckShape(op, "v", args.v, tokens, cache.kv_heads, cache.head_dim));
  LAMINA_RETURN_IF_ERROR(CheckDType(op, "v", args.v.dtype, args.k.dtype));
  for (void* memory : {cache.k, cache.v}) {
    const char* part = memory == cache.k ? "cache.k" : "cache.v";
    LAMINA_RETURN_IF_ERROR(
        CheckNotInCache(op, "k", args.k, cache, part, memory));
    LAMINA_RETURN_IF_ERROR(
        CheckNotInCache(op, "v", args.v, cache, part, memory));
  }
  if (tokens > 0 && args.positions == nullptr) {
    return InvalidArgument(op, "positions", std::string("null"),
                           "a pointer to [tokens]");
  }
  return absl::OkStatus();
}

void KvAppendCpu(const KvAppendArgs& args, const Stream& stream) {
  const int64_t grain =
      CeilDiv(kGrainElements, args.cache.kv_heads * args.cache.head_dim);
  ParallelFor(
      stream, args.k.batch, grain,
      [&](int64_t begin, int64_t end, int) { KvAppendCpu(args, begin, end); });
}

absl::Status CheckKvAppendTokens(const KvAppendArgs& args, const char* op) {
  LAMINA_RETURN_IF_ERROR(CheckCacheScales(op, args.cache));
  return CheckTokens(op, args.cache,
                     {args.k.batch, args.sequence_ids, args.positions},
                     std::numeric_limits<int32_t>::max(), /*window=*/1);
}

}  // namespace attention_internal

absl::Status KvAppend(const KvAppendArgs& args, Stream stream) {
  constexpr const char* kOp = "KvAppend";
  LAMINA_RETURN_IF_ERROR(CheckKvAppend(args, kOp));
  LAMINA_RETURN_IF_ERROR(CheckStream(kOp, stream));
  if (args.k.batch == 0) return absl::OkStatus();
  if (stream.device().backend != Backend::kCpu) {
    if constexpr (kHasGpu) return KvAppendGpu(args, stream);
  }
  LAMINA_RETURN_IF_ERROR(CheckKvAppendTokens(args, kOp));
  KvAppendCpu(args, stream);
  return absl::OkStatus();
}

}  // namespace lamina
