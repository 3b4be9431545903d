#pragma once

// What all GPU kernels of DecodeAttention are given: plain values.

#include <cstdint>

#include "lamina/attention/kv_cache_view.h"
#include "lamina/core/device/host_device.h"
#include "lamina/core/views.h"

namespace lamina::attention_internal {

inline constexpr int kGpuChunk = 256;  // kAttentionChunk

struct AttentionKernelArgs {
  ConstMatrixView q = {};
  MatrixView y = {};
  KvCacheView cache = {};
  const int32_t* sequence_ids = nullptr;
  const int32_t* positions = nullptr;
  int32_t window = 0;  // 0: none
  int32_t group = 1;   // query heads of a KV head
  float scale = 1;
  float* partials = nullptr;  // results of parts of a context
  int64_t first_token = 0;    // of a launch

  LAMINA_HD int64_t Sequence(int64_t token) const {
    return sequence_ids == nullptr ? token : sequence_ids[token];
  }
  // First position that a token at `position` attends to.
  LAMINA_HD int32_t First(int32_t position) const {
    return window > 0 && window <= position ? position + 1 - window : 0;
  }
};

}  // namespace lamina::attention_internal
