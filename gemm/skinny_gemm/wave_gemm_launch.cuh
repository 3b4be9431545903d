#pragma once

// The kernels of the pairs of types that tensor cores multiply as T; a source
// file instantiates each T.

#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "lamina/core/launch.cuh"
#include "lamina/core/launch_matching.cuh"
#include "lamina/core/math.h"
#include "lamina/gemm/skinny_gemm/wave_gemm.cuh"

namespace lamina::gemm_internal {

// Every number of rows of x with each pair of types that the tensor cores
// multiply as T.
template <class T>
constexpr auto WaveGemmVariantsOf() {
  constexpr bool kBF16 = std::is_same_v<T, BF16>;
  std::array<WaveGemmVariant, kBF16 ? 8 : 12> variants;
  std::size_t i = 0;
  for (const WaveTypes types :
       {WaveTypes::kBF16, WaveTypes::kF8BF16, WaveTypes::kF16,
        WaveTypes::kF8F16, WaveTypes::kF8}) {
    if (MultipliesBF16(types) != kBF16) continue;
    for (const int rows : {8, 16, 32, 64}) {
      variants[i++] = {.types = types, .rows = rows};
    }
  }
  return variants;
}
template <class T>
inline constexpr auto kWaveGemmVariants = WaveGemmVariantsOf<T>();

template <class T, std::size_t kIndex>
inline constexpr WaveGemmVariant kWaveVariantAt =
    gpu::VariantAt<kWaveGemmVariants<T>>(kIndex);

template <class T, std::size_t kIndex>
__global__ void __launch_bounds__(kWaveGemmThreads,
                                  MinBlocks(kWaveVariantAt<T, kIndex>))
    WaveGemmKernel(WaveGemmArgs args) {
  WaveGemm<kWaveVariantAt<T, kIndex>>(args).Run();
}

template <class T>
gpu::Error LaunchWaveGemmOf(const GemmArgs& gemm, const WaveGemmPlan& plan,
                            const gpu::LaunchTarget& target) {
  WaveGemmVariant wanted = plan.variant;
  wanted.wave_size = target.wave_size;
  const int64_t row_bytes = BytesFor(gemm.w_type, gemm.k);
  const WaveGemmArgs args = {
      .gemm = gemm,
      .segments = static_cast<int>(CeilDiv(row_bytes, kWaveSegmentBytes))};
  const int cols =
      kWaveTileRows * WaveTiles(wanted) / (gemm.epilogue.gated ? 2 : 1);
  const gpu::LaunchShape shape{
      .blocks = CeilDiv(int64_t{gemm.epilogue.cols}, cols),
      .threads = kWaveGemmThreads,
      .shared_bytes = WaveGemmSharedBytes(wanted)};
  return gpu::LaunchMatching<kWaveGemmVariants<T>>(
      wanted, [&]<std::size_t kIndex>() {
        return gpu::Launch(&WaveGemmKernel<T, kIndex>, shape, target, args);
      });
}

}  // namespace lamina::gemm_internal
