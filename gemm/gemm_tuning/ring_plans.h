#pragma once

// Between entries of a GemmTuning and the ring kernels' policy.

#include <optional>

#include "lamina/core/device.h"
#include "lamina/gemm/gemm_tuning.h"
#include "lamina/gemm/skinny_gemm/ring_gemm_policy.h"

namespace lamina::gemm_internal {

// Nothing for types without ring kernels and for sizes that no matrix has,
// whose bytes would not fit either.
inline std::optional<RingGemmProblem> RingProblemOf(const GemmTuningKey& key) {
  constexpr int64_t kMost = (int64_t{1} << 31) - 1;
  if (key.n < 1 || key.n > kMost || key.k < 1 || key.k > kMost) {
    return std::nullopt;
  }
  const std::optional<RingTypes> types = RingTypesOf(key.w_type, key.x_type);
  if (!types.has_value()) return std::nullopt;
  return RingGemmProblem{.m = key.rows,
                         .cols = key.gated ? key.n / 2 : key.n,
                         .k = key.k,
                         .types = *types,
                         .gated = key.gated,
                         .block_scales = key.block_scales,
                         .overlap = key.overlap};
}

inline RingArch RingArchOf(const DeviceInfo& device) {
  return {.units = device.num_units,
          .shared_bytes = device.shared_memory_bytes};
}

// The policy's choice with the entry's parts. NOTE: not those that the order of
// sums depends on.
inline std::optional<RingGemmChoice> ChoiceOf(const GemmTuningEntry& entry,
                                              const DeviceInfo& device) {
  const std::optional<RingGemmProblem> problem = RingProblemOf(entry.key);
  if (!problem.has_value()) return std::nullopt;
  const RingArch arch = RingArchOf(device);
  RingGemmChoice choice = SelectRingGemmChoice(*problem, arch);
  choice.blocks = entry.blocks;
  choice.ring_bytes = entry.ring_bytes;
  choice.x_ring_bytes = entry.x_ring_bytes;
  choice.tensor_copies = entry.tensor_copies;
  if (!MakeRingGemmPlan(*problem, choice, arch)) return std::nullopt;
  return choice;
}

}  // namespace lamina::gemm_internal
