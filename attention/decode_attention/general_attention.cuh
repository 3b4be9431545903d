#pragma once

// DecodeAttention's rule as it stands in its header, for every type, stride and
// head_dim; the CPU's bits. For what the tensor cores do not take, and for GPUs
// without them.
//
// A block has a token, up to kGeneralRows query heads of a KV head, and one
// chunk of positions after another (or one chunk, when chunks are split):
//   scores    a thread a position: 16 slots a row
//   weights   32 lanes a row: maximum, Exp, the canonical sum
//   values    a thread a column of a row, over the positions in order
// Split chunks leave m, l and o in the workspace, and FoldPartials merges them.
// Bytes moved: K and V of a KV head once for each kGeneralRows query heads.

#include <cmath>
#include <limits>

#include "lamina/attention/decode_attention/general_attention_args.h"
#include "lamina/attention/kv_cache/kv_run.h"
#include "lamina/core/elementary.h"
#include "lamina/core/octet.cuh"
#include "lamina/quant/fp8.cuh"

namespace lamina::attention_internal {

using gpu::kChunkLanes;
using gpu::kOctet;
using gpu::Octet;

constexpr int kSlots = 16;

LAMINA_HD constexpr float MinusInfinity() {
  return -std::numeric_limits<float>::infinity();
}
// NOTE: -Inf - -Inf would be NaN.
__device__ inline float FiniteBase(float m) {
  return m == MinusInfinity() ? 0.0f : m;
}

// ---- Elements of any type ---------------------------------------------------

// C: float, F16, BF16, or uint8_t for the FP8 types.
template <class C>
__device__ inline float LoadKv(DType type, const C* p) {
  if constexpr (sizeof(C) > 1) {
    return ToFloat(*p);
  } else {
    using gpu::fp8_internal::Decode;
    switch (type) {
      case DType::kF8E4M3Fn:
        return Decode<F8E4M3Fn>(*p);
      case DType::kF8E5M2:
        return Decode<F8E5M2>(*p);
      case DType::kF8E4M3Fnuz:
        return Decode<F8E4M3Fnuz>(*p);
      default:
        return Decode<F8E5M2Fnuz>(*p);
    }
  }
}
template <class C>
__device__ inline Octet LoadKvOctet(DType type, const C* p, int count,
                                    bool aligned) {
  if constexpr (sizeof(C) > 1) {
    return aligned ? gpu::LoadOctet(p) : gpu::LoadOctetUpTo(p, count);
  } else {
    return gpu::DecodeOctet(
        type, aligned ? gpu::Load64(p) : gpu::LoadCodesUpTo(p, count));
  }
}

__device__ inline float LoadQ(const ConstMatrixView& q, int64_t token, int head,
                              int column) {
  const int64_t at =
      token * q.batch_stride + int64_t{head} * q.row_stride + column;
  switch (q.dtype) {
    case DType::kF32:
      return static_cast<const float*>(q.data)[at];
    case DType::kF16:
      return ToFloat(static_cast<const F16*>(q.data)[at]);
    default:
      return ToFloat(static_cast<const BF16*>(q.data)[at]);
  }
}
__device__ inline void StoreY(const MatrixView& y, int64_t token, int head,
                              int column, float value) {
  const int64_t at =
      token * y.batch_stride + int64_t{head} * y.row_stride + column;
  switch (y.dtype) {
    case DType::kF32:
      static_cast<float*>(y.data)[at] = value;
      return;
    case DType::kF16:
      static_cast<F16*>(y.data)[at] = FromFloat<F16>(value);
      return;
    default:
      static_cast<BF16*>(y.data)[at] = FromFloat<BF16>(value);
      return;
  }
}
__device__ inline float ScaleOr1(const float* scale) {
  return scale == nullptr ? 1.0f : *scale;
}

// ---- A block's place --------------------------------------------------------

struct GeneralPlace {
  int64_t token;
  int kv_head;
  int first_row, rows;       // of the group
  int32_t first, last;       // positions
  int32_t chunk, chunk_end;  // this block's
  int slot;                  // of `chunk` among the token's partial results
  int64_t sequence;
};

__device__ inline GeneralPlace PlaceOf(const GeneralAttentionArgs& args) {
  const AttentionKernelArgs& a = args.attention;
  GeneralPlace place;
  uint32_t rest = static_cast<uint32_t>(gpu::BlockIndex());
  const auto take = [&](const FastDivisor& divisor) {
    const uint32_t quotient = divisor.Quotient(rest);
    const uint32_t remainder = rest - quotient * divisor.divisor;
    rest = quotient;
    return static_cast<int>(remainder);
  };
  place.slot = take(args.chunks);
  place.first_row = take(args.parts) * kGeneralRows;
  place.kv_head = take(args.heads);
  place.token = a.first_token + rest;
  const int left = a.group - place.first_row;
  place.rows = left < kGeneralRows ? left : kGeneralRows;
  place.last = a.positions[place.token];
  place.first = a.First(place.last);
  place.chunk = place.first / kGpuChunk + place.slot;
  place.chunk_end = args.split ? place.chunk + 1 : place.last / kGpuChunk + 1;
  place.sequence = a.Sequence(place.token);
  return place;
}

__device__ inline float* PartialOf(const GeneralAttentionArgs& args,
                                   int64_t token, int head, int slot) {
  const AttentionKernelArgs& a = args.attention;
  const int64_t index =
      ((token - a.first_token) * a.q.rows + head) * args.chunks.divisor + slot;
  return a.partials + index * PartialSize(a.q.cols);
}

// ---- A chunk ----------------------------------------------------------------

struct GeneralShared {
  float p[kGeneralRows][kGpuChunk];        // scores, then weights
  float m[kGeneralRows], l[kGeneralRows];  // of the chunk
  float state_m[kGeneralRows], state_l[kGeneralRows];
  int64_t offset[kGpuChunk];  // of each position in K and V
};
// Behind it, kGeneralRows rows of RoundUp(head_dim, kSlots) floats each: q,
// then o.

// dot * factor of this thread's position with each row.
template <class C>
__device__ inline void ScorePosition(const GeneralAttentionArgs& args,
                                     const C* key, const float* q, int pitch,
                                     float factor,
                                     float (&scores)[kGeneralRows], int rows) {
  const int dims = static_cast<int>(args.attention.q.cols);
  const DType type = args.attention.cache.dtype;
  const bool aligned =
      reinterpret_cast<uintptr_t>(key) % (sizeof(C) == 1 ? 8 : 16) == 0;
  float slots[kGeneralRows][kSlots] = {};
  for (int k = 0; k < dims; k += kSlots) {
#pragma unroll
    for (int half = 0; half < kSlots; half += kOctet) {
      const int left = dims - k - half;
      const Octet keys =
          LoadKvOctet(type, key + k + half, left, aligned && left >= kOctet);
#pragma unroll
      for (int r = 0; r < kGeneralRows; ++r) {
        if (r >= rows) continue;
#pragma unroll
        for (int i = 0; i < kOctet; ++i) {
          float& slot = slots[r][half + i];
          slot = std::fma(q[r * pitch + k + half + i], keys.v[i], slot);
        }
      }
    }
  }
#pragma unroll
  for (int r = 0; r < kGeneralRows; ++r) {
#pragma unroll
    for (int step = kSlots / 2; step > 0; step /= 2) {
#pragma unroll
      for (int i = 0; i < step; ++i) slots[r][i] += slots[r][i + step];
    }
    scores[r] = slots[r][0] * factor;
  }
}

// Weights of a row, by 32 lanes; every lane of the block takes part.
template <int kWave>
__device__ inline void WeighRow(GeneralShared& shared, int rows) {
  const int row = gpu::ThreadIndex() / kChunkLanes;
  const int lane = gpu::ThreadIndex() % kChunkLanes;
  float* const p = shared.p[row < rows ? row : 0] + lane * kOctet;
  Octet s;
#pragma unroll
  for (int i = 0; i < kOctet; ++i) s.v[i] = p[i];
  float m = MinusInfinity();
#pragma unroll
  for (int i = 0; i < kOctet; ++i) m = s.v[i] > m ? s.v[i] : m;  // NaN: no
#pragma unroll
  for (int mask = 1; mask < kChunkLanes; mask *= 2) {
    const float other = gpu::ExchangeHalves<kWave>(m, mask);
    m = other > m ? other : m;
  }
  const float base = FiniteBase(m);
  const Octet weights = gpu::Map(s, [&](float x) { return Exp(x - base); });
  float l = gpu::TreeSum(weights);
#pragma unroll
  for (int mask = 1; mask < kChunkLanes; mask *= 2) {
    l = l + gpu::ExchangeHalves<kWave>(l, mask);
  }
  // NOTE: lanes without a row have read row 0.
  gpu::BlockSync();
  if (row < rows) {
#pragma unroll
    for (int i = 0; i < kOctet; ++i) p[i] = weights.v[i];
    if (lane == 0) {
      shared.m[row] = m;
      shared.l[row] = l;
    }
  }
}

// The factors of what there is and of what comes, in a merge.
struct MergeFactors {
  float a, b, m;
};
__device__ inline MergeFactors FactorsOf(float m, float other) {
  const float max = other > m ? other : m;
  const float base = FiniteBase(max);
  return {Exp(m - base), Exp(other - base), max};
}

// Adds the chunk's o to that of the block: a thread a column of a row.
template <class C>
__device__ inline void AddValues(const GeneralAttentionArgs& args,
                                 const GeneralPlace& place,
                                 const GeneralShared& shared, int begin,
                                 int end, bool first, float* o, int pitch) {
  const KvCacheView& cache = args.attention.cache;
  const int dims = static_cast<int>(args.attention.q.cols);
  for (int i = gpu::ThreadIndex(); i < place.rows * dims;
       i += kGeneralThreads) {
    const int row = i / dims, column = i - row * dims;
    const C* const values = static_cast<const C*>(cache.v) + column;
    float sum = 0.0f;
#pragma unroll 8
    for (int j = begin; j < end; ++j) {
      sum = std::fma(shared.p[row][j],
                     LoadKv(cache.dtype, values + shared.offset[j]), sum);
    }
    float& state = o[row * pitch + column];
    if (first) {
      state = sum;
    } else {
      const MergeFactors f = FactorsOf(shared.state_m[row], shared.m[row]);
      state = state * f.a + sum * f.b;
    }
  }
}

template <int kWave, class C>
__device__ inline void AddChunk(const GeneralAttentionArgs& args,
                                const GeneralPlace& place, int chunk,
                                bool first, GeneralShared& shared, float* q,
                                float* o, int pitch) {
  const AttentionKernelArgs& a = args.attention;
  const int j = gpu::ThreadIndex();
  const int position = chunk * kGpuChunk + j;
  const bool attended = position >= place.first && position <= place.last;
  float scores[kGeneralRows];
#pragma unroll
  for (int r = 0; r < kGeneralRows; ++r) scores[r] = MinusInfinity();
  if (attended) {
    const int64_t offset =
        FindRun(a.cache, place.sequence, place.kv_head, position, 1).offset;
    shared.offset[j] = offset;
    ScorePosition(args, static_cast<const C*>(a.cache.k) + offset, q, pitch,
                  a.scale * ScaleOr1(a.cache.k_scale), scores, place.rows);
  }
#pragma unroll
  for (int r = 0; r < kGeneralRows; ++r) {
    if (r < place.rows) shared.p[r][j] = scores[r];
  }
  gpu::BlockSync();
  WeighRow<kWave>(shared, place.rows);
  gpu::BlockSync();
  const int origin = chunk * kGpuChunk;
  const int begin = place.first > origin ? place.first - origin : 0;
  const int last = place.last - origin + 1;
  AddValues<C>(args, place, shared, begin, last < kGpuChunk ? last : kGpuChunk,
               first, o, pitch);
  gpu::BlockSync();
  if (j < place.rows) {
    if (first) {
      shared.state_m[j] = shared.m[j];
      shared.state_l[j] = shared.l[j];
    } else {
      const MergeFactors f = FactorsOf(shared.state_m[j], shared.m[j]);
      shared.state_l[j] = shared.state_l[j] * f.a + shared.l[j] * f.b;
      shared.state_m[j] = f.m;
    }
  }
  gpu::BlockSync();
}

// ---- A block ----------------------------------------------------------------

__device__ inline void StoreResult(const AttentionKernelArgs& a, int64_t token,
                                   int head, int column, float o, float l) {
  StoreY(a.y, token, head, column,
         gpu::Divide(o, l) * ScaleOr1(a.cache.v_scale));
}

template <int kWave, class C>
__device__ inline void AttendGeneral(const GeneralAttentionArgs& args) {
  const AttentionKernelArgs& a = args.attention;
  const GeneralPlace place = PlaceOf(args);
  if (place.chunk > place.last / kGpuChunk) return;  // all threads
  GeneralShared& shared = *gpu::SharedMemory<GeneralShared>();
  const int dims = static_cast<int>(a.q.cols);
  const int pitch = static_cast<int>(RoundUp(dims, kSlots));
  float* const q = reinterpret_cast<float*>(&shared + 1);
  float* const o = q + kGeneralRows * pitch;
  const int head = place.kv_head * a.group + place.first_row;
  for (int i = gpu::ThreadIndex(); i < place.rows * pitch;
       i += kGeneralThreads) {
    const int row = i / pitch, column = i - row * pitch;
    q[i] = column < dims ? LoadQ(a.q, place.token, head + row, column) : 0.0f;
  }
  gpu::BlockSync();
  for (int chunk = place.chunk; chunk < place.chunk_end; ++chunk) {
    AddChunk<kWave, C>(args, place, chunk, chunk == place.chunk, shared, q, o,
                       pitch);
  }
  for (int i = gpu::ThreadIndex(); i < place.rows * dims;
       i += kGeneralThreads) {
    const int row = i / dims, column = i - row * dims;
    const float value = o[row * pitch + column];
    if (!args.split) {
      StoreResult(a, place.token, head + row, column, value,
                  shared.state_l[row]);
      continue;
    }
    float* const partial = PartialOf(args, place.token, head + row, place.slot);
    partial[2 + column] = value;
    if (column == 0) {
      partial[0] = shared.state_m[row];
      partial[1] = shared.state_l[row];
    }
  }
}

// Merges the split chunks of a token's head, a block each.
__device__ inline void FoldPartials(const GeneralAttentionArgs& args) {
  const AttentionKernelArgs& a = args.attention;
  const int heads = static_cast<int>(a.q.rows);
  const int64_t token = a.first_token + gpu::BlockIndex() / heads;
  const int head = static_cast<int>(gpu::BlockIndex() % heads);
  const int32_t last = a.positions[token];
  const int chunks = last / kGpuChunk - a.First(last) / kGpuChunk + 1;
  const int64_t size = PartialSize(a.q.cols);
  const float* const first = PartialOf(args, token, head, 0);
  for (int column = gpu::ThreadIndex(); column < a.q.cols;
       column += gpu::BlockThreads()) {
    const float* partial = first;
    float m = partial[0], l = partial[1], o = partial[2 + column];
    for (int chunk = 1; chunk < chunks; ++chunk) {
      partial += size;
      const MergeFactors f = FactorsOf(m, partial[0]);
      l = l * f.a + partial[1] * f.b;
      o = o * f.a + partial[2 + column] * f.b;
      m = f.m;
    }
    StoreResult(a, token, head, column, o, l);
  }
}

}  // namespace lamina::attention_internal
