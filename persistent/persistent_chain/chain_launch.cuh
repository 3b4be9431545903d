#pragma once

// The kernels of one pair of types; a source file instantiates each.

#include <cstddef>

#include "lamina/core/launch.cuh"
#include "lamina/core/launch_matching.cuh"
#include "lamina/persistent/persistent_chain/chain.cuh"

namespace lamina::persistent_internal {

template <gemm_internal::RingTypes kTypes, std::size_t kIndex>
__global__ void __launch_bounds__(
    gemm_internal::RingGemmThreads(Consumers(kTypes)), 1)
    ChainKernel(const __grid_constant__ ChainArgs args) {
  if constexpr (gpu::kHasWgmma) {
    Chain<gpu::VariantAt<kChainVariants<kTypes>>(kIndex)>(args).Run();
  } else {
    gpu::WarpgroupFence();  // stops the kernel
  }
}

template <gemm_internal::RingTypes kTypes>
gpu::Error LaunchChainOf(const ChainArgs& args,
                         const gpu::LaunchTarget& target) {
  ChainVariant wanted = args.variant;
  wanted.wave_size = target.wave_size;
  const gpu::LaunchShape shape{
      .blocks = args.blocks,
      .threads = gemm_internal::RingGemmThreads(Consumers(kTypes)),
      .shared_bytes = args.layout.bytes,
      .together = true};
  return gpu::LaunchMatching<kChainVariants<kTypes>>(
      wanted, [&]<std::size_t kIndex>() {
        return gpu::Launch<ChainArgs>(&ChainKernel<kTypes, kIndex>, shape,
                                      target, args);
      });
}

}  // namespace lamina::persistent_internal
