#pragma once

// A wave adds a tile of 16 positions to its rows' sums: the arithmetic of
// tensor_attention.cuh.
//
// The tensor cores multiply keys by queries, s^T = K q^T, and values by
// weights, o^T = V^T p^T: positions and columns, of which there are many, take
// the 16 rows of a product, and eight query rows its 8 columns. A lane so has,
// of both results, query rows 2 * (lane % 4) and the next one.

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "lamina/attention/decode_attention/tensor_place.cuh"
#include "lamina/core/device/matrix.cuh"
#include "lamina/core/float16.h"
#include "lamina/core/octet.cuh"

namespace lamina::attention_internal::tensor {

constexpr int kWave = 32;
constexpr float kLog2E = 0x1.715476p+0f;

__device__ inline int LaneIndex() { return gpu::ThreadIndex() % kWave; }
__device__ inline float MinusInfinity() {
  return -std::numeric_limits<float>::infinity();
}
// e^(m - base) with -Inf - -Inf = -Inf.
__device__ inline float WeightOf(float m, float base) {
  return gpu::ApproximateExp2((m - (base == MinusInfinity() ? 0.0f : base)) *
                              kLog2E);
}
// The larger one, or that which is no NaN.
__device__ inline float MaxOf(float a, float b) { return std::fmax(a, b); }

// ---- Traits -----------------------------------------------------------------

template <class Query, class Cache, int kDimensions, int kMostRows>
struct Traits {
  using T = Query;
  using C = Cache;
  static constexpr bool kFp8 = sizeof(C) == 1;
  using M = std::conditional_t<kFp8, F16, T>;  // of the products
  static constexpr int kDims = kDimensions;
  static constexpr int kRows = kMostRows;
  static constexpr int kGroups = kRows / 8;  // of rows
  static constexpr int kThreads = kTensorWaves * kWave;
  static constexpr int kSteps = kDims / 16;  // of a dot product
  static constexpr int kRowBytes = kDims * static_cast<int>(sizeof(C));
  static constexpr int kTileBytes = kTilePositions * kRowBytes;
  static constexpr int kStageBytes = 2 * kTileBytes;
  static constexpr int kSumPitch = TensorSumPitch(kDims);
};

// What the 16-byte columns of row r are exchanged by: the eight rows that
// LoadMatrices reads at once lie in different banks.
template <int kBytes>
__device__ constexpr int Swizzle(int r) {
  static_assert(kBytes >= 64, "rows of 64 bytes at least");
  return kBytes >= 128 ? r & 7 : r >> 1 & 3;
}
// Byte of the 16-byte column `c` of row `r` in a tile of such rows.
template <int kBytes>
__device__ constexpr int TileOffset(int r, int c) {
  return r * kBytes + (c ^ Swizzle<kBytes>(r)) * 16;
}

// Row and 16-byte column that this lane names to LoadMatrices: matrices 0 and 1
// are eight rows apart (kRowsFirst) or one column apart.
template <class S, bool kRowsFirst>
__device__ inline int MatrixOffset() {
  const int matrix = LaneIndex() / 8, row = LaneIndex() % 8;
  const int low = matrix % 2, high = matrix / 2;
  return TileOffset<S::kRowBytes>((kRowsFirst ? low : high) * 8 + row,
                                  kRowsFirst ? high : low);
}
// The same, an even number of columns further.
__device__ inline int ColumnsOn(int offset, int columns) {
  return offset ^ (columns * 16);
}

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

// ---- Queries ----------------------------------------------------------------

// The right operands of all steps. `factor`: of this lane's rows' scores.
//
// FP8 keys are multiplied as F16, and so is q, times a power of two that makes
// the row's largest value 1 to 2. In 16 columns, keys of FP8 lie so that
// products see 4i, 4i + 1 at 2i, 2i + 1 and 4i + 2, 4i + 3 eight columns on.
template <class S>
struct Queries {
  uint32_t b[S::kSteps][S::kGroups][2];
  float factor[S::kGroups][2];

  __device__ inline void Load(const AttentionKernelArgs& a,
                              const Place& place) {
#pragma unroll
    for (int g = 0; g < S::kGroups; ++g) {
      const int row = 8 * g + LaneIndex() / 4;
      const bool valid = row < place.rows;
      const auto* const q =
          valid ? QueryOf<typename S::T>(a, place, row) : nullptr;
      const int cols = valid ? static_cast<int>(a.q.cols) : 0;
      if constexpr (S::kFp8) {
        LoadScaled(q, cols, g);
      } else {
#pragma unroll
        for (int step = 0; step < S::kSteps; ++step) {
#pragma unroll
          for (int i = 0; i < 2; ++i) {
            const int column = 16 * step + 8 * i + 2 * (LaneIndex() % 4);
            b[step][g][i] = column < cols
                                ? *reinterpret_cast<const uint32_t*>(q + column)
                                : 0;
          }
        }
        factor[g][0] = factor[g][1] = 1.0f;
      }
    }
  }
  // Once scales may be read.
  __device__ inline void Scale(const AttentionKernelArgs& a) {
    const float scale =
        a.scale * (a.cache.k_scale == nullptr ? 1.0f : *a.cache.k_scale);
#pragma unroll
    for (int g = 0; g < S::kGroups; ++g) {
      factor[g][0] *= scale;
      factor[g][1] *= scale;
    }
  }

 private:
  __device__ inline void LoadScaled(const typename S::T* q, int cols, int g) {
    float x[S::kSteps][4];
    gpu::Bits64 bits[S::kSteps];
#pragma unroll
    for (int step = 0; step < S::kSteps; ++step) {
      const int column = 16 * step + 4 * (LaneIndex() % 4);
      bits[step] = column < cols ? gpu::Load64(q + column) : gpu::Bits64{};
    }
    float largest = 0.0f;
#pragma unroll
    for (int step = 0; step < S::kSteps; ++step) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        UnpackPair<typename S::T>(bits[step].word[i], x[step][2 * i],
                                  x[step][2 * i + 1]);
        largest = MaxOf(largest, std::fabs(x[step][2 * i]));
        largest = MaxOf(largest, std::fabs(x[step][2 * i + 1]));
      }
    }
    largest = MaxOf(largest, gpu::ExchangeHalves<kWave>(largest, 1));
    largest = MaxOf(largest, gpu::ExchangeHalves<kWave>(largest, 2));
    // 2^-e and 2^e, both normal numbers.
    uint32_t exponent = std::bit_cast<uint32_t>(largest) >> 23;
    exponent = exponent < 2 ? 2 : exponent > 252 ? 252 : exponent;
    const auto power = [](uint32_t biased) {
      return std::bit_cast<float>(biased << 23);
    };
    const float down = power(254 - exponent);
#pragma unroll
    for (int step = 0; step < S::kSteps; ++step) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        b[step][g][i] =
            gpu::PackF16(x[step][2 * i] * down, x[step][2 * i + 1] * down);
      }
    }
    // From the lanes of row lane / 4 to those of rows 2 * (lane % 4), ….
    const uint32_t exponents = gpu::TransposeMatrix(exponent | exponent << 16);
    factor[g][0] = power(exponents & 0xffffu);
    factor[g][1] = power(exponents >> 16);
  }
};

// ---- Scores -----------------------------------------------------------------

// The left operand of a step: 16 keys, 16 columns.
template <class S, int kLoads>
__device__ inline void LoadKeys(const char* keys, int first,
                                uint32_t (&a)[kLoads][4]) {
  const int offset = MatrixOffset<S, true>();
  if constexpr (S::kFp8) {
    static_assert(kLoads % 2 == 0, "two steps a load");
    uint32_t codes[kLoads / 2][4];
#pragma unroll
    for (int i = 0; i < kLoads; i += 2) {
      gpu::LoadMatrices(codes[i / 2], keys + ColumnsOn(offset, first + i));
    }
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        gpu::WidenFourE4M3(codes[i / 2][2 * (i % 2) + h], a[i][h], a[i][2 + h]);
      }
    }
  } else {
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      gpu::LoadMatrices(a[i], keys + ColumnsOn(offset, 2 * (first + i)));
    }
  }
}

// s[g][2 * h + j]: of position lane / 4 + 8 * h and row 8 * g + 2 * (lane % 4)
// + j. Steps add up in turns: a product waits for the one before.
template <class S>
__device__ inline void Score(const char* keys, const Queries<S>& queries,
                             float (&s)[S::kGroups][4]) {
  constexpr int kTurns = 4, kLoads = 4;
  static_assert(S::kSteps % kLoads == 0 && kLoads % kTurns == 0);
  float sums[kTurns][S::kGroups][4] = {};
#pragma unroll
  for (int first = 0; first < S::kSteps; first += kLoads) {
    uint32_t a[kLoads][4];
    LoadKeys<S>(keys, first, a);
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
#pragma unroll
      for (int g = 0; g < S::kGroups; ++g) {
        gpu::WaveMma<typename S::M>(sums[i % kTurns][g], a[i],
                                    queries.b[first + i][g]);
      }
    }
  }
#pragma unroll
  for (int g = 0; g < S::kGroups; ++g) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      s[g][i] =
          ((sums[0][g][i] + sums[1][g][i]) + (sums[2][g][i] + sums[3][g][i])) *
          queries.factor[g][i % 2];
    }
  }
}

// ---- Sums -------------------------------------------------------------------

// Of rows 8 * g + 2 * (lane % 4) + j: m and l, this lane's part of it, [g][j];
// o[block][g][2 * h + j] of column ColumnOf(block, h).
template <class S>
struct State {
  float m[S::kGroups][2], l[S::kGroups][2];
  float o[S::kSteps][S::kGroups][4];

  __device__ inline void Clear() {
#pragma unroll
    for (int g = 0; g < S::kGroups; ++g) {
      m[g][0] = m[g][1] = MinusInfinity();
      l[g][0] = l[g][1] = 0.0f;
#pragma unroll
      for (int block = 0; block < S::kSteps; ++block) {
#pragma unroll
        for (int i = 0; i < 4; ++i) o[block][g][i] = 0.0f;
      }
    }
  }
};
template <class S>
__device__ inline int ColumnOf(int block, int h) {
  const int row = LaneIndex() / 4;
  return 16 * block + (S::kFp8 ? 2 * row + h : row + 8 * h);
}

// Weights as the sum of two numbers of the products' type, as right operands.
template <class S>
struct Weights {
  uint32_t high[S::kGroups][2], low[S::kGroups][2];
};

// Scores become weights; m, l and o follow the largest score.
template <class S>
__device__ inline void Weigh(const float (&s)[S::kGroups][4], State<S>& state,
                             Weights<S>& weights) {
  using M = typename S::M;
#pragma unroll
  for (int g = 0; g < S::kGroups; ++g) {
    float m[2], rescale[2];
#pragma unroll
    for (int j = 0; j < 2; ++j) m[j] = MaxOf(s[g][j], s[g][2 + j]);
#pragma unroll
    for (int mask = 4; mask < kWave; mask *= 2) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        m[j] = MaxOf(m[j], gpu::ExchangeHalves<kWave>(m[j], mask));
      }
    }
    float p[4];
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      m[j] = MaxOf(state.m[g][j], m[j]);
      rescale[j] = WeightOf(state.m[g][j], m[j]);
      state.m[g][j] = m[j];
      p[j] = WeightOf(s[g][j], m[j]);
      p[2 + j] = WeightOf(s[g][2 + j], m[j]);
      state.l[g][j] = std::fma(state.l[g][j], rescale[j], p[j] + p[2 + j]);
    }
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const uint32_t pair = PackPair<M>(p[2 * h], p[2 * h + 1]);
      float first, second;
      UnpackPair<M>(pair, first, second);
      weights.high[g][h] = gpu::TransposeMatrix(pair);
      weights.low[g][h] = gpu::TransposeMatrix(
          PackPair<M>(p[2 * h] - first, p[2 * h + 1] - second));
    }
#pragma unroll
    for (int block = 0; block < S::kSteps; ++block) {
#pragma unroll
      for (int i = 0; i < 4; ++i) state.o[block][g][i] *= rescale[i % 2];
    }
  }
}

// The left operands of 16 columns each, from column 16 * first on.
template <class S, int kLoads>
__device__ inline void LoadValues(const char* values, int first,
                                  uint32_t (&a)[kLoads][4]) {
  const int offset = MatrixOffset<S, S::kFp8>();
  if constexpr (S::kFp8) {
    static_assert(kLoads % 2 == 0, "two blocks a load");
#pragma unroll
    for (int i = 0; i < kLoads; i += 2) {
      uint32_t codes[4];  // of two columns and two positions each
      gpu::LoadMatricesTransposed(codes, values + ColumnsOn(offset, first + i));
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const int h = k % 2;
        gpu::WidenFourE4M3(gpu::SwapMiddleBytes(codes[k]), a[i + k / 2][2 * h],
                           a[i + k / 2][2 * h + 1]);
      }
    }
  } else {
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      gpu::LoadMatricesTransposed(a[i],
                                  values + ColumnsOn(offset, 2 * (first + i)));
    }
  }
}

// o += p * V.
template <class S>
__device__ inline void AddValues(const char* values, const Weights<S>& p,
                                 State<S>& state) {
  using M = typename S::M;
  constexpr int kLoads = 4;  // before the products that wait for them
#pragma unroll
  for (int first = 0; first < S::kSteps; first += kLoads) {
    uint32_t a[kLoads][4];
    LoadValues<S>(values, first, a);
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
#pragma unroll
      for (int g = 0; g < S::kGroups; ++g) {
        gpu::WaveMma<M>(state.o[first + i][g], a[i], p.high[g]);
      }
    }
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
#pragma unroll
      for (int g = 0; g < S::kGroups; ++g) {
        gpu::WaveMma<M>(state.o[first + i][g], a[i], p.low[g]);
      }
    }
  }
}

// The part of 16-bit values of two neighbouring positions, the first at
// `position`, that lies in [begin, end).
__device__ inline uint32_t Within(uint32_t pair, int position, int begin,
                                  int end) {
  const bool low = position >= begin && position < end;
  const bool high = position + 1 >= begin && position + 1 < end;
  return pair & ((low ? 0xffffu : 0u) | (high ? 0xffff0000u : 0u));
}

// The same, token by token. NOTE: a token whose context ends (or begins) in the
// tile must not meet the values that others attend to there, not even with
// weight 0.
template <class S>
__device__ inline void AddValuesByToken(const TensorAttentionArgs& args,
                                        const Place& place, int tile,
                                        const char* values, const Weights<S>& p,
                                        State<S>& state) {
  using M = typename S::M;
  constexpr int kLoads = 2;
  const int position = tile * kTilePositions + 2 * (LaneIndex() % 4);
  int token_of[S::kGroups][2];
#pragma unroll
  for (int g = 0; g < S::kGroups; ++g) {
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      token_of[g][j] = place.TokenOf(8 * g + 2 * (LaneIndex() % 4) + j);
    }
  }
#pragma unroll
  for (int first = 0; first < S::kSteps; first += kLoads) {
    uint32_t a[kLoads][4];
    LoadValues<S>(values, first, a);
#pragma unroll 1
    for (int token = 0; token < place.tokens; ++token) {
      const int32_t last = place.last + token;
      const int32_t begin = args.attention.First(last);
#pragma unroll
      for (int i = 0; i < kLoads; ++i) {
        uint32_t own[4];
#pragma unroll
        for (int k = 0; k < 4; ++k) {
          own[k] = Within(a[i][k], position + k / 2 * 8, begin, last + 1);
        }
#pragma unroll
        for (int g = 0; g < S::kGroups; ++g) {
          float(&o)[4] = state.o[first + i][g];
          float sum[4] = {o[0], o[1], o[2], o[3]};
          gpu::WaveMma<M>(sum, own, p.high[g]);
          gpu::WaveMma<M>(sum, own, p.low[g]);
#pragma unroll
          for (int k = 0; k < 4; ++k) {
            if (token_of[g][k % 2] == token) o[k] = sum[k];
          }
        }
      }
    }
  }
}

// Scores of positions that a row does not attend to become -Inf.
template <class S>
__device__ inline void Mask(const TensorAttentionArgs& args, const Place& place,
                            int tile, float (&s)[S::kGroups][4]) {
#pragma unroll
  for (int g = 0; g < S::kGroups; ++g) {
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      int32_t last = place.last;
      if constexpr (S::kGroups > 1) {
        last += place.TokenOf(8 * g + 2 * (LaneIndex() % 4) + j);
      }
      const int32_t begin = args.attention.First(last);
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int position = tile * kTilePositions + LaneIndex() / 4 + 8 * h;
        if (position < begin || position > last) {
          s[g][2 * h + j] = MinusInfinity();
        }
      }
    }
  }
}

template <class S>
__device__ inline void AddTile(const TensorAttentionArgs& args,
                               const Place& place, int tile, const char* stage,
                               const Queries<S>& queries, State<S>& state) {
  float s[S::kGroups][4];
  Score<S>(stage, queries, s);
  const bool edge = tile == place.first_tile || tile == place.last_tile;
  if (edge) Mask<S>(args, place, tile, s);
  Weights<S> weights;
  Weigh<S>(s, state, weights);
  const char* const values = stage + S::kTileBytes;
  // NOTE: few rows are those of one token.
  if constexpr (S::kGroups > 1) {
    if (edge && place.tokens > 1) {
      return AddValuesByToken<S>(args, place, tile, values, weights, state);
    }
  }
  AddValues<S>(values, weights, state);
}

}  // namespace lamina::attention_internal::tensor
