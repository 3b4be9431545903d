#pragma once

// The row algorithm of the three norms on a GPU: the lanes of a row
// (reduce/row_reduce.cuh) read it once, keep it in registers, and write y and
// the codes from there:
//
//   v_i = ((z_i - mean) * rstd) * w_i + b_i
//
// Weights are loaded before the kernel waits for its predecessor, everything
// else after. A row that does not fit is read again for each pass.

#include <cstdint>

#include "lamina/core/octet.cuh"
#include "lamina/norm/norm_args.h"
#include "lamina/quant/store_quantized.cuh"
#include "lamina/reduce/row_reduce.cuh"

namespace lamina::norm_internal {

using gpu::Octet;

constexpr int MaxBlockLanes(NormVariant variant) {
  return variant.octets == 1 ? 1024 : gpu::kWideLanes;
}

// Blocks a unit that registers are kept for. NOTE: left alone, nvcc aims at two
// blocks and spills a register or two of these.
template <class T, class Statistics>
constexpr int MinBlocks() {
  return sizeof(T) == 4 || Statistics::kCentered ? 1 : 0;
}

template <NormVariant kVariant>
using NormLanes =
    gpu::RowLanes<kVariant.wave_size, kVariant.scope, kVariant.octets>;

// An octet of a row: columns [column, column + count), +0 past them.
template <bool kWhole, class T, gpu::Access kAccess = gpu::Access::kPlain>
__device__ inline Octet LoadColumns(const T* row, int64_t column, int count) {
  if constexpr (kWhole) {
    if (count == 0) return Octet{};
    return gpu::LoadOctet<T, kAccess>(row + column);
  } else {
    return gpu::LoadOctetUpTo(row + column, count);
  }
}

template <bool kWhole, class T>
__device__ inline void StoreColumns(const Octet& octet, T* row, int64_t column,
                                    int count) {
  if constexpr (kWhole) {
    if (count > 0) gpu::StoreOctet(octet, row + column);
  } else {
    gpu::StoreOctetUpTo(octet, row + column, count);
  }
}

// An octet of weight or bias, in T or f32; `absent` when there is none.
template <bool kWhole, class T>
__device__ inline Octet LoadWeights(const ConstVectorView& weights,
                                    int64_t column, int count, float absent) {
  if (!weights.has_value()) {
    return gpu::Map(Octet{}, [&](float) { return absent; });
  }
  constexpr gpu::Access kAccess = gpu::Access::kConstant;
  if (weights.dtype == DType::kF32) {
    return LoadColumns<kWhole, float, kAccess>(
        static_cast<const float*>(weights.data), column, count);
  }
  return LoadColumns<kWhole, T, kAccess>(static_cast<const T*>(weights.data),
                                         column, count);
}

// w_i or 1 + w_i.
template <bool kWhole, class T>
__device__ inline Octet LoadFactors(const NormArgs& args, int64_t column,
                                    int count) {
  const Octet w = LoadWeights<kWhole, T>(args.weight, column, count, 1.0f);
  if (!args.weight_plus_one) return w;
  return gpu::Map(w, [](float v) { return 1.0f + v; });
}

// z - mean; columns past the end stay +0.
__device__ inline Octet Centered(const Octet& z, float mean, int count) {
  Octet centered;
#pragma unroll
  for (int i = 0; i < gpu::kOctet; ++i) {
    centered.v[i] = i < count ? z.v[i] - mean : 0.0f;
  }
  return centered;
}

__device__ inline float SquareSum(const Octet& z) {
  return gpu::TreeSum(gpu::Map(z, [](float v) { return v * v; }));
}

__device__ inline float ReciprocalDeviation(float variance, float epsilon) {
  return gpu::Divide(1.0f, gpu::SquareRoot(variance + epsilon));
}

// sum / cols.
__device__ inline float Mean(float sum, int64_t cols) {
  return gpu::Divide(sum, static_cast<float>(cols));
}

// ---- Where a row comes from. ------------------------------------------------

// x itself.
template <class T, bool kWhole>
struct PlainSource {
  const T* x;

  __device__ PlainSource(const NormArgs& args, int64_t row)
      : x(args.x.Row<T>(row)) {}
  __device__ Octet First(int64_t column, int count) const {
    return LoadColumns<kWhole>(x, column, count);
  }
  // A later pass over a long row.
  __device__ Octet Again(int64_t column, int count) const {
    return First(column, count);
  }
};

// z = round_T(x + residual), which the first pass stores.
template <class T, bool kWhole>
struct ResidualSource {
  const T* x;
  const T* residual;
  T* z;

  __device__ ResidualSource(const NormArgs& args, int64_t row)
      : x(args.x.Row<T>(row)),
        residual(args.residual.Row<T>(row)),
        z(args.residual_out.Row<T>(row)) {}
  __device__ Octet First(int64_t column, int count) const {
    const Octet a = LoadColumns<kWhole>(x, column, count);
    const Octet b = LoadColumns<kWhole>(residual, column, count);
    const Octet sum =
        gpu::RoundTo<T>(gpu::Map(a, b, [](float p, float q) { return p + q; }));
    StoreColumns<kWhole>(sum, z, column, count);
    return sum;
  }
  __device__ Octet Again(int64_t column, int count) const {
    return LoadColumns<kWhole>(static_cast<const T*>(z), column, count);
  }
};

// ---- Rows in registers. -----------------------------------------------------

// 1 / rms; takes one reduction.
struct RmsStatistics {
  static constexpr int kReductions = 1;
  static constexpr bool kCentered = false;

  template <class Lanes, int kOctets>
  __device__ static void Normalize(Lanes& lanes, const NormArgs& args,
                                   Octet (&z)[kOctets]) {
    float sums[kOctets];
#pragma unroll
    for (int k = 0; k < kOctets; ++k) sums[k] = SquareSum(z[k]);
    const float mean = Mean(lanes.Sum(sums, 0), args.x.cols);
    const float rstd = ReciprocalDeviation(mean, args.epsilon);
#pragma unroll
    for (int k = 0; k < kOctets; ++k) {
      z[k] = gpu::Map(z[k], [&](float v) { return v * rstd; });
    }
  }
};

// (z - mean) / deviation; takes two reductions.
struct LayerStatistics {
  static constexpr int kReductions = 2;
  static constexpr bool kCentered = true;

  template <class Lanes, int kOctets>
  __device__ static void Normalize(Lanes& lanes, const NormArgs& args,
                                   Octet (&z)[kOctets]) {
    float sums[kOctets];
#pragma unroll
    for (int k = 0; k < kOctets; ++k) sums[k] = gpu::TreeSum(z[k]);
    const float mean = Mean(lanes.Sum(sums, 0), args.x.cols);
#pragma unroll
    for (int k = 0; k < kOctets; ++k) {
      z[k] = Centered(z[k], mean, lanes.Count(k));
      sums[k] = SquareSum(z[k]);
    }
    const float variance = Mean(lanes.Sum(sums, 1), args.x.cols);
    const float rstd = ReciprocalDeviation(variance, args.epsilon);
#pragma unroll
    for (int k = 0; k < kOctets; ++k) {
      z[k] = gpu::Map(z[k], [&](float v) { return v * rstd; });
    }
  }
};

// normed * factor + bias.
template <bool kWhole, class T>
__device__ inline Octet Scaled(const NormArgs& args, const Octet& normed,
                               const Octet& factor, int64_t column, int count) {
  Octet v = gpu::Map(normed, factor, [](float p, float q) { return p * q; });
  if (args.bias.has_value()) {
    // A product and a sum, both rounded.
    const Octet bias = LoadWeights<kWhole, T>(args.bias, column, count, 0.0f);
    v = gpu::Map(v, bias, [](float p, float q) { return p + q; });
  }
  return v;
}

template <class T, NormVariant kVariant, class Source, class Statistics>
__device__ inline void NormRow(const NormArgs& args) {
  constexpr int kOctets = kVariant.octets;
  constexpr bool kWhole = kVariant.whole;
  NormLanes<kVariant> lanes(args.lanes, args.x.cols, args.first_row);
  const int64_t row = lanes.row();
  // NOTE: lanes of rows past the end stay, for the exchanges between lanes.
  const bool exists = row < args.x.total_rows();
  const auto count = [&](int k) { return exists ? lanes.Count(k) : 0; };

  Octet factor[kOctets];
#pragma unroll
  for (int k = 0; k < kOctets; ++k) {
    factor[k] = LoadFactors<kWhole, T>(args, lanes.Column(k), count(k));
  }
  const float static_scale = gpu::StaticScale(args.quantized);
  gpu::AllowDependents();
  gpu::WaitForPredecessor();

  const Source source(args, exists ? row : 0);
  Octet z[kOctets];
#pragma unroll
  for (int k = 0; k < kOctets; ++k) {
    z[k] = source.First(lanes.Column(k), count(k));
  }
  Statistics::Normalize(lanes, args, z);
#pragma unroll
  for (int k = 0; k < kOctets; ++k) {
    z[k] = Scaled<kWhole, T>(args, z[k], factor[k], lanes.Column(k), count(k));
  }
  if (args.quantized.has_value()) {
    gpu::StoreQuantizedRow<T>(args.quantized, static_scale, lanes, z,
                              Statistics::kReductions);
  }
  if (args.y.has_value() && exists) {
    T* const y = args.y.Row<T>(row);
#pragma unroll
    for (int k = 0; k < kOctets; ++k) {
      StoreColumns<kWhole>(z[k], y, lanes.Column(k), count(k));
    }
  }
}

// ---- Rows longer than what a block holds. -----------------------------------

// A block goes over its row a tile at a time, once for each statistic, once
// for a scale of the row, once for the results.
template <class T, NormVariant kVariant, class Source, class Statistics>
class LongRow {
 public:
  static constexpr int kOctets = kVariant.octets;

  __device__ explicit LongRow(const NormArgs& args)
      : args_(args), lanes_(args.lanes, args.x.cols, args.first_row) {}

  __device__ void Run() {
    const float static_scale = gpu::StaticScale(args_.quantized);
    gpu::AllowDependents();
    gpu::WaitForPredecessor();
    const Source source(args_, lanes_.row());
    mean_ = 0.0f;
    float sum = SumOver([&](int64_t column, int count) {
      const Octet z = source.First(column, count);
      return Statistics::kCentered ? gpu::TreeSum(z) : SquareSum(z);
    });
    if constexpr (Statistics::kCentered) {
      mean_ = Mean(sum, args_.x.cols);
      sum = SumOver([&](int64_t column, int count) {
        return SquareSum(Centered(source.Again(column, count), mean_, count));
      });
    }
    rstd_ = ReciprocalDeviation(Mean(sum, args_.x.cols), args_.epsilon);

    const QuantizedArgs& out = args_.quantized;
    float inverse = 0.0f;
    if (out.scale_of_row()) inverse = ScaleOfRow(source);
    ForEachOctet([&](int64_t column, int count) {
      const Octet v = Value(source, column, count);
      if (out.scale_of_row()) {
        gpu::StoreCodes(out, lanes_.row(), column, count,
                        gpu::QuantizedValues<T>(out, v), inverse);
      } else if (out.has_value()) {
        gpu::StoreQuantizedOctet<T, kVariant.wave_size>(
            out, static_scale, lanes_.row(), column, count, v);
      }
      if (args_.y.has_value()) {
        StoreColumns<false>(v, args_.y.Row<T>(lanes_.row()), column, count);
      }
    });
  }

 private:
  // f(column, count) for every octet of this lane; count can be 0.
  template <class F>
  __device__ void ForEachOctet(F&& f) {
    for (int64_t begin = 0; begin < args_.x.cols; begin += lanes_.columns()) {
      lanes_.MoveTo(begin);
      for (int k = 0; k < kOctets; ++k) f(lanes_.Column(k), lanes_.Count(k));
    }
  }

  // The canonical sum of what f gives for each octet.
  template <class F>
  __device__ float SumOver(F&& f) {
    float total = 0.0f;
    // NOTE: two slots in turn: a lane may still read the last tile's.
    int slot = 0;
    for (int64_t begin = 0; begin < args_.x.cols; begin += lanes_.columns()) {
      lanes_.MoveTo(begin);
      float sums[kOctets];
#pragma unroll
      for (int k = 0; k < kOctets; ++k) {
        sums[k] = f(lanes_.Column(k), lanes_.Count(k));
      }
      total = lanes_.AddChunks(total, sums, slot);
      slot ^= 1;
    }
    // What comes next begins with slot 0 again.
    gpu::BlockSync();
    return total;
  }

  __device__ Octet Value(const Source& source, int64_t column, int count) {
    const Octet z = source.Again(column, count);
    const Octet normed =
        gpu::Map(Statistics::kCentered ? Centered(z, mean_, count) : z,
                 [&](float v) { return v * rstd_; });
    return Scaled<false, T>(args_, normed,
                            LoadFactors<false, T>(args_, column, count), column,
                            count);
  }

  // Stores the scale of the row and gives its inverse.
  __device__ float ScaleOfRow(const Source& source) {
    const QuantizedArgs& out = args_.quantized;
    float amax = 0.0f;
    ForEachOctet([&](int64_t column, int count) {
      amax = gpu::FiniteAbsMax(
          gpu::QuantizedValues<T>(out, Value(source, column, count)), count,
          amax);
    });
    const float scale =
        gpu::DynamicScale(out, lanes_.Reduce(amax, 0, gpu::Larger{}));
    if (lanes_.lane() == 0) {
      gpu::StoreDynamicScale(out, lanes_.row(), 0, scale);
    }
    return gpu::Divide(1.0f, scale);
  }

  const NormArgs& args_;
  NormLanes<kVariant> lanes_;
  float mean_ = 0.0f;
  float rstd_ = 0.0f;
};

// What the kernels are.
template <class T, NormVariant kVariant, template <class, bool> class Source,
          class Statistics>
__device__ inline void RunNorm(const NormArgs& args) {
  using SourceOf = Source<T, kVariant.whole>;
  if constexpr (!gpu::kWaveRunsHere<kVariant.wave_size>) {
    return;
  } else if constexpr (kVariant.long_row) {
    LongRow<T, kVariant, SourceOf, Statistics>(args).Run();
  } else {
    NormRow<T, kVariant, SourceOf, Statistics>(args);
  }
}

}  // namespace lamina::norm_internal
