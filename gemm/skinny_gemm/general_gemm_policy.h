#pragma once

// How the general kernel splits a problem: plain values, no GPU needed.

#include <cstdint>

#include "lamina/core/math.h"
#include "lamina/gemm/skinny_gemm/general_gemm_args.h"

namespace lamina::gemm_internal {

struct GeneralGemmProblem {
  int64_t m = 0;
  int64_t n = 0;
  bool fp8 = false;     // w
  bool octets = false;  // as in GeneralGemmVariant
};

// `units`: SMs or CUs. NOTE: a plan never changes a result.
constexpr GeneralGemmPlan SelectGeneralGemmPlan(
    const GeneralGemmProblem& problem, int units) {
  if (!problem.octets) {
    return {{.x_rows = 8, .w_rows = 2, .fp8 = false, .octets = false}};
  }
  GeneralGemmVariant variant{.fp8 = problem.fp8};
  variant.x_rows = problem.m == 1   ? 1
                   : problem.m == 2 ? 2
                   : problem.m <= 4 ? 4
                                    : 8;
  // Fewer rows a lane spread few rows over more units (predicted, not timed).
  if (problem.m == 1 && problem.n < int64_t{64} * units) variant.w_rows = 2;
  return {variant};
}

}  // namespace lamina::gemm_internal
