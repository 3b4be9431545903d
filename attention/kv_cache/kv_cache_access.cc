#include "lamina/attention/kv_cache/kv_cache_access.h"

#include <array>
#include <cmath>
#include <limits>
#include <string>

#include "absl/strings/str_cat.h"
#include "lamina/attention/kv_cache/kv_cache_policy.h"
#include "lamina/core/status.h"

namespace lamina {

KvCacheView DenseKvCache(void* k, void* v, DType dtype, int64_t num_pages,
                         int64_t page_tokens, int64_t kv_heads,
                         int64_t head_dim) {
  return {.k = k,
          .v = v,
          .dtype = dtype,
          .kv_heads = kv_heads,
          .head_dim = head_dim,
          .num_pages = num_pages,
          .page_tokens = page_tokens,
          .page_stride = page_tokens * kv_heads * head_dim,
          .token_stride = kv_heads * head_dim,
          .head_stride = head_dim,
          .sequences = num_pages};
}

namespace attention_internal {
namespace {

constexpr int64_t kMaxExtent = std::numeric_limits<int64_t>::max() / 16;

struct Dimension {
  const char* name;
  int64_t size;
  int64_t stride;
};

// Dimensions by rising stride; those of size 1 first.
std::array<Dimension, 3> SortedDimensions(const KvCacheView& cache) {
  std::array<Dimension, 3> dimensions = {
      Dimension{"cache.head_stride", cache.kv_heads, cache.head_stride},
      Dimension{"cache.token_stride", cache.page_tokens, cache.token_stride},
      Dimension{"cache.page_stride", cache.num_pages, cache.page_stride}};
  for (Dimension& dimension : dimensions) {
    if (dimension.size <= 1) dimension.stride = 0;
  }
  std::stable_sort(dimensions.begin(), dimensions.end(),
                   [](const Dimension& a, const Dimension& b) {
                     return a.stride < b.stride;
                   });
  return dimensions;
}

absl::Status CheckAtLeast(const char* op, const char* argument, int64_t given,
                          int64_t least) {
  if (given >= least) return absl::OkStatus();
  return InvalidArgument(op, argument, given, absl::StrCat(">= ", least));
}

absl::Status CheckPointer(const char* op, const char* argument,
                          const void* pointer, DType dtype) {
  if (pointer == nullptr) {
    return InvalidArgument(op, argument, std::string("null"), "a pointer");
  }
  if (reinterpret_cast<uintptr_t>(pointer) %
          static_cast<uintptr_t>(BytesFor(dtype, 1)) !=
      0) {
    return InvalidArgument(op, argument, std::string("a misaligned pointer"),
                           absl::StrCat("alignment of one ", Name(dtype)));
  }
  return absl::OkStatus();
}

std::string Element(const char* array, int64_t index) {
  return absl::StrCat(array, "[", index, "]");
}

}  // namespace

absl::Status CheckCache(const char* op, const KvCacheView& cache) {
  if (!Dispatch(KvCacheTable{}, std::array{cache.dtype}, [](auto) {})) {
    return absl::UnimplementedError(
        absl::StrCat(op, ": cache.dtype: given ", Name(cache.dtype),
                     ", supported: ", SupportedRows(KvCacheTable{})));
  }
  LAMINA_RETURN_IF_ERROR(CheckAtLeast(op, "cache.kv_heads", cache.kv_heads, 1));
  LAMINA_RETURN_IF_ERROR(CheckAtLeast(op, "cache.head_dim", cache.head_dim, 1));
  LAMINA_RETURN_IF_ERROR(
      CheckAtLeast(op, "cache.num_pages", cache.num_pages, 1));
  LAMINA_RETURN_IF_ERROR(
      CheckAtLeast(op, "cache.page_tokens", cache.page_tokens, 1));
  LAMINA_RETURN_IF_ERROR(CheckPointer(op, "cache.k", cache.k, cache.dtype));
  LAMINA_RETURN_IF_ERROR(CheckPointer(op, "cache.v", cache.v, cache.dtype));
  int64_t extent = cache.head_dim;
  for (const Dimension& dimension : SortedDimensions(cache)) {
    if (dimension.size <= 1) continue;
    LAMINA_RETURN_IF_ERROR(
        CheckAtLeast(op, dimension.name, dimension.stride, extent));
    if (dimension.size - 1 > (kMaxExtent - extent) / dimension.stride) {
      return InvalidArgument(op, dimension.name, dimension.stride,
                             "an extent that fits 64 bits");
    }
    extent += (dimension.size - 1) * dimension.stride;
  }
  if (cache.page_table != nullptr) {
    LAMINA_RETURN_IF_ERROR(
        CheckAtLeast(op, "cache.sequences", cache.sequences, 1));
    LAMINA_RETURN_IF_ERROR(CheckAtLeast(op, "cache.page_table_stride",
                                        cache.page_table_stride, 1));
  }
  const bool scaled = cache.k_scale != nullptr || cache.v_scale != nullptr;
  if (scaled && !IsFp8(cache.dtype)) {
    return InvalidArgument(
        op, cache.k_scale != nullptr ? "cache.k_scale" : "cache.v_scale",
        absl::StrCat("a scale for a ", Name(cache.dtype), " cache"),
        "null, or an FP8 cache");
  }
  return absl::OkStatus();
}

int64_t CacheExtent(const KvCacheView& cache) {
  int64_t extent = cache.head_dim;
  for (const Dimension& dimension : SortedDimensions(cache)) {
    if (dimension.size > 1) extent += (dimension.size - 1) * dimension.stride;
  }
  return extent;
}

absl::Status CheckCacheScales(const char* op, const KvCacheView& cache) {
  const auto check = [&](const char* argument, const float* scale) {
    if (scale == nullptr || (std::isfinite(*scale) && *scale > 0.0f)) {
      return absl::OkStatus();
    }
    return InvalidArgument(op, argument, absl::StrCat(*scale),
                           "finite and > 0");
  };
  LAMINA_RETURN_IF_ERROR(check("cache.k_scale", cache.k_scale));
  return check("cache.v_scale", cache.v_scale);
}

absl::Status CheckTokens(const char* op, const KvCacheView& cache,
                         const KvTokens& tokens, int64_t max_position,
                         int64_t window) {
  const bool paged = cache.page_table != nullptr;
  const int64_t sequences = paged ? cache.sequences : cache.num_pages;
  const int64_t pages = paged ? cache.page_table_stride : 1;
  for (int64_t t = 0; t < tokens.tokens; ++t) {
    const int64_t sequence = tokens.Sequence(t);
    if (sequence < 0 || sequence >= sequences) {
      return InvalidArgument(
          op, Element("sequence_ids", t).c_str(), sequence,
          absl::StrCat("in [0, ", sequences, ") (",
                       paged ? "cache.sequences" : "cache.num_pages", ")"));
    }
    const int64_t position = tokens.positions[t];
    if (position < 0 || position > max_position) {
      return InvalidArgument(
          op, Element("positions", t).c_str(), position,
          absl::StrCat("in [0, ", max_position, "] (max_position)"));
    }
    const int64_t last = position / cache.page_tokens;
    if (last >= pages) {
      return InvalidArgument(
          op, Element("positions", t).c_str(), position,
          absl::StrCat("below the capacity of a sequence, ", pages, " page",
                       pages == 1 ? "" : "s", " of ", cache.page_tokens));
    }
    if (!paged) continue;
    const int64_t first =
        window > 0
            ? std::max<int64_t>(0, position - window + 1) / cache.page_tokens
            : 0;
    const int32_t* table =
        cache.page_table + sequence * cache.page_table_stride;
    for (int64_t i = first; i <= last; ++i) {
      if (table[i] < 0 || table[i] >= cache.num_pages) {
        return InvalidArgument(
            op,
            absl::StrCat("cache.page_table[", sequence, ", ", i, "] of token ",
                         t)
                .c_str(),
            table[i],
            absl::StrCat("in [0, ", cache.num_pages, ") (cache.num_pages)"));
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace attention_internal
}  // namespace lamina
