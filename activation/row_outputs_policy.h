#pragma once

// How the GPU kernels split their rows: plain values, no GPU needed.

#include "lamina/activation/row_outputs_args.h"

namespace lamina::activation_internal {

struct RowKernelProblem {
  int64_t rows = 0;
  int64_t cols = 0;
  bool scale_of_row = false;
  bool whole = false;   // as in RowKernelVariant
  bool swiglu = false;  // likewise
};

constexpr RowKernelPlan SelectRowPlan(const RowKernelProblem& problem,
                                      const gpu::RowArch& arch) {
  RowKernelPlan plan{.split =
                         gpu::SelectRowSplit(problem.rows, problem.cols, arch)};
  RowKernelVariant& variant = plan.variant;
  gpu::RowSplit& split = plan.split;
  if (split.scope == gpu::RowScope::kBlock) {
    // Two octets a lane, and four for SwiGLU past 512 lanes.
    const int64_t lanes =
        RoundUp(CeilDiv(problem.cols, int64_t{2} * 8), arch.wave_size);
    split.octets = 2;
    split.lanes = static_cast<int>(lanes < 1024 ? lanes : 1024);
    variant.swiglu = problem.swiglu;
    if (problem.swiglu && lanes > 512) {
      split.octets = 4;
      split.lanes = static_cast<int>(
          RoundUp(CeilDiv(problem.cols, int64_t{4} * 8), arch.wave_size));
      if (split.lanes > 512) split.lanes = 512;
    }
  }
  variant.kernel = RowKernel::kRow;
  variant.scope = split.scope;
  variant.octets = split.octets;
  if (problem.whole && split.columns() >= problem.cols) return plan;
  // Element by element, or too long: computed twice.
  const int64_t lanes = RoundUp(CeilDiv(problem.cols, 16), arch.wave_size);
  split = {.scope = gpu::RowScope::kBlock,
           .octets = 2,
           .lanes = static_cast<int>(lanes < 512 ? lanes : 512)};
  variant = {.kernel = RowKernel::kLongRow,
             .scope = gpu::RowScope::kBlock,
             .octets = 2,
             .whole = false};
  return plan;
}

constexpr RowKernelPlan SelectSpanPlan(const RowKernelProblem& problem,
                                       const gpu::RowArch& arch) {
  RowKernelPlan plan{.variant = {.whole = problem.whole,
                                 .swiglu = problem.whole && problem.swiglu}};
  const int64_t octets = CeilDiv(problem.cols, 8);
  const int64_t total = problem.rows * octets;
  // Small blocks spread few results over more SMs; when all SMs are full, a
  // lane that owns several octets spends less on finding them.
  plan.threads = total <= int64_t{512} * arch.units ? 64 : 128;
  plan.lanes = 1;
  while (plan.lanes < octets && plan.lanes < plan.threads) plan.lanes *= 2;
  if (total >= int64_t{4096} * arch.units) {
    while (plan.octets < 4 && plan.lanes * plan.octets < octets) {
      plan.octets *= 2;
    }
  }
  return plan;
}

constexpr RowKernelPlan SelectRowKernelPlan(const RowKernelProblem& problem,
                                            const gpu::RowArch& arch) {
  return problem.scale_of_row ? SelectRowPlan(problem, arch)
                              : SelectSpanPlan(problem, arch);
}

}  // namespace lamina::activation_internal
