#pragma once

// DecodeAttention on the tensor cores of a wave (mma.sync), for BF16 and F16 q
// with a cache of q's type or of F8E4M3Fn.
//
//   s_j = (q . K_j) * (scale * k_scale)          fp32 sums of exact products
//   p_j = e^(s_j - m),  l = sum p_j,  o = sum p_j V_j,  y = o / l * v_scale
//
// A tile is 16 positions from a multiple of 16; a context is cut into splits of
// whole tiles (SplitRule). A block has a KV head, one split, and up to 16 rows:
// the query heads of that KV head, of one token or of a few neighbouring ones.
// Each of its waves takes every kWaves-th tile of the split, with a running
// maximum, and copies its own tiles ahead: keys and values go through a ring of
// stages that is the wave's alone, so that the waves never wait for each other
// before the end. Then the waves' (m, l, o) are added in the order of the
// waves, and the splits' in the order of the splits: by the cluster, each of
// whose blocks takes a slice of the columns, or by FoldSplits.
//
// p_j goes to the tensor cores as the sum of two numbers of the 16-bit type, so
// that 16 bits of it (BF16) or 22 (F16) are kept. With a cache of F8E4M3Fn all
// products are of F16; q is scaled by a power of two, row by row, to fit.
//
// Bytes moved: K and V of a KV head once for each block of rows.

#include <bit>
#include <cmath>
#include <limits>
#include <type_traits>

#include "lamina/attention/decode_attention/tensor_attention_args.h"
#include "lamina/attention/kv_cache/kv_run.h"
#include "lamina/core/device/async.cuh"
#include "lamina/core/device/matrix.cuh"
#include "lamina/core/float16.h"
#include "lamina/core/octet.cuh"

namespace lamina::attention_internal::tensor {

constexpr int kWave = 32;
constexpr float kLog2E = 0x1.715476p+0f;

__device__ inline float MinusInfinity() {
  return -std::numeric_limits<float>::infinity();
}
// e^(m - base) with -Inf - -Inf = -Inf.
__device__ inline float WeightOf(float m, float base) {
  return gpu::ApproximateExp2((m - (base == MinusInfinity() ? 0.0f : base)) *
                              kLog2E);
}
__device__ inline float MaxOf(float a, float b) { return b > a ? b : a; }

// ---- Traits -----------------------------------------------------------------

template <class Query, class Cache, int kDimensions, int kBlockWaves,
          int kRingStages, bool kHold = true>
struct Traits {
  using T = Query;
  using C = Cache;
  static constexpr bool kFp8 = sizeof(C) == 1;
  using M = std::conditional_t<kFp8, F16, T>;  // of the products
  static constexpr int kDims = kDimensions;
  static constexpr int kWaves = kBlockWaves;
  static constexpr int kStages = kRingStages;
  static constexpr int kThreads = kWaves * kWave;
  static constexpr int kSteps = kDims / 16;  // of a dot product
  static constexpr int kRowBytes = kDims * static_cast<int>(sizeof(C));
  static constexpr int kQRowBytes = kDims * 2;
  static constexpr int kTileBytes = kTilePositions * kRowBytes;
  static constexpr int kStageBytes = 2 * kTileBytes;
  static constexpr int kRingBytes = kWaves * kStages * kStageBytes;
  static constexpr int kQBytes = kTensorRows * kQRowBytes;
  // Queries stay in registers; otherwise each tile loads them again.
  static constexpr bool kHoldQueries = kHold;
  // The waves' sums, rows kSumPitch floats apart, take the place of the rest.
  // NOTE: rows are eight banks apart.
  static constexpr int kSumPitch = kDims + 8;
  static constexpr int kSumBytes = kWaves * kTensorRows * kSumPitch * 4;
  static constexpr int kTileRegion = kRingBytes + kQBytes;
  static constexpr int kRegionBytes =
      kTileRegion > kSumBytes ? kTileRegion : kSumBytes;
};

// Behind the ring and q.
template <class S>
struct Shared {
  float q_scale[kTensorRows];
  float wave_m[S::kWaves][kTensorRows], wave_l[S::kWaves][kTensorRows];
};
// Behind it what the splits of a cluster send: m and l of each split and row,
// then the columns that this block adds up.
template <class S>
LAMINA_HD constexpr int SharedBytes(int cluster_blocks, int rows) {
  const int bytes = S::kRegionBytes + static_cast<int>(sizeof(Shared<S>));
  return cluster_blocks == 1
             ? bytes
             : bytes + 4 * rows * (2 * cluster_blocks + S::kDims);
}

// Byte of the 16-byte column `c` of row `r` in a tile of such rows: the eight
// rows that LoadMatrices reads at once lie in different banks.
template <int kBytes>
__device__ inline int TileOffset(int r, int c) {
  static_assert(kBytes >= 64, "rows of 32 values at least");
  const int swizzled = kBytes >= 128 ? c ^ (r & 7) : c ^ (r >> 1 & 3);
  return r * kBytes + swizzled * 16;
}

// ---- A block's place --------------------------------------------------------

struct Place {
  int64_t token;  // the first one
  int64_t sequence;
  int tokens;  // neighbours, at rising positions
  int kv_head;
  int first_row;  // of the group
  int group_rows;
  int rows;
  int split, splits;
  int32_t last;               // position of the first token
  int32_t begin, end;         // positions that any of the tokens attends to
  int tile, tile_end;         // of the split
  int first_tile, last_tile;  // of the context: some rows begin or end there
  bool works;                 // a block that leads its tokens

  __device__ int TokenOf(int row) const { return row / group_rows; }
};

struct TokenPlace {
  int32_t position;
  int64_t sequence;
};
// A token that is none continues nothing.
__device__ inline TokenPlace LoadToken(const TensorAttentionArgs& args,
                                       int64_t token) {
  const AttentionKernelArgs& a = args.attention;
  if (token < a.first_token || token >= args.last_token) return {-2, -1};
  return {a.positions[token], a.Sequence(token)};
}
// Whether a token can share the block of the one before it.
__device__ inline bool Continues(const AttentionKernelArgs& a,
                                 const TokenPlace& before,
                                 const TokenPlace& token) {
  return token.position == before.position + 1 &&
         token.sequence == before.sequence &&
         a.First(token.position) / kTilePositions ==
             a.First(before.position) / kTilePositions;
}

// The part of it that follows from the block's index.
__device__ inline Place PlaceOf(const TensorAttentionArgs& args) {
  const AttentionKernelArgs& a = args.attention;
  Place place;
  uint32_t rest = static_cast<uint32_t>(gpu::BlockIndex());
  const auto take = [&](const FastDivisor& divisor) {
    const uint32_t quotient = divisor.Quotient(rest);
    const uint32_t remainder = rest - quotient * divisor.divisor;
    rest = quotient;
    return static_cast<int>(remainder);
  };
  place.split = take(args.splits);
  place.first_row = take(args.parts) * args.group_rows;
  place.kv_head = take(args.heads);
  place.token = a.first_token + rest;
  const int left = a.group - place.first_row;
  place.group_rows = left < args.group_rows ? left : args.group_rows;
  return place;
}
// And the part that follows from the tokens.
__device__ inline void Complete(const TensorAttentionArgs& args, Place& place) {
  const AttentionKernelArgs& a = args.attention;
  TokenPlace token = LoadToken(args, place.token);
  place.last = token.position;
  place.sequence = token.sequence;
  place.tokens = 1;
  place.works = true;
  const int run = args.run_tokens;
  if (run > 1) {
    const TokenPlace before = LoadToken(args, place.token - 1);
    TokenPlace next = LoadToken(args, place.token + 1);
    place.works = place.last % run == 0 || !Continues(a, before, token);
    while (next.position % run != 0 && Continues(a, token, next)) {
      ++place.tokens;
      token = next;
      next = LoadToken(args, place.token + place.tokens);
    }
  }
  place.rows = place.tokens * place.group_rows;
  place.begin = a.First(place.last);
  place.end = place.last + place.tokens;
  place.first_tile = place.begin / kTilePositions;
  place.last_tile = place.last / kTilePositions;
  const int tiles = place.last_tile + 1 - place.first_tile;
  const int length = args.split.Length(tiles);
  place.splits = args.split.Count(tiles);  // NOTE: needed late
  place.tile = place.first_tile + place.split * length;
  place.tile_end = place.tile + length;
  if (place.tile_end > place.last_tile + 1) {
    place.tile_end = place.last_tile + 1;
  }
}

// ---- Copies -----------------------------------------------------------------

// 16 bytes of a key and a value, or zeros.
template <class S>
__device__ inline void CopyVectors(const KvCacheView& cache, int64_t offset,
                                   bool valid, char* to) {
  const int bytes = valid ? 16 : 0;
  gpu::CopyAsync16(to, static_cast<const char*>(cache.k) + offset, bytes);
  gpu::CopyAsync16(to + S::kTileBytes,
                   static_cast<const char*>(cache.v) + offset, bytes);
}

// One tile of keys and values, by a wave. What is not attended to, or lies
// behind head_dim, is 0.
template <class S>
__device__ inline void CopyTile(const TensorAttentionArgs& args,
                                const Place& place, int tile, char* stage) {
  using C = typename S::C;
  constexpr int kColumns = S::kRowBytes / 16;
  constexpr int kRowsAtOnce = kWave / kColumns;
  const KvCacheView& cache = args.attention.cache;
  const int lane = gpu::ThreadIndex() % kWave;
  const int column = lane % kColumns;
  const int lane_row = lane / kColumns;
  const bool has_column = column * 16 < cache.head_dim * int{sizeof(C)};
  const int origin = tile * kTilePositions;
  const KvRun run =
      FindRun(cache, place.sequence, place.kv_head, origin, kTilePositions);
  if (run.count == kTilePositions || origin + run.count >= place.end) {
    const int64_t step = kRowsAtOnce * cache.token_stride * int64_t{sizeof(C)};
    int64_t offset =
        (run.offset + lane_row * cache.token_stride) * int64_t{sizeof(C)} +
        column * 16;
#pragma unroll
    for (int first = 0; first < kTilePositions; first += kRowsAtOnce) {
      const int row = first + lane_row;
      const bool valid =
          has_column && origin + row >= place.begin && origin + row < place.end;
      // NOTE: of nothing, from an address that there is.
      CopyVectors<S>(cache, valid ? offset : 0, valid,
                     stage + TileOffset<S::kRowBytes>(row, column));
      offset += step;
    }
    return;
  }
  // Pages end in the tile.
#pragma unroll 1
  for (int row = lane_row; row < kTilePositions; row += kRowsAtOnce) {
    const int position = origin + row;
    const bool valid =
        has_column && position >= place.begin && position < place.end;
    int64_t offset = 0;
    if (valid) {
      offset =
          FindRun(cache, place.sequence, place.kv_head, position, 1).offset *
              int64_t{sizeof(C)} +
          column * 16;
    }
    CopyVectors<S>(cache, offset, valid,
                   stage + TileOffset<S::kRowBytes>(row, column));
  }
}

template <class T>
__device__ inline const T* QueryOf(const AttentionKernelArgs& a,
                                   const Place& place, int row) {
  const int token = place.TokenOf(row);
  const int head = place.kv_head * a.group + place.first_row + row -
                   token * place.group_rows;
  return static_cast<const T*>(a.q.data) +
         (place.token + token) * a.q.batch_stride +
         int64_t{head} * a.q.row_stride;
}

// q as it is, by all threads: their oldest copies.
template <class S>
__device__ inline void CopyQueries(const TensorAttentionArgs& args,
                                   const Place& place, char* q) {
  constexpr int kColumns = S::kQRowBytes / 16;
  const AttentionKernelArgs& a = args.attention;
  for (int i = gpu::ThreadIndex(); i < kTensorRows * kColumns;
       i += S::kThreads) {
    const int row = i / kColumns, column = i % kColumns;
    const bool valid = row < place.rows && column * 8 < a.q.cols;
    const auto* const from =
        valid ? QueryOf<typename S::T>(a, place, row) + column * 8
              : static_cast<const typename S::T*>(a.q.data);
    gpu::CopyAsync16(q + TileOffset<S::kQRowBytes>(row, column), from,
                     valid ? 16 : 0);
  }
}

// q as F16 times a power of two that makes the row's largest value 1 to 2. In
// 16 columns, LoadMatrices finds 4i, 4i + 1 where 2i, 2i + 1 were and 4i + 2,
// 4i + 3 where those were 8 columns on: as FP8 keys lie in their registers.
template <class S>
__device__ inline void ScaleQueries(const TensorAttentionArgs& args,
                                    const Place& place, char* q,
                                    Shared<S>& shared) {
  constexpr int kOctets = S::kDims / 8;
  static_assert(kWave % kOctets == 0 || kOctets % kWave == 0);
  const AttentionKernelArgs& a = args.attention;
  for (int i = gpu::ThreadIndex(); i < kTensorRows * kOctets;
       i += S::kThreads) {
    const int row = i / kOctets, octet = i % kOctets;
    gpu::Octet x = {};
    if (row < place.rows && octet * 8 < a.q.cols) {
      x = gpu::LoadOctet(QueryOf<typename S::T>(a, place, row) + octet * 8);
    }
    float largest = 0.0f;
#pragma unroll
    for (int k = 0; k < 8; ++k) largest = MaxOf(largest, std::fabs(x.v[k]));
#pragma unroll
    for (int mask = 1; mask < kOctets; mask *= 2) {
      largest = MaxOf(largest, gpu::ExchangeHalves<kWave>(largest, mask));
    }
    // 2^-e and 2^e, both normal numbers.
    int exponent = static_cast<int>(std::bit_cast<uint32_t>(largest) >> 23);
    exponent = exponent < 2 ? 2 : exponent > 252 ? 252 : exponent;
    const auto power = [](int biased) {
      return std::bit_cast<float>(static_cast<uint32_t>(biased) << 23);
    };
    const float down = power(254 - exponent);
    if (octet == 0) shared.q_scale[row] = power(exponent);
    const auto pair = [&](int k) {
      return gpu::PackF16(x.v[k] * down, x.v[k + 1] * down);
    };
    const int half = octet % 2 * 8;  // bytes
    const auto store = [&](int column, uint32_t low, uint32_t high) {
      uint32_t* const to = reinterpret_cast<uint32_t*>(
          q + TileOffset<S::kQRowBytes>(row, column) + half);
      to[0] = low;
      to[1] = high;
    };
    store(octet / 2 * 2, pair(0), pair(4));
    store(octet / 2 * 2 + 1, pair(2), pair(6));
  }
}

// ---- Fragments --------------------------------------------------------------

__device__ inline int LaneIndex() { return gpu::ThreadIndex() % kWave; }

// Row and 16-byte column that this lane names to LoadMatrices: matrices 0 and 1
// are eight rows apart (kRowsFirst) or one column apart.
struct MatrixLane {
  int row, column;
};
template <bool kRowsFirst>
__device__ inline MatrixLane MatrixLaneOf() {
  const int matrix = LaneIndex() / 8, row = LaneIndex() % 8;
  const int low = matrix % 2, high = matrix / 2;
  return {(kRowsFirst ? low : high) * 8 + row, kRowsFirst ? high : low};
}

template <class S>
__device__ inline void LoadQuery(const char* q, int step, uint32_t (&a)[4]) {
  const MatrixLane at = MatrixLaneOf<true>();
  gpu::LoadMatrices(
      a, q + TileOffset<S::kQRowBytes>(at.row, 2 * step + at.column));
}

__device__ inline uint32_t EvenCodes(uint32_t codes, int odd) {
  const uint32_t shifted = codes >> (8 * odd);
  return gpu::WidenToF16<F8E4M3Fn>(
      static_cast<uint16_t>((shifted & 0xffu) | (shifted >> 8 & 0xff00u)));
}

// The operands of all steps, or where they are.
template <class S>
struct Queries {
  const char* shared;
  uint32_t held[S::kHoldQueries ? S::kSteps : 1][4];

  __device__ inline void Hold() {
    if constexpr (S::kHoldQueries) {
#pragma unroll
      for (int step = 0; step < S::kSteps; ++step) {
        LoadQuery<S>(shared, step, held[step]);
      }
    }
  }
};

// Scores of 16 rows with 16 positions: s[n][...] of positions 8n to 8n + 7.
// Even and odd steps add up by themselves: a product waits for the one before.
template <class S>
__device__ inline void Score(const char* keys, const Queries<S>& queries,
                             float (&s)[2][4]) {
  float odd[2][4];
#pragma unroll
  for (int n = 0; n < 2; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) s[n][i] = odd[n][i] = 0.0f;
  }
  const MatrixLane at = MatrixLaneOf<S::kFp8>();
  // NOTE: several loads before the products that wait for them.
  constexpr int kLoads = 4;
  constexpr int kStepsALoad = S::kFp8 ? 2 : 1;
#pragma unroll
  for (int first = 0; first < S::kSteps; first += kLoads * kStepsALoad) {
    uint32_t b[kLoads][4];
    uint32_t q[kLoads * kStepsALoad][4];
#pragma unroll
    for (int i = 0; i < kLoads * kStepsALoad; ++i) {
      if (first + i >= S::kSteps) continue;
      if constexpr (S::kHoldQueries) {
#pragma unroll
        for (int k = 0; k < 4; ++k) q[i][k] = queries.held[first + i][k];
      } else {
        LoadQuery<S>(queries.shared, first + i, q[i]);
      }
    }
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      const int step = first + i * kStepsALoad;
      if (step >= S::kSteps) continue;
      const int column = S::kFp8 ? step : 2 * step;
      gpu::LoadMatrices(
          b[i], keys + TileOffset<S::kRowBytes>(at.row, column + at.column));
    }
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      const int step = first + i * kStepsALoad;
      if (step >= S::kSteps) continue;
      if constexpr (S::kFp8) {
#pragma unroll
        for (int k = 0; k < 4; ++k) {
          const uint32_t codes[2] = {
              gpu::WidenToF16<F8E4M3Fn>(static_cast<uint16_t>(b[i][k])),
              gpu::WidenToF16<F8E4M3Fn>(static_cast<uint16_t>(b[i][k] >> 16))};
          gpu::WaveMma<F16>(k < 2 ? s[k] : odd[k - 2],
                            q[i * kStepsALoad + k / 2], codes);
        }
      } else {
        gpu::WaveMma<typename S::M>(step % 2 == 0 ? s[0] : odd[0], q[i],
                                    {b[i][0], b[i][1]});
        gpu::WaveMma<typename S::M>(step % 2 == 0 ? s[1] : odd[1], q[i],
                                    {b[i][2], b[i][3]});
      }
    }
  }
#pragma unroll
  for (int n = 0; n < 2; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) s[n][i] += odd[n][i];
  }
}

// Values of 16 positions, columns 16 * block to 16 * block + 15, as two
// operands of eight columns each: see ColumnOf.
template <class S>
__device__ inline void LoadValues(const char* values, int block,
                                  uint32_t (&b)[2][2]) {
  const MatrixLane at = MatrixLaneOf<true>();
  if constexpr (S::kFp8) {
    // NOTE: half of these rows go unused: two blocks at once would take twice
    // the registers.
    uint32_t codes[4];
    gpu::LoadMatricesTransposed(
        codes, values + TileOffset<S::kRowBytes>(at.row, block));
#pragma unroll
    for (int n = 0; n < 2; ++n) {
#pragma unroll
      for (int i = 0; i < 2; ++i) b[n][i] = EvenCodes(codes[i], n);
    }
  } else {
    uint32_t r[4];
    gpu::LoadMatricesTransposed(
        r, values + TileOffset<S::kRowBytes>(at.row, 2 * block + at.column));
#pragma unroll
    for (int n = 0; n < 2; ++n) {
#pragma unroll
      for (int i = 0; i < 2; ++i) b[n][i] = r[2 * n + i];
    }
  }
}
// Column of o[tile][…][j] of this lane.
template <class S>
__device__ inline int ColumnOf(int tile, int j) {
  const int pair = 2 * (LaneIndex() % 4) + j;
  return S::kFp8 ? 16 * (tile / 2) + 2 * pair + tile % 2 : 8 * tile + pair;
}

// ---- A tile -----------------------------------------------------------------

// Of a lane: rows LaneIndex() / 4 and 8 more.
template <class S>
struct State {
  float m[2], l[2];
  float o[2 * S::kSteps][4];
};

template <class M>
__device__ inline uint32_t PackPair(float a, float b) {
  return std::is_same_v<M, BF16> ? gpu::PackBf16(a, b) : gpu::PackF16(a, b);
}
template <class M>
__device__ inline void UnpackPair(uint32_t pair, float& a, float& b) {
  if constexpr (std::is_same_v<M, BF16>) {
    a = std::bit_cast<float>(pair << 16);
    b = std::bit_cast<float>(pair & 0xffff0000u);
  } else {
    gpu::UnpackF16(pair, a, b);
  }
}

// The part of 16-bit values b of two neighbouring positions, the first at
// `position`, that lies in [begin, end).
__device__ inline uint32_t Within(uint32_t b, int position, int begin,
                                  int end) {
  const bool low = position >= begin && position < end;
  const bool high = position + 1 >= begin && position + 1 < end;
  return b & ((low ? 0xffffu : 0u) | (high ? 0xffff0000u : 0u));
}

// p as the sum of two numbers of the products' type.
struct Weights {
  uint32_t high[4], low[4];
};

// o += p * V.
template <class S>
__device__ inline void AddValues(const char* values, const Weights& p,
                                 State<S>& state) {
  using M = typename S::M;
  constexpr int kBlocks = 4;  // loads before the products that wait for them
#pragma unroll
  for (int first = 0; first < S::kSteps; first += kBlocks) {
    uint32_t b[kBlocks][2][2];
#pragma unroll
    for (int i = 0; i < kBlocks; ++i) LoadValues<S>(values, first + i, b[i]);
#pragma unroll
    for (int i = 0; i < 2 * kBlocks; ++i) {
      gpu::WaveMma<M>(state.o[2 * first + i], p.high, b[i / 2][i % 2]);
    }
#pragma unroll
    for (int i = 0; i < 2 * kBlocks; ++i) {
      gpu::WaveMma<M>(state.o[2 * first + i], p.low, b[i / 2][i % 2]);
    }
  }
}

// The same, token by token. NOTE: a token whose context ends (or begins) in the
// tile must not meet the values that others attend to there, not even with
// weight 0.
template <class S>
__device__ inline void AddValuesByToken(const TensorAttentionArgs& args,
                                        const Place& place, int tile,
                                        const char* values, const Weights& p,
                                        State<S>& state) {
  using M = typename S::M;
  const int row_token[2] = {place.TokenOf(LaneIndex() / 4),
                            place.TokenOf(LaneIndex() / 4 + 8)};
  const int position = tile * kTilePositions + 2 * (LaneIndex() % 4);
#pragma unroll
  for (int block = 0; block < S::kSteps; ++block) {
    uint32_t b[2][2];
    LoadValues<S>(values, block, b);
#pragma unroll 1
    for (int token = 0; token < place.tokens; ++token) {
      const int32_t last = place.last + token;
      const int32_t begin = args.attention.First(last);
#pragma unroll
      for (int n = 0; n < 2; ++n) {
        float(&o)[4] = state.o[2 * block + n];
        float sum[4] = {o[0], o[1], o[2], o[3]};
        const uint32_t own[2] = {
            Within(b[n][0], position, begin, last + 1),
            Within(b[n][1], position + 8, begin, last + 1)};
        gpu::WaveMma<M>(sum, p.high, own);
        gpu::WaveMma<M>(sum, p.low, own);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          if (row_token[i / 2] == token) o[i] = sum[i];
        }
      }
    }
  }
}

template <class S>
__device__ inline void AddTile(const TensorAttentionArgs& args,
                               const Place& place, int tile, const char* stage,
                               const Queries<S>& queries,
                               const float (&factor)[2], State<S>& state) {
  using M = typename S::M;
  float s[2][4];
  Score<S>(stage, queries, s);
#pragma unroll
  for (int n = 0; n < 2; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) s[n][i] *= factor[i / 2];
  }
  if (tile == place.first_tile || tile == place.last_tile) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int32_t last = place.last + place.TokenOf(LaneIndex() / 4 + 8 * h);
      const int32_t begin = args.attention.First(last);
#pragma unroll
      for (int n = 0; n < 2; ++n) {
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          const int position =
              tile * kTilePositions + 8 * n + 2 * (LaneIndex() % 4) + j;
          if (position < begin || position > last) {
            s[n][2 * h + j] = MinusInfinity();
          }
        }
      }
    }
  }
  Weights weights;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    float m = MaxOf(MaxOf(MaxOf(MinusInfinity(), s[0][2 * h]),
                          MaxOf(MinusInfinity(), s[0][2 * h + 1])),
                    MaxOf(MaxOf(MinusInfinity(), s[1][2 * h]),
                          MaxOf(MinusInfinity(), s[1][2 * h + 1])));
    m = MaxOf(m, gpu::ExchangeHalves<kWave>(m, 1));
    m = MaxOf(m, gpu::ExchangeHalves<kWave>(m, 2));
    m = MaxOf(state.m[h], m);
    const float rescale = WeightOf(state.m[h], m);
    state.m[h] = m;
    float sum = 0.0f;
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      const float p0 = WeightOf(s[n][2 * h], m);
      const float p1 = WeightOf(s[n][2 * h + 1], m);
      sum += p0 + p1;
      const uint32_t pair = PackPair<M>(p0, p1);
      float rounded0, rounded1;
      UnpackPair<M>(pair, rounded0, rounded1);
      weights.high[2 * n + h] = pair;
      weights.low[2 * n + h] = PackPair<M>(p0 - rounded0, p1 - rounded1);
    }
    state.l[h] = std::fma(state.l[h], rescale, sum);
#pragma unroll
    for (int t = 0; t < 2 * S::kSteps; ++t) {
      state.o[t][2 * h] *= rescale;
      state.o[t][2 * h + 1] *= rescale;
    }
  }
  const char* const values = stage + S::kTileBytes;
  if (place.tokens > 1 &&
      (tile == place.last_tile || tile == place.first_tile)) {
    AddValuesByToken<S>(args, place, tile, values, weights, state);
  } else {
    AddValues<S>(values, weights, state);
  }
}

// ---- Sums of waves and splits -----------------------------------------------

struct alignas(8) Pair {
  float first, second;
};

// Leaves (m, l, o) of this wave where the others find them.
template <class S>
__device__ inline void ShareState(const Place& place, Shared<S>& shared,
                                  float* sums, const State<S>& state) {
  const int wave = gpu::ThreadIndex() / kWave;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    float l = state.l[h];
    l += gpu::ExchangeHalves<kWave>(l, 1);
    l += gpu::ExchangeHalves<kWave>(l, 2);
    const int row = LaneIndex() / 4 + 8 * h;
    if (row >= place.rows) continue;
    if (LaneIndex() % 4 == 0) {
      shared.wave_m[wave][row] = state.m[h];
      shared.wave_l[wave][row] = l;
    }
    float* const to = sums + (wave * place.rows + row) * S::kSumPitch;
#pragma unroll
    for (int t = 0; t < 2 * S::kSteps; ++t) {
      const float first = state.o[t][2 * h], second = state.o[t][2 * h + 1];
      if constexpr (S::kFp8) {
        to[ColumnOf<S>(t, 0)] = first;
        to[ColumnOf<S>(t, 1)] = second;
      } else {
        *reinterpret_cast<Pair*>(to + ColumnOf<S>(t, 0)) = {first, second};
      }
    }
  }
}

// m, l and o of the block, of a row and column.
struct BlockSum {
  float m, l, o;
};
template <class S>
__device__ inline BlockSum SumOfWaves(const Place& place,
                                      const Shared<S>& shared,
                                      const float* sums, int row, int column) {
  float m[S::kWaves];
  BlockSum sum = {MinusInfinity(), 0.0f, 0.0f};
#pragma unroll
  for (int w = 0; w < S::kWaves; ++w) {
    m[w] = shared.wave_m[w][row];
    sum.m = MaxOf(sum.m, m[w]);
  }
#pragma unroll
  for (int w = 0; w < S::kWaves; ++w) {
    const float weight = WeightOf(m[w], sum.m);
    sum.l = std::fma(shared.wave_l[w][row], weight, sum.l);
    sum.o = std::fma(sums[(w * place.rows + row) * S::kSumPitch + column],
                     weight, sum.o);
  }
  return sum;
}

// y of a row and column from the splits' m, l and o, which lie `pitch` and
// `o_pitch` floats apart. kMost: splits at most, 0 for any number.
template <int kMost>
__device__ inline float SumOfSplits(const float* m, const float* l, int pitch,
                                    const float* o, int o_pitch, int splits) {
  float max = MinusInfinity(), l_sum = 0.0f, o_sum = 0.0f;
  const auto add = [&](float m_i, float l_i, float o_i) {
    const float weight = WeightOf(m_i, max);
    l_sum = std::fma(l_i, weight, l_sum);
    o_sum = std::fma(o_i, weight, o_sum);
  };
  if constexpr (kMost > 0) {
    // NOTE: loads that wait for nothing.
    float all_m[kMost], all_l[kMost], all_o[kMost];
#pragma unroll
    for (int i = 0; i < kMost; ++i) {
      const bool exists = i < splits;
      all_m[i] = exists ? m[i * pitch] : MinusInfinity();
      all_l[i] = exists ? l[i * pitch] : 0.0f;
      all_o[i] = exists ? o[i * o_pitch] : 0.0f;
      max = MaxOf(max, all_m[i]);
    }
#pragma unroll
    for (int i = 0; i < kMost; ++i) add(all_m[i], all_l[i], all_o[i]);
  } else {
#pragma unroll 8
    for (int i = 0; i < splits; ++i) max = MaxOf(max, m[i * pitch]);
#pragma unroll 8
    for (int i = 0; i < splits; ++i) {
      add(m[i * pitch], l[i * pitch], o[i * o_pitch]);
    }
  }
  return gpu::Divide(o_sum, l_sum);
}

template <class T>
__device__ inline void StoreValue(const AttentionKernelArgs& a, int64_t token,
                                  int head, int column, float value) {
  const float v_scale = a.cache.v_scale == nullptr ? 1.0f : *a.cache.v_scale;
  static_cast<T*>(a.y.data)[token * a.y.batch_stride +
                            int64_t{head} * a.y.row_stride + column] =
      FromFloat<T>(value * v_scale);
}
template <class T>
__device__ inline void StoreRow(const AttentionKernelArgs& a,
                                const Place& place, int row, int column,
                                float value) {
  if (column >= a.q.cols) return;
  const int token = place.TokenOf(row);
  StoreValue<T>(a, place.token + token,
                place.kv_head * a.group + place.first_row + row -
                    token * place.group_rows,
                column, value);
}

// The cluster: each block sends each of the others its slice of the columns.
template <class S>
__device__ inline void CombineInCluster(const TensorAttentionArgs& args,
                                        const Place& place,
                                        const Shared<S>& shared,
                                        const float* sums, float* received) {
  const int shift = args.slice_shift;
  const int slice = 1 << shift;
  const int rows = place.rows;
  float* const split_m = received;
  float* const split_l = split_m + args.cluster_blocks * rows;
  float* const split_o = split_l + args.cluster_blocks * rows;
  gpu::ClusterWait();  // for all blocks to have begun
  if (place.split < place.splits) {
    for (int i = gpu::ThreadIndex(); i < rows * S::kDims; i += S::kThreads) {
      const int row = i / S::kDims, column = i % S::kDims;
      const int to = column >> shift;
      const int at = place.split * rows + row;
      const BlockSum sum = SumOfWaves<S>(place, shared, sums, row, column);
      gpu::StoreShared(split_o + at * slice + column - to * slice, to, sum.o);
      if (column == to * slice) {
        gpu::StoreShared(split_m + at, to, sum.m);
        gpu::StoreShared(split_l + at, to, sum.l);
      }
    }
  }
  gpu::ClusterArrive();
  gpu::ClusterWait();
  for (int i = gpu::ThreadIndex(); i < rows * slice; i += S::kThreads) {
    const int row = i >> shift, column = i - row * slice;
    StoreRow<typename S::T>(
        args.attention, place, row, place.split * slice + column,
        SumOfSplits<kMaxSplitCluster>(split_m + row, split_l + row, rows,
                                      split_o + i, rows * slice, place.splits));
  }
}

__device__ inline float* PartialOf(const TensorAttentionArgs& args,
                                   int64_t token, int head) {
  const AttentionKernelArgs& a = args.attention;
  return a.partials + ((token - a.first_token) * a.q.rows + head) *
                          args.splits.divisor * SplitSize(a.q.cols);
}
template <class S>
__device__ inline void StorePartial(const TensorAttentionArgs& args,
                                    const Place& place, const Shared<S>& shared,
                                    const float* sums) {
  const AttentionKernelArgs& a = args.attention;
  for (int i = gpu::ThreadIndex(); i < place.rows * S::kDims;
       i += S::kThreads) {
    const int row = i / S::kDims, column = i % S::kDims;
    if (column >= a.q.cols) continue;
    const int token = place.TokenOf(row);
    float* const to = PartialOf(args, place.token + token,
                                place.kv_head * a.group + place.first_row +
                                    row - token * place.group_rows) +
                      place.split * SplitSize(a.q.cols);
    const BlockSum sum = SumOfWaves<S>(place, shared, sums, row, column);
    to[2 + column] = sum.o;
    if (column == 0) {
      to[0] = sum.m;
      to[1] = sum.l;
    }
  }
}

// ---- A block ----------------------------------------------------------------

template <class S>
__device__ inline void AttendTiles(const TensorAttentionArgs& args,
                                   const Place& place, char* ring, char* q,
                                   Shared<S>& shared, State<S>& state) {
  const int wave = gpu::ThreadIndex() / kWave;
  char* const own = ring + wave * S::kStages * S::kStageBytes;
  // NOTE: a group of its own, so that no wave waits for the others' tiles.
  if constexpr (!S::kFp8) CopyQueries<S>(args, place, q);
  gpu::CommitAsyncCopies();
  int next = place.tile + wave;  // to copy
#pragma unroll 1
  for (int stage = 0; stage < S::kStages; ++stage) {
    if (next < place.tile_end) {
      CopyTile<S>(args, place, next, own + stage * S::kStageBytes);
    }
    next += S::kWaves;
    gpu::CommitAsyncCopies();
  }
  if constexpr (S::kFp8) ScaleQueries<S>(args, place, q, shared);
  gpu::WaitAsyncCopies<S::kStages>();
  gpu::BlockSync();
  Queries<S> queries;
  queries.shared = q;
  queries.Hold();
  const KvCacheView& cache = args.attention.cache;
  const float factor =
      args.attention.scale * (cache.k_scale == nullptr ? 1.0f : *cache.k_scale);
  float factors[2] = {factor, factor};
  if constexpr (S::kFp8) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      factors[h] *= shared.q_scale[LaneIndex() / 4 + 8 * h];
    }
  }

  int stage = 0;
  for (int tile = place.tile + wave; tile < place.tile_end; tile += S::kWaves) {
    gpu::WaitAsyncCopies<S::kStages - 1>();
    gpu::WaveSync();
    char* const at = own + stage * S::kStageBytes;
    AddTile<S>(args, place, tile, at, queries, factors, state);
    gpu::WaveSync();
    if (next < place.tile_end) CopyTile<S>(args, place, next, at);
    next += S::kWaves;
    gpu::CommitAsyncCopies();
    stage = stage + 1 == S::kStages ? 0 : stage + 1;
  }
  gpu::WaitAsyncCopies();
}

template <class S>
__device__ inline void Attend(const TensorAttentionArgs& args) {
  Place place = PlaceOf(args);
  gpu::WaitForPredecessor();
  Complete(args, place);
  if (!place.works) return;  // the whole cluster
  const bool clustered = args.cluster_blocks > 1;
  if (clustered) gpu::ClusterArriveRelaxed();
  char* const ring = gpu::SharedMemory<char>();
  char* const q = ring + S::kRingBytes;
  Shared<S>& shared = *reinterpret_cast<Shared<S>*>(ring + S::kRegionBytes);
  float* const received = reinterpret_cast<float*>(&shared + 1);
  float* const sums = reinterpret_cast<float*>(ring);
  if (place.split < place.splits) {
    State<S> state;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      state.m[h] = MinusInfinity();
      state.l[h] = 0.0f;
    }
#pragma unroll
    for (int t = 0; t < 2 * S::kSteps; ++t) {
#pragma unroll
      for (int i = 0; i < 4; ++i) state.o[t][i] = 0.0f;
    }
    AttendTiles<S>(args, place, ring, q, shared, state);
    gpu::BlockSync();  // the rings are read
    ShareState<S>(place, shared, sums, state);
    gpu::BlockSync();
  } else if (!clustered) {
    return;
  }
  if (clustered) {
    CombineInCluster<S>(args, place, shared, sums, received);
  } else if (args.splits.divisor > 1) {
    StorePartial<S>(args, place, shared, sums);
  } else {
    for (int i = gpu::ThreadIndex(); i < place.rows * S::kDims;
         i += S::kThreads) {
      const int row = i / S::kDims, column = i % S::kDims;
      const BlockSum sum = SumOfWaves<S>(place, shared, sums, row, column);
      StoreRow<typename S::T>(args.attention, place, row, column,
                              gpu::Divide(sum.o, sum.l));
    }
  }
}

// Splits whose loads all start at once.
constexpr int kFewSplits = 16;

// A token's head, a block each.
template <class T>
__device__ inline void FoldSplits(const TensorAttentionArgs& args) {
  const AttentionKernelArgs& a = args.attention;
  const int heads = static_cast<int>(a.q.rows);
  const int64_t token = a.first_token + gpu::BlockIndex() / heads;
  const int head = static_cast<int>(gpu::BlockIndex() % heads);
  const int32_t last = a.positions[token];
  const int splits = args.split.Count(last / kTilePositions + 1 -
                                      a.First(last) / kTilePositions);
  const float* const partial = PartialOf(args, token, head);
  const int size = static_cast<int>(SplitSize(a.q.cols));
  const bool few = args.splits.divisor <= kFewSplits;
  for (int column = gpu::ThreadIndex(); column < a.q.cols;
       column += gpu::BlockThreads()) {
    StoreValue<T>(
        a, token, head, column,
        few ? SumOfSplits<kFewSplits>(partial, partial + 1, size,
                                      partial + 2 + column, size, splits)
            : SumOfSplits<0>(partial, partial + 1, size, partial + 2 + column,
                             size, splits));
  }
}

}  // namespace lamina::attention_internal::tensor
