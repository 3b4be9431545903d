#pragma once

// What the tests of this folder share: typed suites from pairs of typed
// tables, and caches whose memory is laid out by the formula of kv_cache.h,
// written down once more.

#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "lamina/attention/kv_cache.h"
#include "lamina/attention/kv_cache/kv_cache_policy.h"
#include "lamina/core/dispatch.h"
#include "lamina/core/float16.h"
#include "lamina/quant/fp8.h"
#include "tests/support/memory.h"
#include "tests/support/random.h"
#include "tests/support/targets.h"

namespace lamina::testing {

// ::testing::Types of all pairs of two tables.
template <class... List>
struct Concatenated;
template <class... A>
struct Concatenated<::testing::Types<A...>> {
  using type = ::testing::Types<A...>;
};
template <class... A, class... B, class... Rest>
struct Concatenated<::testing::Types<A...>, ::testing::Types<B...>, Rest...> {
  using type =
      typename Concatenated<::testing::Types<A..., B...>, Rest...>::type;
};
template <class A, class B>
struct PairsOf;
template <class A, class... B>
struct PairsOfOne;
template <class A, class... B>
struct PairsOfOne<A, Table<Types<B>...>> {
  using type = ::testing::Types<Types<A, B>...>;
};
template <class... A, class B>
struct PairsOf<Table<Types<A>...>, B> {
  using type = typename Concatenated<typename PairsOfOne<A, B>::type...>::type;
};
// First and second type of a row of a table.
template <class Row>
struct FirstOf;
template <class A, class... Rest>
struct FirstOf<Types<A, Rest...>> {
  using type = A;
};
template <class Row>
struct SecondOf;
template <class A, class B, class... Rest>
struct SecondOf<Types<A, B, Rest...>> {
  using type = B;
};

template <class T>
bool SameBits(T a, T b) {
  return __builtin_memcmp(&a, &b, sizeof(T)) == 0;
}

struct CacheShape {
  int64_t sequences = 1;
  int64_t capacity = 1;  // positions of each sequence
  int64_t kv_heads = 1;
  int64_t head_dim = 64;
  int64_t page_tokens = 0;     // 0: contiguous
  bool heads_outside = false;  // [page, head, token, dim]
  int64_t padding = 0;         // elements after each head_dim vector
  int64_t offset = 0;          // elements before the first one
};

// A cache of type T whose bytes are all NaN codes at first. Pages of a paged
// cache are shuffled, with a spare one in between.
template <class T>
class TestCache {
 public:
  TestCache(const CacheShape& shape, uint64_t seed = 7) : shape_(shape) {
    const bool paged = shape.page_tokens > 0;
    const int64_t page_tokens = paged ? shape.page_tokens : shape.capacity;
    pages_per_sequence_ = (shape.capacity + page_tokens - 1) / page_tokens;
    const int64_t num_pages = shape.sequences * pages_per_sequence_ + paged;
    const int64_t vector = shape.head_dim + shape.padding;
    view_ = DenseKvCache(nullptr, nullptr, DTypeOf<T>::value, num_pages,
                         page_tokens, shape.kv_heads, vector);
    view_.head_dim = shape.head_dim;
    if (shape.heads_outside) {
      view_.token_stride = vector;
      view_.head_stride = page_tokens * vector;
    }
    const int64_t size = shape.offset + num_pages * view_.page_stride;
    k_.resize(static_cast<size_t>(size), Poison());
    v_.resize(static_cast<size_t>(size), Poison());
    view_.k = k_.data() + shape.offset;
    view_.v = v_.data() + shape.offset;
    if (paged) {
      for (int64_t i = 0; i < num_pages; ++i) {
        table_.push_back(static_cast<int32_t>(i));
      }
      Random random(seed);
      for (int64_t i = num_pages - 1; i > 0; --i) {
        std::swap(table_[static_cast<size_t>(i)],
                  table_[static_cast<size_t>(random.Integer(0, i))]);
      }
      view_.page_table = table_.data();
      view_.page_table_stride = pages_per_sequence_;
      view_.sequences = shape.sequences;
    }
  }

  // Quiet NaN in all types.
  static T Poison() {
    if constexpr (sizeof(T) == 4) {
      return std::numeric_limits<float>::quiet_NaN();
    } else if constexpr (sizeof(T) == 2) {
      return T{0x7fff};
    } else {
      return T{Fp8FormatOf<T>::value.nan_code};
    }
  }

  const KvCacheView& view() const { return view_; }
  KvCacheView& view() { return view_; }
  std::vector<int32_t>& table() { return table_; }
  std::vector<T>& k() { return k_; }
  std::vector<T>& v() { return v_; }
  int64_t pages_per_sequence() const { return pages_per_sequence_; }

  int64_t Index(int64_t sequence, int64_t position, int64_t head) const {
    const int64_t i = position / view_.page_tokens;
    const int64_t page =
        table_.empty()
            ? sequence
            : table_[static_cast<size_t>(sequence * pages_per_sequence_ + i)];
    return shape_.offset + page * view_.page_stride +
           position % view_.page_tokens * view_.token_stride +
           head * view_.head_stride;
  }
  T* K(int64_t s, int64_t p, int64_t h) {
    return &k_[static_cast<size_t>(Index(s, p, h))];
  }
  T* V(int64_t s, int64_t p, int64_t h) {
    return &v_[static_cast<size_t>(Index(s, p, h))];
  }

  // Normal deviates at positions [0, length) of a sequence.
  void FillSequence(int64_t sequence, int64_t length, Random& random,
                    float deviation = 1.0f) {
    for (int64_t p = 0; p < length; ++p) {
      for (int64_t h = 0; h < shape_.kv_heads; ++h) {
        for (int64_t d = 0; d < shape_.head_dim; ++d) {
          K(sequence, p, h)[d] = FromFloat<T>(random.Normal(0, deviation));
          V(sequence, p, h)[d] = FromFloat<T>(random.Normal(0, deviation));
        }
      }
    }
  }

 private:
  CacheShape shape_;
  KvCacheView view_;
  int64_t pages_per_sequence_ = 0;
  std::vector<T> k_, v_;
  std::vector<int32_t> table_;
};

}  // namespace lamina::testing
