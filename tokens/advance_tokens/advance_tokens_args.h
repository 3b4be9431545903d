#pragma once

// What the host hands to the GPU kernel of AdvanceTokens: plain values; and the
// rule for one sequence, which the CPU runs too.

#include <cstdint>

#include "lamina/core/device/host_device.h"
#include "lamina/core/launch.h"
#include "lamina/core/views.h"

namespace lamina::tokens_internal {

struct AdvanceTokensKernelArgs {
  const int64_t* ids = nullptr;
  int32_t* positions = nullptr;
  int64_t sequences = 0;
  int32_t last_position = 0;
  MatrixView history;
  int64_t* step = nullptr;
};

LAMINA_HD inline void AdvanceSequence(const AdvanceTokensKernelArgs& args,
                                      int64_t slot, int64_t sequence) {
  args.history.Row<int64_t>(slot)[sequence] = args.ids[sequence];
  int32_t& position = args.positions[sequence];
  position = position < args.last_position ? position + 1 : args.last_position;
}

gpu::Error LaunchAdvanceTokens(const AdvanceTokensKernelArgs& args,
                               const gpu::LaunchTarget& target);

}  // namespace lamina::tokens_internal
