#pragma once

// From the sums of the warpgroups of ring_gemm.cuh to results. Where a result
// is the sum of several (of shares of K, of the segments of pairs), those who
// have them show each other all; each then adds up a part of the results, in
// the order of the shares and of the segments, and stores it. Else sums are
// stored from registers.

#include <cstdint>

#include "lamina/core/device/intrinsics.cuh"
#include "lamina/gemm/skinny_gemm/epilogue.cuh"
#include "lamina/gemm/skinny_gemm/ring_gemm_args.h"
#include "lamina/gemm/skinny_gemm/ring_gemm_sums.cuh"

namespace lamina::gemm_internal {

template <RingGemmVariant kVariant>
class RingTileResults {
 public:
  // NOTE: before the stages, or a block would wait for memory once more when it
  // has all else.
  __forceinline__ __device__ RingTileResults(const RingGemmArgs& args,
                                             const Epilogue& epilogue,
                                             const RingTile& tile, int consumer)
      : args_(args),
        epilogue_(epilogue),
        tile_(tile),
        thread_(epilogue.gated(), args.plan.pairs),
        first_part_(consumer / args.plan.tiles) {
    const RingGemmPlan& plan = args.plan;
    int threads = 128;  // that have one partial sum
    int sums = kSums;   // of a thread, that this block adds up
    if (plan.pairs) {
      first_part_ = 2 * first_part_ + (thread_.second_of_pair() ? 1 : 0);
      threads = 64;
    } else if (TakesClusters(kVariant) && plan.cluster > 1) {
      first_part_ += gpu::ClusterRank() * plan.shares;
      sums /= plan.cluster;
      first_sum_ = gpu::ClusterRank() * sums;
    }
    pitch_ = threads;
    next_ = plan.tiles * sums * threads;
    exchange_ =
        consumer % plan.tiles * sums * threads + gpu::ThreadIndex() % threads;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      // NOTE: what does not exist has the scale of something that does.
      const int col = Exists(half) ? tile.first_col + thread_.Column(half) : 0;
      const int row = epilogue.WeightRow(col, epilogue.gated() && half == 1);
      bias_[half] = epilogue.LoadBias(row);
      if constexpr (!kVariant.block_scales) {
        w_scale_[half] = ScaleOrOne(args.gemm.w_scales, row, 0);
      }
    }
    if constexpr (kEarly) {
      ResultPlace at[kTogether];
      Places(FirstPart(), at);
      epilogue_.LoadResidual(at, residual_);
    }
  }

  // exchanged: [partial sums of a result][tiles][sums][threads]. Of a cluster,
  // each block adds up a part of the sums, which the others send there.
  __forceinline__ __device__ void Show(const RingTileSums<kVariant>& sums,
                                       float* exchanged) const {
    float* const mine = exchanged + first_part_ * next_ + exchange_;
#pragma unroll
    for (int i = 0; i < kSums; ++i) mine[i * pitch_] = sums[i];
  }

  __forceinline__ __device__ void ShowCluster(
      const RingTileSums<kVariant>& sums, float* exchanged) const {
    if constexpr (TakesClusters(kVariant)) {
      float* const mine = exchanged + first_part_ * next_ + exchange_;
      const int here = kSums / args_.plan.cluster;
#pragma unroll
      for (int i = 0; i < kSums; ++i) {
        gpu::StoreShared(mine + i % here * pitch_, i / here, sums[i]);
      }
    }
  }

  // This thread's part of the results. x_scales: of the rows of x. `exchanged`
  // is not read where a result is one sum, else `sums` is not.
  __forceinline__ __device__ void Store(const RingTileSums<kVariant>& sums,
                                        const float* exchanged,
                                        const float* x_scales) {
    thread_.Settle();
    if (!epilogue_.only_16_bits()) {
      StoreParts(sums, exchanged, x_scales);
    } else if (args_.gemm.epilogue.y_type == DType::kBF16) {
      Store16<BF16>(sums, exchanged, x_scales);
    } else {
      Store16<F16>(sums, exchanged, x_scales);
    }
  }

 private:
  static constexpr int kSums = RingSums(kVariant);
  // Results are stored in parts.
  static constexpr int kTogether = kSums < 16 ? kSums / 4 : 4;
  static constexpr int kParts = kSums / kTogether;
  static constexpr bool kEarly = kTogether <= 2;
  // Most partial sums of a result.
  static constexpr int kMostParts =
      MaxConsumers(kVariant) *
      (TakesPairs(kVariant) || TakesClusters(kVariant) ? 2 : 1);

  template <class T>
  __forceinline__ __device__ void Store16(const RingTileSums<kVariant>& sums,
                                          const float* exchanged,
                                          const float* x_scales) const {
    switch (PartialSums(args_.plan)) {
      case 1:
        return Store16<1, T>(sums, exchanged, x_scales);
      case 2:
        return Store16<2, T>(sums, exchanged, x_scales);
      case 4:
        if constexpr (kMostParts >= 4) {
          return Store16<4, T>(sums, exchanged, x_scales);
        }
        break;
      case 8:
        if constexpr (kMostParts >= 8) {
          return Store16<8, T>(sums, exchanged, x_scales);
        }
        break;
    }
  }
  // Where nothing is done but to round sums.
  // NOTE: with 64 rows a thread has 32 results and 16 waves share the issue
  // slots, so that little may be left to compute for a result.
  template <int kParts, class T>
  __forceinline__ __device__ void Store16(const RingTileSums<kVariant>& sums,
                                          const float* exchanged,
                                          const float* x_scales) const {
    constexpr int kResults = kSums < kParts ? 1 : kSums / kParts;
    const int first = first_part_ * kResults;
    if (first >= kSums) return;
    const int row = thread_.ActivationRow(first);
    const int rows = args_.gemm.m - row;  // left
    const int64_t pitch = args_.gemm.epilogue.y_pitch;
    char* const y = static_cast<char*>(args_.gemm.epilogue.y) + row * pitch +
                    tile_.first_col * int64_t{sizeof(T)};
    char* to[2];
    bool exists[2];
    float w_scale[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      // With fewer than 3 results all are of one half.
      const int its_half = kResults < 4 ? first >> 1 & 1 : half;
      to[half] = y + thread_.Column(its_half) * int{sizeof(T)};
      exists[half] = Exists(its_half);
      w_scale[half] = OfHalf(w_scale_, 2 * its_half);
    }
    const float* const from =
        exchanged + exchange_ + (first - first_sum_) * pitch_;
    x_scales += row;
#pragma unroll
    for (int i = 0; i < kResults; ++i) {
      const int half = i >> 1 & 1;
      const int further = (i >> 2) * 8 + (i & 1);  // rows
      float sum = sums[i];
      if constexpr (kParts > 1) {
        sum = from[i * pitch_];
#pragma unroll
        for (int part = 1; part < kParts; ++part) {
          sum += from[part * next_ + i * pitch_];
        }
      }
      if constexpr (!kVariant.block_scales) {
        sum = (sum * x_scales[further]) * w_scale[half];
      }
      const T value = {Encode16(DTypeOf<T>::value, sum)};
      char* const at = (i & 1) == 0 ? to[half] : to[half] + pitch;
      if (exists[half] && further < rows) *reinterpret_cast<T*>(at) = value;
      if (i % 4 == 3) {
        to[0] += 8 * pitch;
        to[1] += 8 * pitch;
      }
    }
  }

  __forceinline__ __device__ void StoreParts(const RingTileSums<kVariant>& sums,
                                             const float* exchanged,
                                             const float* x_scales) const {
    const int parts = epilogue_.gated() ? kParts / 2 : kParts;
    const int first = FirstPart();
    const int end = first + Parts();
#pragma unroll 1
    for (int part = first; part < end && part < parts; ++part) {
      ResultPlace at[kTogether];
      Places(part, at);
      const ResultInputs<kTogether> inputs = Inputs(part, at);
      float sum[kTogether];
      Sums(part, 0, at, sums, exchanged, x_scales, sum);
      if (!epilogue_.gated()) {
        epilogue_.Store(at, inputs, sum);
      } else {
        float up[kTogether];
        Sums(part, 2, at, sums, exchanged, x_scales, up);
        epilogue_.StoreGated(at, inputs, sum, up);
      }
    }
  }

  // Of parts, those of this thread; the first can be past the last.
  // NOTE: adjacent ones, for a block of a cluster has adjacent sums.
  __device__ int Parts() const {
    const int parts = epilogue_.gated() ? kParts / 2 : kParts;
    const int partial_sums = PartialSums(args_.plan);
    return parts < partial_sums ? 1 : parts / partial_sums;
  }
  __device__ int FirstPart() const { return first_part_ * Parts(); }

  // The sum, or that of the gate, of result `i` of a part.
  __forceinline__ __device__ int SumIndex(int part, int i) const {
    const auto result = static_cast<unsigned>(part * kTogether + i);
    return static_cast<int>(thread_.gated() ? result / 2 * 4 + result % 2
                                            : result);
  }
  __device__ bool Exists(int half) const {
    return thread_.Column(half) < tile_.cols;
  }

  __forceinline__ __device__ void Places(int part,
                                         ResultPlace (&at)[kTogether]) const {
#pragma unroll
    for (int i = 0; i < kTogether; ++i) {
      const int sum = SumIndex(part, i);
      const int half = sum >> 1 & 1;
      const int row = thread_.ActivationRow(sum);
      at[i] = {row, tile_.first_col + thread_.Column(half),
               Exists(half) && row < args_.gemm.m};
    }
  }

  __forceinline__ __device__ ResultInputs<kTogether> Inputs(
      int part, const ResultPlace (&at)[kTogether]) const {
    ResultInputs<kTogether> inputs;
#pragma unroll
    for (int i = 0; i < kTogether; ++i) {
      inputs.bias[i] = OfHalf(bias_, SumIndex(part, i));
      inputs.up_bias[i] = bias_[1];
      if constexpr (kEarly) inputs.residual[i] = residual_[i];
    }
    if (!kEarly || part != FirstPart()) {
      epilogue_.LoadResidual(at, inputs.residual);
    }
    return inputs;
  }

  // `further`: sums behind those of SumIndex.
  __forceinline__ __device__ void Sums(int part, int further,
                                       const ResultPlace (&at)[kTogether],
                                       const RingTileSums<kVariant>& sums,
                                       const float* exchanged,
                                       const float* x_scales,
                                       float (&sum)[kTogether]) const {
    const int partial_sums = PartialSums(args_.plan);
    if (partial_sums == 1) {
#pragma unroll
      for (int i = 0; i < kTogether; ++i) {
        sum[i] = At(sums, SumIndex(part, i) + further);
      }
    } else {
      const float* from = exchanged + exchange_;
#pragma unroll
      for (int i = 0; i < kTogether; ++i) {
        sum[i] = from[(SumIndex(part, i) + further - first_sum_) * pitch_];
      }
#pragma unroll
      for (int its = 1; its < kMostParts; ++its) {
        if (its == partial_sums) break;
        from += next_;
#pragma unroll
        for (int i = 0; i < kTogether; ++i) {
          sum[i] += from[(SumIndex(part, i) + further - first_sum_) * pitch_];
        }
      }
    }
    if constexpr (!kVariant.block_scales) {
#pragma unroll
      for (int i = 0; i < kTogether; ++i) {
        sum[i] = (sum[i] * x_scales[at[i].row]) *
                 OfHalf(w_scale_, SumIndex(part, i) + further);
      }
    }
  }

  // NOTE: an index would put them into memory, as one of At would the sums.
  __device__ static float OfHalf(const float (&values)[2], int sum) {
    const float first = values[0];
    const float second = values[1];
    return (sum & 2) == 0 ? first : second;
  }
  __forceinline__ __device__ static float At(const RingTileSums<kVariant>& sums,
                                             int index) {
    float sum = sums[0];
#pragma unroll
    for (int i = 1; i < kSums; ++i) {
      if (i == index) sum = sums[i];
    }
    return sum;
  }

  const RingGemmArgs& args_;
  const Epilogue& epilogue_;
  const RingTile& tile_;
  RingThread<kVariant> thread_;
  int first_part_;  // of the partial sums, that of this thread
  // In what is exchanged: the place of this thread's first sum of the first
  // partial sum, the distances of partial sums and of sums. Of a cluster, which
  // sum that is.
  int exchange_;
  int next_;
  int pitch_;
  int first_sum_ = 0;
  // Of both halves' columns; with a gate, of the gate and of up.
  float bias_[2];
  float w_scale_[2] = {1.0f, 1.0f};
  float residual_[kTogether] = {};  // of the first part, kEarly
};

}  // namespace lamina::gemm_internal
