#pragma once

// The kernels of one type of q; a source file instantiates each.

#include <array>
#include <cstddef>

#include "lamina/attention/decode_attention/tensor_attention.cuh"
#include "lamina/core/launch.cuh"
#include "lamina/core/launch_matching.cuh"

namespace lamina::attention_internal {

constexpr int Log2(int power_of_two) {
  int log2 = 0;
  while ((1 << log2) < power_of_two) ++log2;
  return log2;
}

template <class T>
inline constexpr std::array kTensorVariants = {
    TensorAttentionVariant{DTypeOf<T>::value, false, 64, kFewTensorRows},
    TensorAttentionVariant{DTypeOf<T>::value, false, 64, kTensorRows},
    TensorAttentionVariant{DTypeOf<T>::value, false, 128, kFewTensorRows},
    TensorAttentionVariant{DTypeOf<T>::value, false, 128, kTensorRows},
    TensorAttentionVariant{DTypeOf<T>::value, true, 64, kFewTensorRows},
    TensorAttentionVariant{DTypeOf<T>::value, true, 64, kTensorRows},
    TensorAttentionVariant{DTypeOf<T>::value, true, 128, kFewTensorRows},
    TensorAttentionVariant{DTypeOf<T>::value, true, 128, kTensorRows}};

template <class T, std::size_t kIndex>
struct TensorTraitsOf {
  static constexpr TensorAttentionVariant kVariant =
      gpu::VariantAt<kTensorVariants<T>>(kIndex);
  using type = tensor::Traits<T, std::conditional_t<kVariant.fp8, F8E4M3Fn, T>,
                              kVariant.dims, kVariant.rows>;
};

// NOTE: two blocks a unit where there are that many.
template <class T, std::size_t kIndex>
__global__ void __launch_bounds__(
    kTensorWaves* tensor::kWave,
    TensorTraitsOf<T, kIndex>::kVariant.rows == kFewTensorRows ? 2 : 1)
    TensorAttentionKernel(TensorAttentionArgs args) {
  gpu::AllowDependents();
  tensor::Attend<typename TensorTraitsOf<T, kIndex>::type>(args);
}

constexpr int kFoldSplitsThreads = 128;
template <class T>
__global__ void __launch_bounds__(kFoldSplitsThreads)
    FoldSplitsKernel(FoldSplitsArgs args) {
  gpu::AllowDependents();
  gpu::WaitForPredecessor();
  tensor::FoldSplits<T>(args.attention);
}

template <class T, std::size_t kIndex>
gpu::Error LaunchTensorVariant(TensorAttentionArgs args, int64_t tokens,
                               const TensorAttentionPlan& plan,
                               const gpu::LaunchTarget& target) {
  using S = typename TensorTraitsOf<T, kIndex>::type;
  AttentionKernelArgs& attention = args.attention;
  const int64_t blocks =
      int64_t{plan.slots} * args.parts.divisor * args.heads.divisor;
  const int64_t most = gpu::MaxBlocks(S::kThreads, gpu::kGridBlocks) / blocks;
  const int64_t at_once = most < 1             ? 1
                          : most < plan.tokens ? most
                                               : plan.tokens;
  const gpu::LaunchShape shape{.threads = S::kThreads,
                               .cluster_blocks = plan.cluster_blocks,
                               .shared_bytes = tensor::LayoutOf<S>(args).bytes};
  return gpu::LaunchInParts(tokens, at_once, [&](int64_t first, int64_t count) {
    attention.first_token = first;
    args.last_token = first + count;
    gpu::LaunchShape part = shape;
    part.blocks = count * blocks;
    const gpu::Error error =
        gpu::Launch(&TensorAttentionKernel<T, kIndex>, part, target, args);
    if (!error.ok() || plan.cluster_blocks == plan.slots) return error;
    gpu::LaunchTarget fold = target;
    fold.overlap = target.overlap || plan.overlap_fold;
    return gpu::Launch(
        &FoldSplitsKernel<T>,
        {.blocks = count * attention.q.rows, .threads = kFoldSplitsThreads},
        fold, FoldSplitsArgs{args});
  });
}

template <class T>
gpu::Error LaunchTensorAttentionOf(const AttentionKernelArgs& attention,
                                   int64_t tokens,
                                   const TensorAttentionPlan& plan,
                                   const gpu::LaunchTarget& target) {
  const int64_t group = attention.group;
  const int64_t rows = group < plan.variant.rows ? group : plan.variant.rows;
  const TensorAttentionArgs args{
      .attention = attention,
      .split = plan.split,
      .max_splits = plan.splits,
      .cluster_blocks = plan.cluster_blocks,
      .slice_shift = Log2(plan.variant.dims / plan.cluster_blocks),
      .run_tokens = plan.run_tokens,
      .group_rows = static_cast<int32_t>(rows),
      .stages = plan.stages,
      .run_ahead = plan.run_ahead,
      .prefetch_rows = target.overlap ? plan.prefetch_rows : 0,
      .max_position = static_cast<int32_t>(plan.max_position),
      .slots = MakeFastDivisor(plan.slots),
      .parts = MakeFastDivisor(CeilDiv(group, rows)),
      .heads = MakeFastDivisor(attention.cache.kv_heads),
      .page = MakeFastDivisor(attention.cache.page_tokens),
      .short_splits = MakeFastDivisor(plan.split.max_splits),
      .long_splits = MakeFastDivisor(plan.split.long_splits)};
  TensorAttentionVariant wanted = plan.variant;
  wanted.wave_size = target.wave_size;
  return gpu::LaunchMatching<kTensorVariants<T>>(
      wanted, [&]<std::size_t kIndex>() {
        return LaunchTensorVariant<T, kIndex>(args, tokens, plan, target);
      });
}

}  // namespace lamina::attention_internal
