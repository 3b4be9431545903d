#pragma once

// How the GPU norms split their rows: plain values, no GPU needed.

#include "lamina/norm/norm_args.h"

namespace lamina::norm_internal {

constexpr NormPlan SelectNormPlan(int64_t rows, int64_t cols, bool whole,
                                  const gpu::RowArch& arch) {
  if (whole) return {.split = gpu::SelectRowSplit(rows, cols, arch)};
  // Element by element: alignment only decides the speed.
  if (cols <= 256) {
    return {.split = gpu::SelectRowSplit(rows, cols, arch), .whole = false};
  }
  const int64_t lanes = RoundUp(CeilDiv(cols, 16), 128);
  return {.split = {.scope = gpu::RowScope::kBlock,
                    .octets = 2,
                    .lanes = static_cast<int>(lanes < 512 ? lanes : 512)},
          .whole = false};
}

}  // namespace lamina::norm_internal
