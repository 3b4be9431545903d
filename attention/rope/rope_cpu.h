#pragma once

#include <cstdint>

#include "lamina/attention/rope.h"

namespace lamina::attention_internal {

// Tokens [begin, end) of checked arguments.
void RopeCpu(const RopeArgs& args, int64_t begin, int64_t end);

}  // namespace lamina::attention_internal
