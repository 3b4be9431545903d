#pragma once

// The kernels of one pair of types; a source file instantiates each.

#include <array>
#include <cstddef>

#include "lamina/core/launch.cuh"
#include "lamina/core/launch_matching.cuh"
#include "lamina/gemm/skinny_gemm/ring_gemm.cuh"

namespace lamina::gemm_internal {

// The variants of one pair of types.
template <RingTypes kTypes>
constexpr auto RingGemmVariantsOf() {
  constexpr bool kScales = WeightBytes(kTypes) == 1;
  std::array<RingGemmVariant, kScales ? 8 : 4> variants;
  for (std::size_t i = 0; i < variants.size(); ++i) {
    variants[i] = {
        .types = kTypes, .rows = 8 << (i % 4), .block_scales = i >= 4};
  }
  return variants;
}
template <RingTypes kTypes>
inline constexpr auto kRingGemmVariants = RingGemmVariantsOf<kTypes>();

template <RingTypes kTypes, std::size_t kIndex>
inline constexpr RingGemmVariant kRingVariantAt =
    gpu::VariantAt<kRingGemmVariants<kTypes>>(kIndex);

template <RingTypes kTypes, std::size_t kIndex>
__global__ void __launch_bounds__(
    RingGemmThreads(MaxConsumers(kRingVariantAt<kTypes, kIndex>)), 1)
    RingGemmKernel(const __grid_constant__ RingGemmArgs args) {
  if constexpr (gpu::kHasWgmma) {
    RingGemm<kRingVariantAt<kTypes, kIndex>>(
        args, &args.x_map, &args.w_map, static_cast<int>(gpu::BlockIndex()))
        .Run();
  } else {
    gpu::WarpgroupFence();  // stops the kernel
  }
}

template <RingTypes kTypes>
gpu::Error LaunchRingGemmOf(const RingGemmArgs& args,
                            const gpu::LaunchTarget& target) {
  RingGemmVariant wanted = args.plan.variant;
  wanted.wave_size = target.wave_size;
  const gpu::LaunchShape shape{.blocks = args.plan.blocks,
                               .threads = RingGemmThreads(args.plan.consumers),
                               .cluster_blocks = args.plan.cluster,
                               .shared_bytes = args.layout.bytes};
  return gpu::LaunchMatching<kRingGemmVariants<kTypes>>(
      wanted, [&]<std::size_t kIndex>() {
        return gpu::Launch<RingGemmArgs>(&RingGemmKernel<kTypes, kIndex>, shape,
                                         target, args);
      });
}

}  // namespace lamina::gemm_internal
