#pragma once

// Rope and KvAppend, alone or together: rows of heads are read once, rotated,
// and go where they belong: y, or the cache.
//
//   y0 = x0 * c - x1 * s,  y1 = x1 * c + x0 * s      each operation rounded
//   cache = convert(y, or y * (1 / scale) for FP8)
//
// A thread has a unit of a head: 8 pairs (two octets of columns), or 16 columns
// that are not rotated; where rows cannot be moved by octets, a pair or two
// columns. The units of a token's heads, q before k before v, lie side by side
// in its blocks. Bytes moved: each element once in and once out; the latency
// of positions, table and rows is what it costs.

#include <bit>
#include <type_traits>

#include "lamina/attention/kv_cache/kv_run.h"
#include "lamina/attention/rope_append/rope_append_kernel_args.h"
#include "lamina/core/octet.cuh"
#include "lamina/quant/fp8.cuh"

namespace lamina::attention_internal {

using gpu::kOctet;
using gpu::Octet;
using gpu::OctetBits;

// ---- Octets, or their first column alone ------------------------------------

template <class T, bool kOctets>
__device__ inline OctetBits<T> LoadBits(const T* p) {
  OctetBits<T> bits = {};
  if constexpr (kOctets) {
#pragma unroll
    for (int i = 0; i < static_cast<int>(sizeof(T) / 2); ++i) {
      bits.part[i] = gpu::Load128(reinterpret_cast<const char*>(p) + 16 * i);
    }
  } else if constexpr (std::is_same_v<T, float>) {
    bits.part[0].word[0] = std::bit_cast<uint32_t>(*p);
  } else {
    bits.part[0].word[0] = p->bits;
  }
  return bits;
}
template <class T, bool kOctets>
__device__ inline void StoreBits(const OctetBits<T>& bits, T* p) {
  if constexpr (kOctets) {
#pragma unroll
    for (int i = 0; i < static_cast<int>(sizeof(T) / 2); ++i) {
      gpu::Store128(bits.part[i], reinterpret_cast<char*>(p) + 16 * i);
    }
  } else if constexpr (std::is_same_v<T, float>) {
    *p = std::bit_cast<float>(bits.part[0].word[0]);
  } else {
    p->bits = static_cast<uint16_t>(bits.part[0].word[0]);
  }
}
template <bool kOctets>
__device__ inline Octet LoadTable(const float* p) {
  return gpu::Unpack(LoadBits<float, kOctets>(p));
}

template <class C, bool kOctets>
__device__ inline void StoreAs(const Octet& octet, void* base, int64_t offset) {
  StoreBits<C, kOctets>(gpu::Pack<C>(octet), static_cast<C*>(base) + offset);
}
template <bool kOctets>
__device__ inline void StoreInCache(DType type, const float* scale,
                                    const Octet& octet, void* base,
                                    int64_t offset) {
  switch (type) {
    case DType::kF32:
      return StoreAs<float, kOctets>(octet, base, offset);
    case DType::kF16:
      return StoreAs<F16, kOctets>(octet, base, offset);
    case DType::kBF16:
      return StoreAs<BF16, kOctets>(octet, base, offset);
    default:
      break;
  }
  const float inverse = scale == nullptr ? 1.0f : gpu::Divide(1.0f, *scale);
  const gpu::Bits64 codes = gpu::EncodeOctet(
      type, gpu::Map(octet, [&](float x) { return x * inverse; }));
  uint8_t* const p = static_cast<uint8_t*>(base) + offset;
  if constexpr (kOctets) {
    gpu::Store64(codes, p);
  } else {
    gpu::Store8(static_cast<uint8_t>(codes.word[0]), p);
  }
}

// ---- The rotation -----------------------------------------------------------

// Between pairs that lie side by side, column by column in `a` and then `b`,
// and their first elements in `a`, their second ones in `b`.
__device__ inline void Deinterleave(Octet& a, Octet& b) {
  const Octet low = a, high = b;
#pragma unroll
  for (int i = 0; i < kOctet / 2; ++i) {
    a.v[i] = low.v[2 * i];
    b.v[i] = low.v[2 * i + 1];
    a.v[i + 4] = high.v[2 * i];
    b.v[i + 4] = high.v[2 * i + 1];
  }
}
__device__ inline void Interleave(Octet& a, Octet& b) {
  const Octet first = a, second = b;
#pragma unroll
  for (int i = 0; i < kOctet / 2; ++i) {
    a.v[2 * i] = first.v[i];
    a.v[2 * i + 1] = second.v[i];
    b.v[2 * i] = first.v[i + 4];
    b.v[2 * i + 1] = second.v[i + 4];
  }
}

// `table`: the cosines of the unit's pairs, `half` before their sines.
template <class T, bool kOctets>
__device__ inline void Rotate(const float* table, int half, bool adjacent,
                              OctetBits<T>& a, OctetBits<T>& b) {
  const Octet c = LoadTable<kOctets>(table);
  const Octet s = LoadTable<kOctets>(table + half);
  Octet x0 = gpu::Unpack(a), x1 = gpu::Unpack(b);
  // NOTE: a pair alone is its two elements already.
  if (kOctets && adjacent) Deinterleave(x0, x1);
  Octet y0, y1;
#pragma unroll
  for (int i = 0; i < kOctet; ++i) {
    y0.v[i] = x0.v[i] * c.v[i] - x1.v[i] * s.v[i];
    y1.v[i] = x1.v[i] * c.v[i] + x0.v[i] * s.v[i];
  }
  if (kOctets && adjacent) Interleave(y0, y1);
  a = gpu::Pack<T>(y0);
  b = gpu::Pack<T>(y1);
}

// ---- A unit -----------------------------------------------------------------

template <class T>
__device__ inline const T* HeadOf(const ConstMatrixView& view, int64_t token,
                                  int head) {
  return static_cast<const T*>(view.data) + token * view.batch_stride +
         head * view.row_stride;
}
template <class T>
__device__ inline T* HeadOf(const MatrixView& view, int64_t token, int head) {
  return static_cast<T*>(view.data) + token * view.batch_stride +
         head * view.row_stride;
}

// `unit` of the token's units.
template <class T, bool kOctets>
__device__ inline void MoveUnit(const RopeAppendKernelArgs& args, int64_t token,
                                int unit) {
  constexpr int kPairs = kOctets ? kOctet : 1;
  const int q_heads = static_cast<int>(args.q.rows);
  const int kv_heads = static_cast<int>(args.k.rows);
  int head = static_cast<int>(args.units.Quotient(static_cast<uint32_t>(unit)));
  unit -= head * static_cast<int>(args.units.divisor);

  const bool is_q = head < q_heads;
  if (!is_q) head -= q_heads;
  const bool is_v = !is_q && head >= kv_heads;
  if (is_v) head -= kv_heads;
  if (is_v && head >= static_cast<int>(args.v.rows)) return;

  const T* const from = is_q   ? HeadOf<T>(args.q, token, head)
                        : is_v ? HeadOf<T>(args.v, token, head)
                               : HeadOf<T>(args.k, token, head);
  const int half = args.rotary_dim / 2;
  const bool rotates = !is_v && unit * kPairs < half;
  const bool split = rotates && !args.adjacent;
  const int first = split ? unit * kPairs : 2 * unit * kPairs;
  const int second = split ? half + first : first + kPairs;
  const bool has_second = second < args.head_dim;
  const int64_t position = args.positions[token];

  OctetBits<T> a = LoadBits<T, kOctets>(from + first);
  OctetBits<T> b = {};
  if (has_second) b = LoadBits<T, kOctets>(from + second);
  if (rotates) {
    Rotate<T, kOctets>(
        args.table + position * args.table_stride + unit * kPairs, half,
        args.adjacent, a, b);
  }

  if (is_q || (!is_v && args.k_out.has_value())) {
    T* const to = HeadOf<T>(is_q ? args.y : args.k_out, token, head);
    StoreBits<T, kOctets>(a, to + first);
    if (has_second) StoreBits<T, kOctets>(b, to + second);
  }
  if (is_q) return;
  const KvCacheView& cache = args.cache;
  const int64_t sequence =
      args.sequence_ids == nullptr ? token : args.sequence_ids[token];
  const int64_t offset = FindRun(cache, sequence, head, position, 1).offset;
  void* const memory = is_v ? cache.v : cache.k;
  const float* const scale = is_v ? cache.v_scale : cache.k_scale;
  StoreInCache<kOctets>(cache.dtype, scale, gpu::Unpack(a), memory,
                        offset + first);
  if (has_second) {
    StoreInCache<kOctets>(cache.dtype, scale, gpu::Unpack(b), memory,
                          offset + second);
  }
}

template <class T, bool kOctets>
__global__ void __launch_bounds__(kRopeAppendThreads)
    RopeAppendKernel(RopeAppendKernelArgs args) {
  gpu::AllowDependents();
  const uint32_t block = static_cast<uint32_t>(gpu::BlockIndex());
  const uint32_t token = args.blocks.Quotient(block);
  const int part = static_cast<int>(block - token * args.blocks.divisor);
  gpu::WaitForPredecessor();
  MoveUnit<T, kOctets>(args, args.first_token + token,
                       part * kRopeAppendThreads + gpu::ThreadIndex());
}

}  // namespace lamina::attention_internal
