#include <array>
#include <limits>
#include <string>

#include "absl/strings/str_cat.h"
#include "lamina/attention/kv_cache.h"
#include "lamina/attention/kv_cache/kv_append_cpu.h"
#include "lamina/attention/kv_cache/kv_cache_access.h"
#include "lamina/attention/kv_cache/kv_cache_policy.h"
#include "lamina/core/math.h"
#include "lamina/core/parallel.h"
#include "lamina/core/status.h"

namespace lamina {
namespace {

using namespace attention_internal;  // NOLINT(google-build-using-namespace)

constexpr const char* kOp = "KvAppend";
// Elements that are worth a thread.
constexpr int64_t kGrainElements = 1 << 14;

absl::Status CheckNotInCache(const char* argument,
                             const ConstMatrixView& source,
                             const KvCacheView& cache, const char* part,
                             void* memory) {
  const int64_t extent = CacheExtent(cache);
  const ConstMatrixView whole = {.data = memory,
                                 .dtype = cache.dtype,
                                 .rows = 1,
                                 .cols = extent,
                                 .row_stride = extent};
  return CheckOverlap(kOp, part, whole, argument, source, false);
}

absl::Status Validate(const KvAppendArgs& args) {
  const KvCacheView& cache = args.cache;
  const int64_t tokens = args.k.batch;
  LAMINA_RETURN_IF_ERROR(CheckCache(kOp, cache));
  LAMINA_RETURN_IF_ERROR(
      CheckShape(kOp, "k", args.k, tokens, cache.kv_heads, cache.head_dim));
  if (!Dispatch(KvAppendTable{}, std::array{args.k.dtype}, [](auto) {})) {
    return absl::UnimplementedError(
        absl::StrCat(kOp, ": k.dtype: given ", Name(args.k.dtype),
                     ", supported: ", SupportedRows(KvAppendTable{})));
  }
  LAMINA_RETURN_IF_ERROR(
      CheckShape(kOp, "v", args.v, tokens, cache.kv_heads, cache.head_dim));
  LAMINA_RETURN_IF_ERROR(CheckDType(kOp, "v", args.v.dtype, args.k.dtype));
  for (void* memory : {cache.k, cache.v}) {
    const char* part = memory == cache.k ? "cache.k" : "cache.v";
    LAMINA_RETURN_IF_ERROR(CheckNotInCache("k", args.k, cache, part, memory));
    LAMINA_RETURN_IF_ERROR(CheckNotInCache("v", args.v, cache, part, memory));
  }
  if (tokens > 0 && args.positions == nullptr) {
    return InvalidArgument(kOp, "positions", std::string("null"),
                           "a pointer to [tokens]");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status KvAppend(const KvAppendArgs& args, Stream stream) {
  LAMINA_RETURN_IF_ERROR(Validate(args));
  LAMINA_RETURN_IF_ERROR(CheckCpuStream(kOp, stream));
  LAMINA_RETURN_IF_ERROR(CheckCacheScales(kOp, args.cache));
  LAMINA_RETURN_IF_ERROR(CheckTokens(
      kOp, args.cache, {args.k.batch, args.sequence_ids, args.positions},
      std::numeric_limits<int32_t>::max(), /*window=*/1));
  const int64_t grain =
      CeilDiv(kGrainElements, args.cache.kv_heads * args.cache.head_dim);
  ParallelFor(
      stream, args.k.batch, grain,
      [&](int64_t begin, int64_t end, int) { KvAppendCpu(args, begin, end); });
  return absl::OkStatus();
}

}  // namespace lamina
