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
  if (split.scope == gpu::RowScope::kBlock || split.octets > 2) {
    // Two octets a lane, and four for SwiGLU past 512 lanes.
    const int64_t lanes = RoundUp(CeilDiv(problem.cols, int64_t{2} * 8), 128);
    split = {.scope = gpu::RowScope::kBlock,
             .octets = 2,
             .lanes = static_cast<int>(lanes < 1024 ? lanes : 1024)};
    variant.swiglu = problem.swiglu;
    if (problem.swiglu && lanes > 512) {
      split.octets = 4;
      split.lanes =
          static_cast<int>(RoundUp(CeilDiv(problem.cols, int64_t{4} * 8), 128));
      if (split.lanes > 512) split.lanes = 512;
    }
  }
  variant.kernel = RowKernel::kRow;
  variant.scope = split.scope;
  variant.octets = split.octets;
  if (problem.whole && split.columns() >= problem.cols) return plan;
  // Element by element, or too long: computed twice.
  const int64_t lanes = RoundUp(CeilDiv(problem.cols, 16), 128);
  split = {.scope = gpu::RowScope::kBlock,
           .octets = 2,
           .lanes = static_cast<int>(lanes < 512 ? lanes : 512)};
  variant = {.kernel = RowKernel::kLongRow,
             .scope = gpu::RowScope::kBlock,
             .octets = 2,
             .whole = false};
  return plan;
}

constexpr RowKernelPlan SelectRowKernelPlan(const RowKernelProblem& problem,
                                            const gpu::RowArch& arch) {
  if (problem.scale_of_row) return SelectRowPlan(problem, arch);
  return {.variant = {.whole = problem.whole,
                      .swiglu = problem.whole && problem.swiglu},
          .span = gpu::SelectSpanSplit(problem.rows, problem.cols, arch.units)};
}

}  // namespace lamina::activation_internal
