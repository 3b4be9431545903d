#pragma once

// What Rope and RopeAppend share.

#include "absl/status/status.h"
#include "lamina/attention/rope.h"

namespace lamina::attention_internal {

// What errors call the operator and its arguments.
struct RopeNames {
  const char* op;
  const char* x = "x";
  const char* y = "y";
};
// Shapes, types, strides and pointers. Reads no device memory.
absl::Status CheckRope(const RopeArgs& args, const RopeNames& names);

// The values that only a CPU can look at.
absl::Status CheckRopePositions(const RopeArgs& args, const char* op);

// Of checked arguments that are not empty.
void RopeCpu(const RopeArgs& args, const Stream& stream);

}  // namespace lamina::attention_internal
