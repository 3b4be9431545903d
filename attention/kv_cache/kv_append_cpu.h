#pragma once

#include <cstdint>

#include "lamina/attention/kv_cache.h"

namespace lamina::attention_internal {

// Tokens [begin, end) of checked arguments.
void KvAppendCpu(const KvAppendArgs& args, int64_t begin, int64_t end);

}  // namespace lamina::attention_internal
