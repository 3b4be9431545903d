#pragma once

// AdvanceTokens: the end of a decoding step whose tokens stay on the device.
// Notes the ids that were chosen and moves every sequence on by one position,
// so that the same recorded step (core/graph.h) can be launched again.
//
//   // step: int64_t*, positions: int32_t*, ids: const int64_t*, all on the
//   // device; history: int64_t*, [slots, sequences]
//   absl::Status status =
//       AdvanceTokens({.ids = Vector(ids, sequences),
//                      .positions = Vector(positions, sequences),
//                      .last_position = capacity - 1,
//                      .history = Matrix(history, slots, sequences),
//                      .step = step},
//                     stream);
//
// The rule:
//   history[step mod slots][t] = ids[t]
//   positions[t] = min(positions[t] + 1, last_position)
//   step = step + 1
// So one step too many writes over the last position of the cache and not past
// it.
//
// Shapes: ids and positions [sequences], history [slots >= 1, sequences] with
// any row pitch; *step >= 0.
// Aliasing: none of the four overlap.
// Errors: InvalidArgument.

#include <cstdint>

#include "absl/status/status.h"
#include "lamina/core/stream.h"
#include "lamina/core/views.h"

namespace lamina {

struct AdvanceTokensArgs {
  ConstVectorView ids;   // [sequences] i64
  VectorView positions;  // [sequences] i32, in and out
  int64_t last_position = 0;
  MatrixView history;       // [slots, sequences] i64
  int64_t* step = nullptr;  // in and out
};
[[nodiscard]] absl::Status AdvanceTokens(const AdvanceTokensArgs& args,
                                         Stream stream);

}  // namespace lamina
