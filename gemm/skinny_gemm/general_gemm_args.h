#pragma once

// What the host hands to the general kernel: plain values.

#include <cstdint>

#include "lamina/core/launch.h"
#include "lamina/gemm/skinny_gemm/gemm_args.h"

namespace lamina::gemm_internal {

struct GeneralGemmArgs {
  GemmArgs gemm;
  // Of a launch:
  int passes = 1;  // over x; blocks of the same columns follow each other
  int64_t first_cell = 0;  // of pass 0
};

// What a kernel is compiled for.
struct GeneralGemmVariant {
  int x_rows = 1;      // of a lane: 1, 2, 4 or 8
  int w_rows = 4;      // of a lane; even, because gate and up stay together
  bool fp8 = true;     // w
  bool octets = true;  // rows of x and w can be moved by octets
  int wave_size = 32;

  constexpr bool CompiledFor(bool) const { return true; }

  friend constexpr bool operator==(const GeneralGemmVariant&,
                                   const GeneralGemmVariant&) = default;
};

inline constexpr GeneralGemmVariant kGeneralGemmVariants[] = {
    {.x_rows = 1, .w_rows = 2, .fp8 = true},
    {.x_rows = 1, .w_rows = 2, .fp8 = false},
    {.x_rows = 1, .w_rows = 4, .fp8 = true},
    {.x_rows = 1, .w_rows = 4, .fp8 = false},
    {.x_rows = 2, .w_rows = 4, .fp8 = true},
    {.x_rows = 2, .w_rows = 4, .fp8 = false},
    {.x_rows = 4, .w_rows = 4, .fp8 = true},
    {.x_rows = 4, .w_rows = 4, .fp8 = false},
    {.x_rows = 8, .w_rows = 4, .fp8 = true},
    {.x_rows = 8, .w_rows = 4, .fp8 = false},
    {.x_rows = 8, .w_rows = 2, .fp8 = false, .octets = false},
};

// Blocks of 128 threads that an SM holds at least: what bounds the registers.
constexpr int MinBlocks(const GeneralGemmVariant& variant) {
  return variant.x_rows == 1 ? 4 : variant.x_rows <= 4 ? 3 : 2;
}

// How a launch goes about it.
struct GeneralGemmPlan {
  GeneralGemmVariant variant = {};  // wave_size: LaunchTarget's counts

  friend constexpr bool operator==(const GeneralGemmPlan&,
                                   const GeneralGemmPlan&) = default;
};

gpu::Error LaunchGeneralGemm(const GemmArgs& args, const GeneralGemmPlan& plan,
                             const gpu::LaunchTarget& target);

}  // namespace lamina::gemm_internal
