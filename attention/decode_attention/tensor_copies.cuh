#pragma once

// How tiles of keys and values come into shared memory, and near it.

#include <cstdint>

#include "lamina/attention/decode_attention/tensor_tile.cuh"
#include "lamina/attention/kv_cache/kv_run.h"
#include "lamina/core/device/async.cuh"

namespace lamina::attention_internal::tensor {

// A wave's copies of tiles. What is not attended to, or lies behind head_dim,
// becomes 0.
template <class S>
class TileCopier {
 public:
  __device__ TileCopier(const TensorAttentionArgs& args, const Place& place)
      : args_(args), place_(place) {
    const KvCacheView& cache = args.attention.cache;
    column_ = LaneIndex() % kColumns;
    row_ = LaneIndex() / kColumns;
    has_column_ = column_ * 16 < cache.head_dim * kSize;
    paged_ = cache.page_table != nullptr;
    origin_ = (place.kv_head * cache.head_stride +
               (paged_ ? 0 : place.sequence * cache.page_stride) +
               row_ * cache.token_stride) *
                  kSize +
              column_ * 16;
    whole_ = cache.head_dim == S::kDims;
    by_rows_ = paged_ && cache.page_tokens % kTilePositions != 0;
    if (paged_) {
      pages_ = cache.page_table + place.sequence * cache.page_table_stride;
    }
  }

  // Ahead of Copy(tile, …): finds the page.
  __device__ void Find(int tile) {
    if (paged_) {
      page_ = static_cast<int32_t>(
          args_.page.Quotient(static_cast<uint32_t>(tile * kTilePositions)));
      row_of_page_ =
          tile * kTilePositions - page_ * static_cast<int>(args_.page.divisor);
      if (!by_rows_) page_ = pages_[page_];
    }
  }

  __device__ void Copy(int tile, char* stage) const {
    if (by_rows_) return CopyRows(tile, stage);
    const KvCacheView& cache = args_.attention.cache;
    const int first_position = tile * kTilePositions;
    int64_t offset = origin_;
    if (paged_) {
      offset +=
          (page_ * cache.page_stride + row_of_page_ * cache.token_stride) *
          kSize;
    } else {
      offset += first_position * cache.token_stride * kSize;
    }
    const int64_t step = kRowsAtOnce * cache.token_stride * kSize;
    const char* k = static_cast<const char*>(cache.k) + offset;
    const char* v = static_cast<const char*>(cache.v) + offset;
    const int to = TileOffset<S::kRowBytes>(row_, column_);
    if (whole_ && first_position >= place_.begin &&
        first_position + kTilePositions <= place_.end) {
#pragma unroll
      for (int first = 0; first < kTilePositions; first += kRowsAtOnce) {
        char* const at = stage + Further(to, first);
        gpu::CopyAsync16(at, k);
        gpu::CopyAsync16(at + S::kTileBytes, v);
        k += step;
        v += step;
      }
      return;
    }
#pragma unroll 1
    for (int first = 0; first < kTilePositions; first += kRowsAtOnce) {
      const int position = first_position + first + row_;
      const bool valid =
          has_column_ && position >= place_.begin && position < place_.end;
      CopyOrClear(k, v, valid, stage + Further(to, first));
      k += step;
      v += step;
    }
  }

 private:
  static constexpr int64_t kSize = sizeof(typename S::C);
  static constexpr int kColumns = S::kRowBytes / 16;
  static constexpr int kRowsAtOnce = kWave / kColumns;

  // So many rows further, a multiple of kRowsAtOnce.
  __device__ static constexpr int Further(int offset, int rows) {
    return (offset ^ (Swizzle<S::kRowBytes>(rows) * 16)) + rows * S::kRowBytes;
  }
  __device__ void CopyOrClear(const char* k, const char* v, bool valid,
                              char* to) const {
    const KvCacheView& cache = args_.attention.cache;
    // NOTE: of nothing, from an address that there is.
    gpu::CopyAsync16(to, valid ? k : cache.k, valid ? 16 : 0);
    gpu::CopyAsync16(to + S::kTileBytes, valid ? v : cache.v, valid ? 16 : 0);
  }
  // Pages end in tiles.
  __device__ void CopyRows(int tile, char* stage) const {
    const KvCacheView& cache = args_.attention.cache;
#pragma unroll 1
    for (int row = row_; row < kTilePositions; row += kRowsAtOnce) {
      const int position = tile * kTilePositions + row;
      const bool valid =
          has_column_ && position >= place_.begin && position < place_.end;
      int64_t offset = 0;
      if (valid) {
        const uint32_t index =
            args_.page.Quotient(static_cast<uint32_t>(position));
        const int64_t token =
            position - int64_t{index} * args_.page.divisor - row_;
        offset = origin_ + (pages_[index] * cache.page_stride +
                            token * cache.token_stride) *
                               kSize;
      }
      CopyOrClear(static_cast<const char*>(cache.k) + offset,
                  static_cast<const char*>(cache.v) + offset, valid,
                  stage + TileOffset<S::kRowBytes>(row, column_));
    }
  }

  const TensorAttentionArgs& args_;
  const Place& place_;
  const int32_t* pages_ = nullptr;
  int64_t origin_;    // bytes to this lane's part of a page
  int32_t page_ = 0;  // of the tile to come
  int row_of_page_ = 0;
  int column_, row_;
  bool has_column_, whole_, paged_, by_rows_;
};

// Before the predecessor has ended: brings a token's keys and values, as far as
// they are this block's, into the L2, where the predecessor's writes go too.
// Its position may be that of another step still: a hint.
template <class S>
__device__ inline void PrefetchTiles(const TensorAttentionArgs& args,
                                     Place place) {
  const AttentionKernelArgs& a = args.attention;
  const KvCacheView& cache = a.cache;
  constexpr int64_t kSize = sizeof(typename S::C);
  const auto within = [](int64_t i, int64_t count) {
    return i < 0 ? 0 : i < count ? i : count - 1;
  };
  const bool paged = cache.page_table != nullptr;
  const auto last =
      static_cast<int32_t>(within(gpu::LoadAhead(a.positions + place.token),
                                  int64_t{args.max_position} + 1));
  const int64_t sequence = within(
      a.sequence_ids == nullptr ? place.token
                                : gpu::LoadAhead(a.sequence_ids + place.token),
      paged ? cache.sequences : cache.num_pages);
  TakeSplits(args, last, 1, place);
  int begin = place.tile * kTilePositions;
  if (begin < place.begin) begin = place.begin;
  int end = place.tile_end * kTilePositions;
  if (end > place.end) end = place.end;
  int rows = 2 * (end - begin);
  if (rows > args.prefetch_rows) rows = args.prefetch_rows;
#pragma unroll 1
  for (int i = gpu::ThreadIndex(); i < rows; i += S::kThreads) {
    const int position = begin + i / 2;
    int64_t page = sequence, token = position;
    if (paged) {
      const uint32_t index =
          args.page.Quotient(static_cast<uint32_t>(position));
      token -= int64_t{index} * args.page.divisor;
      page = within(gpu::LoadAhead(cache.page_table +
                                   sequence * cache.page_table_stride + index),
                    cache.num_pages);
    }
    const int64_t offset = page * cache.page_stride +
                           token * cache.token_stride +
                           place.kv_head * cache.head_stride;
    gpu::PrefetchBytes(
        static_cast<const char*>(i % 2 == 0 ? cache.k : cache.v) +
            offset * kSize,
        static_cast<int>(cache.head_dim * kSize));
  }
}

// Until at most `stages` - 1 groups of this thread's copies are under way.
__device__ inline void WaitForOldest(int stages) {
  static_assert(kMaxTensorStages == 4, "a case for each");
  if (stages == 1) return gpu::WaitAsyncCopies<0>();
  if (stages == 2) return gpu::WaitAsyncCopies<1>();
  if (stages == 3) return gpu::WaitAsyncCopies<2>();
  gpu::WaitAsyncCopies<3>();
}

}  // namespace lamina::attention_internal::tensor
