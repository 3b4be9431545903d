#pragma once

// What becomes of a PrefillGemm's sums: scales that it did not apply, and the
// epilogue of SkinnyGemm.

#include "lamina/core/launch.h"
#include "lamina/gemm/skinny_gemm/gemm_args.h"

namespace lamina::gemm_internal {

struct PrefillEpilogueArgs {
  GemmArgs gemm = {};           // m: as many as there are; no block_scales
  const float* sums = nullptr;  // [m, n], dense
};

gpu::Error LaunchPrefillEpilogue(const PrefillEpilogueArgs& args,
                                 const gpu::LaunchTarget& target);

}  // namespace lamina::gemm_internal
