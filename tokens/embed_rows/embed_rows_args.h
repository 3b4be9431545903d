#pragma once

// What the host hands to the GPU kernel of EmbedRows: plain values.

#include <cstdint>

#include "lamina/core/launch.h"
#include "lamina/core/views.h"

namespace lamina::tokens_internal {

struct EmbedRowsKernelArgs {
  ConstMatrixView table;
  ConstVectorView ids;
  MatrixView y;
  bool octets = false;     // rows can be moved by octets
  int64_t row_blocks = 1;  // blocks a row
  int64_t first_row = 0;
};

inline constexpr int kEmbedRowsLanes = 128;  // an octet each

gpu::Error LaunchEmbedRows(const EmbedRowsKernelArgs& args,
                           const gpu::LaunchTarget& target);

}  // namespace lamina::tokens_internal
