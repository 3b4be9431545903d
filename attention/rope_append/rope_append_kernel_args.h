#pragma once

// What the host hands to the kernel of Rope, KvAppend and RopeAppend: plain
// values.

#include <cstdint>

#include "lamina/attention/kv_cache_view.h"
#include "lamina/core/launch.h"
#include "lamina/core/math.h"
#include "lamina/core/views.h"

namespace lamina::attention_internal {

struct RopeAppendKernelArgs {
  // [tokens, heads, head_dim] each; one without data has no heads.
  ConstMatrixView q = {}, k = {}, v = {};
  MatrixView y = {};       // where rotated q goes
  MatrixView k_out = {};   // where rotated k goes; optional
  KvCacheView cache = {};  // takes k and v
  const float* table = nullptr;
  int64_t table_stride = 0;
  int32_t rotary_dim = 0;  // 0: nothing is rotated
  int32_t head_dim = 0;
  bool adjacent = false;  // RopePairing
  const int32_t* sequence_ids = nullptr;
  const int32_t* positions = nullptr;
  bool octets = false;  // set by the launcher
  // Of a launch:
  int64_t first_token = 0;
  FastDivisor units = {};   // of a head
  FastDivisor blocks = {};  // of a token
};

inline constexpr int kRopeAppendThreads = 128;

// Every row can be moved by octets, and a unit is two of them: rotary_dim and
// head_dim are multiples of 16.
gpu::Error LaunchRopeAppend(const RopeAppendKernelArgs& args, DType type,
                            int64_t tokens, bool octets,
                            const gpu::LaunchTarget& target);

}  // namespace lamina::attention_internal
