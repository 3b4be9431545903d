#pragma once

// Rope, KvAppend and RopeAppend on a GPU, seen from the host. The arguments are
// valid and there is something to do.

#include "absl/status/status.h"
#include "lamina/attention/kv_cache.h"
#include "lamina/attention/rope.h"
#include "lamina/attention/rope_append.h"
#include "lamina/core/stream.h"

namespace lamina::attention_internal {

absl::Status RopeGpu(const RopeArgs& args, const Stream& stream);
absl::Status KvAppendGpu(const KvAppendArgs& args, const Stream& stream);
absl::Status RopeAppendGpu(const RopeAppendArgs& args, const Stream& stream);

}  // namespace lamina::attention_internal
