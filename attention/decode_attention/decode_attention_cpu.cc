// DecodeAttention on the CPU.
//
//   for each chunk of 256 positions of a tile (up to 32 query rows):
//     for each block of keys (8 KiB of fp32, widened once):     scores
//     for each row:                                             softmax weights
//     for each block of values:                                 o += p * V
//     merge the chunk
//
// Bytes moved: K and V of a KV head once per tile; the rest stays in L1 and
// L2. Few rows (decoding) are limited by memory, many by the FMA units.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE \
  "lamina/attention/decode_attention/decode_attention_cpu.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
//
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "hwy/cache_control.h"
#include "lamina/attention/decode_attention/decode_attention_cpu.h"
#include "lamina/attention/decode_attention/decode_attention_policy.h"
#include "lamina/core/elementary-inl.h"
#include "lamina/quant/fp8-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lamina {
namespace HWY_NAMESPACE {
namespace {

using attention_internal::AttentionPlan;
using attention_internal::AttentionTile;
using attention_internal::kDotSlots;
using attention_internal::kTileFloats;
using attention_internal::kTileRows;

constexpr int64_t kLanes = static_cast<int64_t>(hn::MaxLanes(DF32()));
static_assert(kDotSlots % kLanes == 0, "a vector holds whole slots");

// Keys or values of one block in fp32: a quarter of L1 (32 KiB), but a whole
// group of positions at least.
constexpr int64_t kBlockFloats = 2048;
constexpr int64_t kGroupTokens = 16;
constexpr int64_t kMaxBlockFloats =
    kGroupTokens * attention_internal::kTileHeadFloats;
static_assert(kGroupTokens % kLanes == 0);

// Scores of a row; a group of positions may begin at the chunk's last one.
constexpr int64_t kScorePitch = kAttentionChunk + kGroupTokens;

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

struct Row {
  int64_t token;
  int64_t head;
  int64_t first, last;  // positions
  int64_t begin, end;   // the same in the current chunk, empty if begin >= end
};

struct Scratch {
  HWY_ALIGN float q[kTileFloats];
  HWY_ALIGN float chunk_o[kTileFloats];
  HWY_ALIGN float scores[kTileRows * kScorePitch];
  HWY_ALIGN float block[kMaxBlockFloats];
  float chunk_m[kTileRows];
  float chunk_l[kTileRows];
  Row rows[kTileRows];  // by KV head, token, head
};

// ---- Rows of any type to padded fp32.
// ----------------------------------------

template <class T>
HWY_INLINE void WidenRow(const T* from, int64_t count, int64_t padded,
                         float* to) {
  const DF32 d;
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    hn::Store(LoadF32(d, from + i), d, to + i);
  }
  if (i < count) {
    hn::Store(LoadNF32(d, from + i, static_cast<size_t>(count - i)), d, to + i);
    i += kLanes;
  }
  for (; i < padded; i += kLanes) hn::Store(hn::Zero(d), d, to + i);
}

// Walks over the positions of a sequence.
class PositionCursor {
 public:
  PositionCursor(const KvCacheView& cache, int64_t sequence, int64_t head,
                 int64_t begin, int64_t end)
      : cache_(cache),
        sequence_(sequence),
        head_(head),
        next_(begin),
        end_(end) {}
  bool AtEnd() const { return next_ == end_; }
  // Offset of the next position's element 0 of `head`.
  int64_t Next() {
    if (left_ == 0) {
      const attention_internal::KvRun run = attention_internal::FindRun(
          cache_, sequence_, head_, next_, end_ - next_);
      offset_ = run.offset;
      left_ = run.count;
    }
    const int64_t offset = offset_;
    offset_ += cache_.token_stride;
    --left_;
    ++next_;
    return offset;
  }

 private:
  const KvCacheView& cache_;
  int64_t sequence_, head_;
  int64_t next_, end_;
  int64_t offset_ = 0;
  int64_t left_ = 0;
};

// Keys or values of positions [begin, end).
struct Block {
  const void* memory;
  int64_t begin, end;
};

// Of each KV head of the tile, the rows of `block` as fp32 to `to`, `pitch`
// floats from head to head. Memory is asked for the block `ahead` meanwhile,
// because the arithmetic between two loads keeps the hardware from looking
// ahead. (EPYC 7003, one thread, 2,000 positions of 3 x 64 bf16: 705 us with
// one KV head a tile and no prefetch, 450 with the prefetch, 389 with all
// heads in one tile. 2026-11-29)
template <class T>
void LoadBlock(const AttentionPlan& plan, const AttentionTile& tile,
               const Block& block, const Block& ahead, int64_t pitch,
               float* to) {
  const KvCacheView& cache = plan.args.cache;
  const int64_t sequence = plan.Tokens().Sequence(tile.token_begin);
  const int64_t heads = tile.kv_head_end - tile.kv_head_begin;
  PositionCursor here(cache, sequence, tile.kv_head_begin, block.begin,
                      block.end);
  PositionCursor next(cache, sequence, tile.kv_head_begin, ahead.begin,
                      ahead.end);
  constexpr int64_t kLine = 64 / static_cast<int64_t>(sizeof(T));
  for (; !here.AtEnd(); to += plan.padded_dim) {
    if (!next.AtEnd()) {
      const T* row = static_cast<const T*>(ahead.memory) + next.Next();
      for (int64_t h = 0; h < heads; ++h) {
        for (int64_t i = 0; i < cache.head_dim; i += kLine) {
          hwy::Prefetch(row + h * cache.head_stride + i);
        }
      }
    }
    const T* row = static_cast<const T*>(block.memory) + here.Next();
    for (int64_t h = 0; h < heads; ++h) {
      WidenRow(row + h * cache.head_stride, cache.head_dim, plan.padded_dim,
               to + h * pitch);
    }
  }
}

void LoadBlock(const AttentionPlan& plan, const AttentionTile& tile,
               const Block& block, const Block& ahead, int64_t pitch,
               float* to) {
  Dispatch(KvCacheTable{}, std::array{plan.args.cache.dtype},
           [&]<class T>(Types<T>)
               HWY_ATTR { LoadBlock<T>(plan, tile, block, ahead, pitch, to); });
}

// ---- Scores.
// -----------------------------------------------------------------

// Lane c of the result is the sum of the lanes of v[c]; lane i is added to
// lane i + n / 2 first, then i + n / 4, … Destroys v.
HWY_INLINE VF32 SumEach(DF32 d, VF32* v) {
#if HWY_TARGET == HWY_SCALAR
  (void)d;
  return v[0];
#else
  static_assert(kLanes == 4 || kLanes == 8 || kLanes == 16);
  if constexpr (kLanes > 8) {
    for (int64_t c = 0; c < 8; ++c) {
      v[c] = hn::Add(hn::ConcatLowerLower(d, v[c + 8], v[c]),
                     hn::ConcatUpperUpper(d, v[c + 8], v[c]));
    }
  }
  if constexpr (kLanes == 8) {
    for (int64_t c = 0; c < 4; ++c) {
      v[c] = hn::Add(hn::ConcatLowerLower(d, v[c + 4], v[c]),
                     hn::ConcatUpperUpper(d, v[c + 4], v[c]));
    }
  } else if constexpr (kLanes > 8) {
    for (int64_t c = 0; c < 4; ++c) {
      v[c] = hn::Add(hn::OddEvenBlocks(hn::SwapAdjacentBlocks(v[c + 4]), v[c]),
                     hn::OddEvenBlocks(v[c + 4], hn::SwapAdjacentBlocks(v[c])));
    }
  }
  // Now each 128-bit block of v[0] … v[3] holds four partial sums.
  const hn::Repartition<uint64_t, DF32> d64;
  const VF32 v01 = hn::Add(hn::InterleaveLower(d, v[0], v[1]),
                           hn::InterleaveUpper(d, v[0], v[1]));
  const VF32 v23 = hn::Add(hn::InterleaveLower(d, v[2], v[3]),
                           hn::InterleaveUpper(d, v[2], v[3]));
  const auto a = hn::BitCast(d64, v01);
  const auto b = hn::BitCast(d64, v23);
  return hn::Add(hn::BitCast(d, hn::InterleaveLower(d64, a, b)),
                 hn::BitCast(d, hn::InterleaveUpper(d64, a, b)));
#endif
}

// Dot products of kRows rows of q with the kLanes / kRows keys from `keys`;
// lane r * (kLanes / kRows) + j is that of q[r] and key j.
template <int64_t kRows>
HWY_INLINE VF32 Dots(DF32 d, const std::array<const float*, kRows>& q,
                     const float* HWY_RESTRICT keys, int64_t padded_dim) {
  constexpr int64_t kKeys = kLanes / kRows;
  constexpr int64_t kParts = kDotSlots / kLanes;
  VF32 part[kParts][kLanes];
#pragma GCC unroll 16
  for (int64_t i = 0; i < kParts; ++i) {
    VF32 slots[kLanes];
#pragma GCC unroll 16
    for (int64_t c = 0; c < kLanes; ++c) slots[c] = hn::Zero(d);
    for (int64_t k = i * kLanes; k < padded_dim; k += kDotSlots) {
      VF32 q_vector[kRows];
#pragma GCC unroll 16
      for (int64_t r = 0; r < kRows; ++r) q_vector[r] = hn::Load(d, q[r] + k);
#pragma GCC unroll 16
      for (int64_t j = 0; j < kKeys; ++j) {
        const VF32 key = hn::Load(d, keys + j * padded_dim + k);
#pragma GCC unroll 16
        for (int64_t r = 0; r < kRows; ++r) {
          VF32& slot = slots[r * kKeys + j];
          slot = FusedMulAdd(q_vector[r], key, slot);
        }
      }
    }
#pragma GCC unroll 16
    for (int64_t c = 0; c < kLanes; ++c) part[i][c] = slots[c];
  }
  for (int64_t step = kParts / 2; step > 0; step /= 2) {
    for (int64_t i = 0; i < step; ++i) {
#pragma GCC unroll 16
      for (int64_t c = 0; c < kLanes; ++c) {
        part[i][c] = hn::Add(part[i][c], part[i + step][c]);
      }
    }
  }
  return SumEach(d, part[0]);
}

// Scores of kRows rows with a block of `count` keys, the first of which has
// column `column` in the chunk. Columns outside the rows' own ranges hold
// anything afterwards.
template <int64_t kRows>
HWY_INLINE void ScoreRows(const AttentionPlan& plan, Scratch& s, int64_t row,
                          const float* keys, int64_t column, int64_t count) {
  constexpr int64_t kKeys = kLanes / kRows;
  const DF32 d;
  const VF32 factor = hn::Set(d, plan.factor);
  std::array<const float*, kRows> q;
  int64_t begin = kAttentionChunk;
  int64_t end = 0;
  for (int64_t r = 0; r < kRows; ++r) {
    q[static_cast<size_t>(r)] = s.q + (row + r) * plan.padded_dim;
    if (s.rows[row + r].begin >= s.rows[row + r].end) continue;
    begin = std::min(begin, s.rows[row + r].begin);
    end = std::max(end, s.rows[row + r].end);
  }
  end = std::min(end - column, count);
  begin = std::max<int64_t>(begin - column, 0) / kKeys * kKeys;
  for (int64_t j = begin; j < end; j += kKeys) {
    const VF32 scores = hn::Mul(
        Dots<kRows>(d, q, keys + j * plan.padded_dim, plan.padded_dim), factor);
    HWY_ALIGN float lanes[kLanes];
    hn::Store(scores, d, lanes);
    for (int64_t r = 0; r < kRows; ++r) {
      std::copy_n(lanes + r * kKeys, kKeys,
                  s.scores + (row + r) * kScorePitch + column + j);
    }
  }
}

// ---- Softmax weights of one row: scores to p; m and l.
// -------------------------

HWY_INLINE void Weigh(Scratch& s, int64_t row) {
  const DF32 d;
  const int64_t begin = s.rows[row].begin;
  const int64_t end = s.rows[row].end;
  float* HWY_RESTRICT p = s.scores + row * kScorePitch;
  const int64_t from = begin / kLanes * kLanes;
  const int64_t to = RoundUp(end, kLanes);
  std::fill(p + from, p + begin, kMinusInfinity);
  std::fill(p + end, p + to, kMinusInfinity);
  const VF32 minus_infinity = hn::Set(d, kMinusInfinity);
  VF32 max = minus_infinity;
  for (int64_t i = from; i < to; i += kLanes) {
    const VF32 score = hn::Load(d, p + i);
    max = hn::IfThenElse(hn::Gt(score, max), score, max);
  }
  HWY_ALIGN float lanes[kLanes];
  hn::Store(max, d, lanes);
  const float m = *std::max_element(lanes, lanes + kLanes);
  const VF32 base = hn::Set(d, m == kMinusInfinity ? 0.0f : m);
  std::fill(p, p + from, 0.0f);
  for (int64_t i = from; i < to; i += kLanes) {
    hn::Store(Exp(d, hn::Sub(hn::Load(d, p + i), base)), d, p + i);
  }
  s.chunk_m[row] = m;
  s.chunk_l[row] =
      ChunkSum(d, to, [&](int64_t i) HWY_ATTR { return hn::Load(d, p + i); });
}

// ---- Weighted values.
// ----------------------------------------------------------

// o[r] += p[r][j] * values[j] for j in [begin, end), rising, dimensions
// [k, k + kVectors * kLanes).
template <int64_t kRows, int64_t kVectors>
HWY_INLINE void AddValuesAt(DF32 d, const float* HWY_RESTRICT p,
                            const float* HWY_RESTRICT values, int64_t begin,
                            int64_t end, int64_t padded_dim,
                            float* HWY_RESTRICT o) {
  VF32 sum[kRows][kVectors];
#pragma GCC unroll 16
  for (int64_t r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
    for (int64_t v = 0; v < kVectors; ++v) {
      sum[r][v] = hn::Load(d, o + r * padded_dim + v * kLanes);
    }
  }
  for (int64_t j = begin; j < end; ++j) {
    VF32 value[kVectors];
#pragma GCC unroll 16
    for (int64_t v = 0; v < kVectors; ++v) {
      value[v] = hn::Load(d, values + j * padded_dim + v * kLanes);
    }
#pragma GCC unroll 16
    for (int64_t r = 0; r < kRows; ++r) {
      const VF32 weight = hn::Set(d, p[r * kScorePitch + j]);
#pragma GCC unroll 16
      for (int64_t v = 0; v < kVectors; ++v) {
        sum[r][v] = FusedMulAdd(weight, value[v], sum[r][v]);
      }
    }
  }
#pragma GCC unroll 16
  for (int64_t r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
    for (int64_t v = 0; v < kVectors; ++v) {
      hn::Store(sum[r][v], d, o + r * padded_dim + v * kLanes);
    }
  }
}

template <int64_t kRows, int64_t kVectors>
void AddValues(const float* p, const float* values, int64_t begin, int64_t end,
               int64_t padded_dim, float* o) {
  if (begin >= end) return;
  const DF32 d;
  int64_t k = 0;
  for (; k + kVectors * kLanes <= padded_dim; k += kVectors * kLanes) {
    AddValuesAt<kRows, kVectors>(d, p, values + k, begin, end, padded_dim,
                                 o + k);
  }
  for (; k < padded_dim; k += kLanes) {
    AddValuesAt<kRows, 1>(d, p, values + k, begin, end, padded_dim, o + k);
  }
}

// A block of `count` values, the first of which has column `column`.
// NOTE: a row takes its own positions only; a weight of 0 for the others
// would turn an infinite value into NaN.
template <int64_t kRows, int64_t kVectors>
void AddBlock(const AttentionPlan& plan, Scratch& s, int64_t row,
              const float* values, int64_t column, int64_t count) {
  const auto begin_of = [&](int64_t r) {
    return std::clamp<int64_t>(s.rows[r].begin - column, 0, count);
  };
  const auto end_of = [&](int64_t r) {
    return std::clamp<int64_t>(s.rows[r].end - column, 0, count);
  };
  int64_t begin = 0;
  int64_t end = count;
  for (int64_t r = row; r < row + kRows; ++r) {
    begin = std::max(begin, begin_of(r));
    end = std::min(end, end_of(r));
  }
  end = std::max(begin, end);
  const auto add_one = [&](int64_t r, int64_t from, int64_t to) {
    AddValues<1, 8>(s.scores + r * kScorePitch + column, values, from, to,
                    plan.padded_dim, s.chunk_o + r * plan.padded_dim);
  };
  for (int64_t r = row; r < row + kRows; ++r) {
    add_one(r, begin_of(r), std::min(begin, end_of(r)));
  }
  AddValues<kRows, kVectors>(s.scores + row * kScorePitch + column, values,
                             begin, end, plan.padded_dim,
                             s.chunk_o + row * plan.padded_dim);
  for (int64_t r = row; r < row + kRows; ++r) {
    add_one(r, std::max(end, begin_of(r)), end_of(r));
  }
}

void ScoreBlock(const AttentionPlan& plan, Scratch& s, int64_t row,
                int64_t row_end, const float* keys, int64_t column,
                int64_t count) {
  if constexpr (kLanes > 1) {
    for (; row + 2 <= row_end; row += 2) {
      ScoreRows<2>(plan, s, row, keys, column, count);
    }
  }
  for (; row < row_end; ++row) {
    ScoreRows<1>(plan, s, row, keys, column, count);
  }
}

void AddBlock(const AttentionPlan& plan, Scratch& s, int64_t row,
              int64_t row_end, const float* values, int64_t column,
              int64_t count) {
  for (; row + 4 <= row_end; row += 4) {
    AddBlock<4, 2>(plan, s, row, values, column, count);
  }
  if (row + 3 == row_end) {
    AddBlock<3, 4>(plan, s, row, values, column, count);
  } else if (row + 2 == row_end) {
    AddBlock<2, 4>(plan, s, row, values, column, count);
  } else if (row + 1 == row_end) {
    AddBlock<1, 8>(plan, s, row, values, column, count);
  }
}

// ---- A chunk of a tile: m, l and o of every row with positions in it.
// ----------

void ComputeChunk(const AttentionPlan& plan, const AttentionTile& tile,
                  int64_t chunk, Scratch& s) {
  const KvCacheView& cache = plan.args.cache;
  const int64_t origin = chunk * kAttentionChunk;
  const int64_t rows = tile.Rows();
  int64_t begin = kAttentionChunk;
  int64_t end = 0;
  for (int64_t r = 0; r < rows; ++r) {
    Row& row = s.rows[r];
    row.begin = std::clamp<int64_t>(row.first - origin, 0, kAttentionChunk);
    row.end = std::clamp<int64_t>(row.last + 1 - origin, 0, kAttentionChunk);
    if (row.begin >= row.end) continue;
    begin = std::min(begin, row.begin);
    end = std::max(end, row.end);
  }
  const int64_t heads = tile.kv_head_end - tile.kv_head_begin;
  const int64_t block_tokens =
      std::max(kGroupTokens, kBlockFloats / (heads * plan.padded_dim) /
                                 kGroupTokens * kGroupTokens);
  const int64_t pitch = block_tokens * plan.padded_dim;
  // Loads the block at `column` and calls body(first row, last row, block,
  // count) for each KV head; `after` is read next.
  const auto for_each_head = [&](const void* memory, int64_t column,
                                 const void* after, auto&& body) HWY_ATTR {
    const int64_t count = std::min(block_tokens, end - column);
    const int64_t next = column + count;
    Block ahead = {memory, origin + next,
                   origin + std::min(next + block_tokens, end)};
    if (next == end && after != nullptr) {
      ahead = {after, origin + begin,
               origin + std::min(begin + block_tokens, end)};
    }
    LoadBlock(plan, tile, {memory, origin + column, origin + next}, ahead,
              pitch, s.block);
    for (int64_t h = 0; h < heads; ++h) {
      const int64_t row = h * tile.RowsPerHead();
      body(row, row + tile.RowsPerHead(), s.block + h * pitch, count);
    }
  };
  for (int64_t column = begin; column < end; column += block_tokens) {
    for_each_head(
        cache.k, column, cache.v,
        [&](int64_t row, int64_t row_end, float* keys, int64_t count) HWY_ATTR {
          // The last group of positions may be incomplete.
          std::fill(keys + count * plan.padded_dim,
                    keys + RoundUp(count, kLanes) * plan.padded_dim, 0.0f);
          ScoreBlock(plan, s, row, row_end, keys, column, count);
        });
  }
  for (int64_t r = 0; r < rows; ++r) {
    if (s.rows[r].begin < s.rows[r].end) Weigh(s, r);
  }
  std::fill(s.chunk_o, s.chunk_o + rows * plan.padded_dim, 0.0f);
  for (int64_t column = begin; column < end; column += block_tokens) {
    for_each_head(cache.v, column, nullptr,
                  [&](int64_t row, int64_t row_end, const float* values,
                      int64_t count) HWY_ATTR {
                    AddBlock(plan, s, row, row_end, values, column, count);
                  });
  }
}

// ---- Merging and the result.
// ---------------------------------------------------

// (m, l, o) of a row := the merge of it with a later chunk's.
void Merge(int64_t padded_dim, float chunk_m, float chunk_l,
           const float* HWY_RESTRICT chunk_o, float& m, float& l,
           float* HWY_RESTRICT o) {
  const DF32 d;
  const float max = std::max(m, chunk_m);
  const float base = max == kMinusInfinity ? 0.0f : max;
  const VF32 a = Exp(d, hn::Set(d, m - base));
  const VF32 b = Exp(d, hn::Set(d, chunk_m - base));
  l = hn::GetLane(
      hn::Add(hn::Mul(hn::Set(d, l), a), hn::Mul(hn::Set(d, chunk_l), b)));
  m = max;
  for (int64_t k = 0; k < padded_dim; k += kLanes) {
    hn::StoreU(hn::Add(hn::Mul(hn::LoadU(d, o + k), a),
                       hn::Mul(hn::LoadU(d, chunk_o + k), b)),
               d, o + k);
  }
}

template <class T>
void StoreResult(const AttentionPlan& plan, int64_t token, int64_t head,
                 float l, const float* o) {
  const DF32 d;
  const DecodeAttentionArgs& args = plan.args;
  T* y = args.y.Row<T>(token * args.q.rows + head);
  const VF32 sum = hn::Set(d, l);
  const VF32 scale =
      hn::Set(d, args.cache.v_scale == nullptr ? 1.0f : *args.cache.v_scale);
  ForEachVector(d, args.q.cols, [&](int64_t k, int64_t n) HWY_ATTR {
    StoreUpTo(hn::Mul(hn::Div(hn::LoadU(d, o + k), sum), scale), d, y + k, n);
  });
}

void StoreRow(const AttentionPlan& plan, int64_t token, int64_t head, float l,
              const float* o) {
  Dispatch(DecodeAttentionTable{}, std::array{plan.args.q.dtype},
           [&]<class T>(Types<T>)
               HWY_ATTR { StoreResult<T>(plan, token, head, l, o); });
}

// Fills s.rows and s.q.
void LoadTile(const AttentionPlan& plan, const AttentionTile& tile,
              Scratch& s) {
  const DecodeAttentionArgs& args = plan.args;
  int64_t row = 0;
  for (int64_t kv = tile.kv_head_begin; kv < tile.kv_head_end; ++kv) {
    for (int64_t t = tile.token_begin; t < tile.token_end; ++t) {
      for (int64_t g = tile.group_begin; g < tile.group_end; ++g, ++row) {
        const int64_t head = kv * plan.group + g;
        s.rows[row] = {t, head, plan.First(t), plan.Last(t), 0, 0};
        Dispatch(DecodeAttentionTable{}, std::array{args.q.dtype},
                 [&]<class T>(Types<T>) HWY_ATTR {
                   WidenRow(args.q.Row<T>(t * args.q.rows + head), args.q.cols,
                            plan.padded_dim, s.q + row * plan.padded_dim);
                 });
      }
    }
  }
}

// ---- Entry points.
// -------------------------------------------------------------

void AttendTile(const AttentionPlan& plan, const AttentionTile& tile) {
  Scratch s;
  HWY_ALIGN float o[kTileFloats];
  float m[kTileRows];
  float l[kTileRows];
  bool begun[kTileRows] = {};
  LoadTile(plan, tile, s);
  const int64_t rows = tile.Rows();
  int64_t first = s.rows[0].first;
  int64_t last = s.rows[0].last;
  for (int64_t r = 1; r < rows; ++r) {
    first = std::min(first, s.rows[r].first);
    last = std::max(last, s.rows[r].last);
  }
  for (int64_t chunk = first / kAttentionChunk; chunk <= last / kAttentionChunk;
       ++chunk) {
    ComputeChunk(plan, tile, chunk, s);
    for (int64_t r = 0; r < rows; ++r) {
      if (s.rows[r].begin >= s.rows[r].end) continue;
      const float* chunk_o = s.chunk_o + r * plan.padded_dim;
      float* row_o = o + r * plan.padded_dim;
      if (begun[r]) {
        Merge(plan.padded_dim, s.chunk_m[r], s.chunk_l[r], chunk_o, m[r], l[r],
              row_o);
      } else {
        begun[r] = true;
        m[r] = s.chunk_m[r];
        l[r] = s.chunk_l[r];
        std::copy_n(chunk_o, plan.padded_dim, row_o);
      }
    }
  }
  for (int64_t r = 0; r < rows; ++r) {
    StoreRow(plan, s.rows[r].token, s.rows[r].head, l[r],
             o + r * plan.padded_dim);
  }
}

void AttendChunk(const AttentionPlan& plan, const AttentionTile& tile,
                 int64_t chunk, float* partial) {
  Scratch s;
  LoadTile(plan, tile, s);
  ComputeChunk(plan, tile, chunk, s);
  const int64_t rows = tile.Rows();
  std::copy_n(s.chunk_m, rows, partial);
  std::copy_n(s.chunk_l, rows, partial + rows);
  std::copy_n(s.chunk_o, rows * plan.padded_dim, partial + 2 * rows);
}

void FoldChunk(const AttentionPlan& plan, const AttentionTile& tile,
               const float* partial, bool first, bool last, float* state) {
  const int64_t rows = tile.Rows();
  if (first) {
    std::copy_n(partial, rows * (2 + plan.padded_dim), state);
  } else {
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t o = 2 * rows + r * plan.padded_dim;
      Merge(plan.padded_dim, partial[r], partial[rows + r], partial + o,
            state[r], state[rows + r], state + o);
    }
  }
  if (!last) return;
  // One token: its heads are neighbours, in row order.
  const int64_t head = tile.kv_head_begin * plan.group + tile.group_begin;
  for (int64_t r = 0; r < rows; ++r) {
    StoreRow(plan, tile.token_begin, head + r, state[rows + r],
             state + 2 * rows + r * plan.padded_dim);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace lamina
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lamina {
HWY_EXPORT(AttendTile);
HWY_EXPORT(AttendChunk);
HWY_EXPORT(FoldChunk);
namespace attention_internal {
void AttendTile(const AttentionPlan& plan, const AttentionTile& tile) {
  HWY_DYNAMIC_DISPATCH(AttendTile)(plan, tile);
}
void AttendChunk(const AttentionPlan& plan, const AttentionTile& tile,
                 int64_t chunk, float* partial) {
  HWY_DYNAMIC_DISPATCH(AttendChunk)(plan, tile, chunk, partial);
}
void FoldChunk(const AttentionPlan& plan, const AttentionTile& tile,
               const float* partial, bool first, bool last, float* state) {
  HWY_DYNAMIC_DISPATCH(FoldChunk)(plan, tile, partial, first, last, state);
}
}  // namespace attention_internal
}  // namespace lamina
#endif  // HWY_ONCE
