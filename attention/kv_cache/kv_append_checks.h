#pragma once

// What KvAppend and RopeAppend share.

#include "absl/status/status.h"
#include "lamina/attention/kv_cache.h"

namespace lamina::attention_internal {

// Shapes, types, strides and pointers. Reads no device memory. `op` is what
// errors call the operator.
absl::Status CheckKvAppend(const KvAppendArgs& args, const char* op);

// The values that only a CPU can look at.
absl::Status CheckKvAppendTokens(const KvAppendArgs& args, const char* op);

// Of checked arguments.
void KvAppendCpu(const KvAppendArgs& args, const Stream& stream);

}  // namespace lamina::attention_internal
