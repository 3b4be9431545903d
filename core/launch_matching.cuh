#pragma once

// From what the host wants to launches: of the kernel that was compiled for it,
// over as many rows as a grid takes.

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <utility>

#include "lamina/core/device/intrinsics.cuh"
#include "lamina/core/launch.h"

namespace lamina::gpu {

// The variants of an operator's kernels: kVariants, an array of plain values
// with a member wave_size, at each of the vendor's wave sizes.
//
// NOTE: kernels take the index, not the value: nvcc 13 cannot name a structural
// argument of a namespaced type in the code that it makes for the host.
template <const auto& kVariants>
inline constexpr std::size_t kVariantCount =
    std::size(kVariants) * std::size(kWaveSizes);
template <const auto& kVariants>
constexpr auto VariantAt(std::size_t index) {
  auto variant = kVariants[index / std::size(kWaveSizes)];
  variant.wave_size = kWaveSizes[index % std::size(kWaveSizes)];
  return variant;
}

// Whether there is a kernel for it: variants can say that they are for GPUs
// with clusters, or without.
template <class Variant>
constexpr bool IsCompiled(const Variant& variant) {
  bool compiled = false;
  for (const bool clusters : kClusterChoices) {
    compiled = compiled || variant.CompiledFor(clusters);
  }
  return compiled;
}

// Calls launch.template operator()<index>() for the variant that is `wanted`.
template <const auto& kVariants, class Variant, class Launcher>
Error LaunchMatching(const Variant& wanted, Launcher&& launch) {
  Error error = kNoKernel;
  const auto try_one = [&]<std::size_t kIndex>() {
    constexpr auto kVariant = VariantAt<kVariants>(kIndex);
    if constexpr (IsCompiled(kVariant)) {
      if (!(kVariant == wanted)) return false;
      error = launch.template operator()<kIndex>();
      return true;
    }
    return false;
  };
  [&]<std::size_t... kIndex>(std::index_sequence<kIndex...>) {
    (try_one.template operator()<kIndex>() || ...);
  }
  (std::make_index_sequence<kVariantCount<kVariants>>());
  return error;
}

// Calls launch(first, count) for parts of `rows` rows, `most` or fewer each,
// until one fails.
template <class Launcher>
Error LaunchInParts(int64_t rows, int64_t most, Launcher&& launch) {
  for (int64_t first = 0; first < rows; first += most) {
    const int64_t left = rows - first;
    const Error error = launch(first, left < most ? left : most);
    if (!error.ok()) return error;
  }
  return {};
}

}  // namespace lamina::gpu
