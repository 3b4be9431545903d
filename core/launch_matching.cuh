#pragma once

// From the variant that the host wants to the kernel that was compiled for it.

#include <cstddef>
#include <iterator>
#include <utility>

#include "lamina/core/device/intrinsics.cuh"
#include "lamina/core/launch.h"

namespace lamina::gpu {

// kVariants is an array of structural values with a member wave_size. Calls
// launch.template operator()<kVariant>() for the one that equals `wanted`, at
// any of the vendor's wave sizes.
template <const auto& kVariants, class Variant, class Launcher>
Error LaunchMatching(const Variant& wanted, Launcher&& launch) {
  constexpr auto with_wave = [](Variant variant, int wave_size) {
    variant.wave_size = wave_size;
    return variant;
  };
  constexpr std::size_t kWaves = std::size(kWaveSizes);
  constexpr std::size_t kCount = std::size(kVariants) * kWaves;
  Error error = kNoKernel;
  const auto try_one = [&]<Variant kVariant>() {
    if (!(kVariant == wanted)) return false;
    error = launch.template operator()<kVariant>();
    return true;
  };
  [&]<std::size_t... kIndex>(std::index_sequence<kIndex...>) {
    (try_one.template operator()<with_wave(kVariants[kIndex / kWaves],
                                           kWaveSizes[kIndex % kWaves])>() ||
     ...);
  }
  (std::make_index_sequence<kCount>());
  return error;
}

}  // namespace lamina::gpu
