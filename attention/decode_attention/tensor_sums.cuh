#pragma once

// How the sums of waves and of splits are added, in their order.

#include <bit>
#include <cstdint>

#include "lamina/attention/decode_attention/tensor_tile.cuh"
#include "lamina/core/device/async.cuh"

namespace lamina::attention_internal::tensor {

struct alignas(8) Pair {
  float first, second;
};
struct alignas(16) Four {
  float v[4];
};

// Where a block's sums are.
struct Sums {
  float* o;       // [wave][row][column], rows kSumPitch apart
  float* wave_m;  // [row][wave]
  float* wave_l;
  // What splits send: m and l, [split][row], and o, [split][row][column of a
  // slice].
  Pair* split_ml;
  float* split_o;
  gpu::Phaser* phaser;
};

// ---- Waves ------------------------------------------------------------------

// Leaves (m, l, o) of this wave where the others find them.
template <class S>
__device__ inline void ShareState(const Place& place, const Sums& sums,
                                  const State<S>& state) {
  const int wave = gpu::ThreadIndex() / kWave;
#pragma unroll
  for (int g = 0; g < S::kGroups; ++g) {
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      float l = state.l[g][j];
#pragma unroll
      for (int mask = 4; mask < kWave; mask *= 2) {
        l += gpu::ExchangeHalves<kWave>(l, mask);
      }
      const int row = 8 * g + 2 * (LaneIndex() % 4) + j;
      if (row >= place.rows) continue;
      if (LaneIndex() / 4 == 0) {
        sums.wave_m[row * kTensorWaves + wave] = state.m[g][j];
        sums.wave_l[row * kTensorWaves + wave] = l;
      }
      float* const to = sums.o + (wave * place.rows + row) * S::kSumPitch;
#pragma unroll
      for (int block = 0; block < S::kSteps; ++block) {
        const float first = state.o[block][g][j];
        const float second = state.o[block][g][2 + j];
        if constexpr (S::kFp8) {
          *reinterpret_cast<Pair*>(to + ColumnOf<S>(block, 0)) = {first,
                                                                  second};
        } else {
          to[ColumnOf<S>(block, 0)] = first;
          to[ColumnOf<S>(block, 1)] = second;
        }
      }
    }
  }
}

// m, l and o of a split, of a row and four columns.
struct SplitSum {
  float m, l;
  Four o;
};
template <class S>
__device__ inline SplitSum SumOfWaves(const Place& place, const Sums& sums,
                                      int row, int column) {
  static_assert(kTensorWaves == 8, "two loads of four");
  Four m[2], l[2], o[kTensorWaves];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    m[i] = reinterpret_cast<const Four*>(sums.wave_m + row * kTensorWaves)[i];
    l[i] = reinterpret_cast<const Four*>(sums.wave_l + row * kTensorWaves)[i];
  }
#pragma unroll
  for (int w = 0; w < kTensorWaves; ++w) {
    o[w] = *reinterpret_cast<const Four*>(
        sums.o + (w * place.rows + row) * S::kSumPitch + column);
  }
  SplitSum sum = {MinusInfinity(), 0.0f, {}};
#pragma unroll
  for (int w = 0; w < kTensorWaves; ++w) {
    sum.m = MaxOf(sum.m, m[w / 4].v[w % 4]);
  }
#pragma unroll
  for (int w = 0; w < kTensorWaves; ++w) {
    const float weight = WeightOf(m[w / 4].v[w % 4], sum.m);
    sum.l = std::fma(l[w / 4].v[w % 4], weight, sum.l);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      sum.o.v[i] = std::fma(o[w].v[i], weight, sum.o.v[i]);
    }
  }
  return sum;
}

// ---- Splits -----------------------------------------------------------------

// y of a row and column from the splits' (m, l), `pitch` pairs apart, and o,
// `o_pitch` floats apart. kMost: splits at most, 0 for any number. A split that
// is none has a negative l.
template <int kMost>
__device__ inline float SumOfSplits(const Pair* ml, int pitch, const float* o,
                                    int o_pitch, int splits) {
  float max = MinusInfinity(), l_sum = 0.0f, o_sum = 0.0f;
  const auto add = [&](Pair ml_i, float o_i) {
    const float weight = WeightOf(ml_i.first, max);
    l_sum = std::fma(ml_i.second, weight, l_sum);
    o_sum = std::fma(o_i, weight, o_sum);
  };
  if constexpr (kMost > 0) {
    // NOTE: loads that wait for nothing, and no branches: what is added for
    // splits that are none is 0.
    Pair all_ml[kMost];
    float all_o[kMost];
#pragma unroll
    for (int i = 0; i < kMost; ++i) {
      const int at = i < splits ? i : 0;
      all_ml[i] = ml[at * pitch];
      all_o[i] = o[at * o_pitch];
    }
#pragma unroll
    for (int i = 0; i < kMost; ++i) {
      if (i >= splits || all_ml[i].second < 0.0f) {
        all_ml[i] = {MinusInfinity(), 0.0f};
        all_o[i] = 0.0f;
      }
      max = MaxOf(max, all_ml[i].first);
    }
#pragma unroll
    for (int i = 0; i < kMost; ++i) add(all_ml[i], all_o[i]);
  } else {
#pragma unroll 4
    for (int i = 0; i < splits; ++i) {
      const Pair ml_i = ml[i * pitch];
      if (!(ml_i.second < 0.0f)) max = MaxOf(max, ml_i.first);
    }
#pragma unroll 4
    for (int i = 0; i < splits; ++i) {
      const Pair ml_i = ml[i * pitch];
      if (!(ml_i.second < 0.0f)) add(ml_i, o[i * o_pitch]);
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

struct HeadOfToken {
  int64_t token;
  int head;
};
__device__ inline HeadOfToken HeadOf(const TensorAttentionArgs& args,
                                     const Place& place, int row) {
  const int token = place.TokenOf(row);
  return {place.token + token, place.kv_head * args.attention.group +
                                   place.first_row + row -
                                   token * place.group_rows};
}

// Bytes that a block gets.
__device__ inline int BytesOfSlice(const TensorAttentionArgs& args,
                                   const Place& place) {
  return place.Splits() * place.rows * ((1 << args.slice_shift) + 2) *
         int{sizeof(float)};
}
// A split's sums go to the blocks of the cluster: a slice of the columns each.
template <class S>
__device__ inline void SendSplit(const TensorAttentionArgs& args,
                                 const Place& place, const Sums& sums,
                                 int split) {
  const auto send = [&](Pair value, void* to, int rank) {
    if (args.cluster_blocks == 1) {
      *static_cast<Pair*>(to) = value;
    } else {
      gpu::SendAsync(std::bit_cast<int64_t>(value), to, rank, sums.phaser);
    }
  };
  const int shift = args.slice_shift;
  const int slice = 1 << shift;
  const int rows = place.rows;
  for (int i = gpu::ThreadIndex(); i < rows * S::kDims / 4; i += S::kThreads) {
    const int row = i / (S::kDims / 4), column = i % (S::kDims / 4) * 4;
    const SplitSum sum = SumOfWaves<S>(place, sums, row, column);
    const int to = column >> shift;
    const int at = split * rows + row;
    float* const o = sums.split_o + at * slice + column - to * slice;
    send({sum.o.v[0], sum.o.v[1]}, o, to);
    send({sum.o.v[2], sum.o.v[3]}, o + 2, to);
    if (column == to * slice) send({sum.m, sum.l}, sums.split_ml + at, to);
  }
}
// This block's slice of y, when all have sent theirs.
template <class S>
__device__ inline void StoreSlice(const TensorAttentionArgs& args,
                                  const Place& place, const Sums& sums) {
  using T = typename S::T;
  const int shift = args.slice_shift;
  const int slice = 1 << shift;
  const int splits = place.Splits();
  for (int i = gpu::ThreadIndex(); i < place.rows * slice; i += S::kThreads) {
    const int row = i >> shift;
    const int column = place.slot * slice + i - row * slice;
    if (column >= args.attention.q.cols) continue;
    const auto sum = [&]<int kMost>() {
      return SumOfSplits<kMost>(sums.split_ml + row, place.rows,
                                sums.split_o + i, place.rows * slice, splits);
    };
    const float y = splits <= kMaxSplitCluster
                        ? sum.template operator()<kMaxSplitCluster>()
                        : sum.template operator()<0>();
    const HeadOfToken head = HeadOf(args, place, row);
    StoreValue<T>(args.attention, head.token, head.head, column, y);
  }
}

// ---- Splits of blocks that do not meet --------------------------------------

__device__ inline float* PartialOf(const TensorAttentionArgs& args,
                                   int64_t token, int head) {
  const AttentionKernelArgs& a = args.attention;
  return a.partials + ((token - a.first_token) * a.q.rows + head) *
                          args.max_splits * SplitSize(a.q.cols);
}
template <class S>
__device__ inline void StorePartial(const TensorAttentionArgs& args,
                                    const Place& place, const Sums& sums,
                                    int split) {
  const AttentionKernelArgs& a = args.attention;
  for (int i = gpu::ThreadIndex(); i < place.rows * S::kDims / 4;
       i += S::kThreads) {
    const int row = i / (S::kDims / 4), column = i % (S::kDims / 4) * 4;
    if (column >= a.q.cols) continue;
    const HeadOfToken head = HeadOf(args, place, row);
    float* const to =
        PartialOf(args, head.token, head.head) + split * SplitSize(a.q.cols);
    const SplitSum sum = SumOfWaves<S>(place, sums, row, column);
    Pair* const o = reinterpret_cast<Pair*>(to + 2 + column);
    o[0] = {sum.o.v[0], sum.o.v[1]};
    o[1] = {sum.o.v[2], sum.o.v[3]};
    if (column == 0) *reinterpret_cast<Pair*>(to) = {sum.m, sum.l};
  }
}
// Marks splits that this context does not have, every slots-th of them.
__device__ inline void StoreAbsent(const TensorAttentionArgs& args,
                                   const Place& place) {
  const int slots = static_cast<int>(args.slots.divisor);
  const int row = gpu::ThreadIndex();
  if (row >= place.rows) return;
  const HeadOfToken head = HeadOf(args, place, row);
  float* const to = PartialOf(args, head.token, head.head);
  for (int split = place.Splits() + place.slot; split < args.max_splits;
       split += slots) {
    to[split * SplitSize(args.attention.q.cols) + 1] = -1.0f;
  }
}

// Splits whose loads all start at once.
constexpr int kFewSplits = 16;

// A column of a token's head, before v_scale.
__device__ inline float FoldedValue(const TensorAttentionArgs& args,
                                    int64_t token, int head, int column) {
  const float* const partial = PartialOf(args, token, head);
  const int size = static_cast<int>(SplitSize(args.attention.q.cols));
  const auto sum = [&]<int kMost>() {
    return SumOfSplits<kMost>(reinterpret_cast<const Pair*>(partial), size / 2,
                              partial + 2 + column, size, args.max_splits);
  };
  return args.max_splits <= kFewSplits ? sum.template operator()<kFewSplits>()
                                       : sum.template operator()<0>();
}

// A token's head, a block each.
template <class T>
__device__ inline void FoldSplits(const TensorAttentionArgs& args) {
  const AttentionKernelArgs& a = args.attention;
  const int heads = static_cast<int>(a.q.rows);
  const int64_t token = a.first_token + gpu::BlockIndex() / heads;
  const int head = static_cast<int>(gpu::BlockIndex() % heads);
  for (int column = gpu::ThreadIndex(); column < a.q.cols;
       column += gpu::BlockThreads()) {
    StoreValue<T>(a, token, head, column,
                  FoldedValue(args, token, head, column));
  }
}

}  // namespace lamina::attention_internal::tensor
