#pragma once

// What the host hands to the GPU kernels of SkinnyGemm: plain values. Pitches
// count bytes.

#include <cstdint>

#include "lamina/core/device/host_device.h"
#include "lamina/core/dtype.h"
#include "lamina/core/gate.h"
#include "lamina/quant/quantized_args.h"

namespace lamina::gemm_internal {

// What becomes of the sums: epilogue.cuh.
struct EpilogueArgs {
  const void* bias = nullptr;  // [n]: f32 or y_type; optional
  DType bias_type = DType::kF32;
  bool gated = false;
  GateSpec gate = {};
  int cols = 0;                    // of the results: n, or n / 2 when gated
  const void* residual = nullptr;  // y_type; optional
  int64_t residual_pitch = 0;
  void* y = nullptr;  // optional
  int64_t y_pitch = 0;
  DType y_type = DType::kBF16;
  QuantizedArgs quantized = {};  // optional; static scales
  // Dynamic scales: fp32 results, rounded to y_type when round_values, which
  // another kernel quantises; [m, cols], dense.
  float* values = nullptr;
  bool round_values = false;
};

struct GemmArgs {
  const void* x = nullptr;  // [m, k]
  const void* w = nullptr;  // [n, k]
  int64_t x_pitch = 0;
  int64_t w_pitch = 0;
  int m = 0;
  int n = 0;
  int k = 0;
  DType x_type = DType::kBF16;
  DType w_type = DType::kBF16;
  ScaleArgs x_scales = {};  // of FP8 operands; null: 1
  ScaleArgs w_scales = {};
  bool block_scales = false;  // one of them changes every 128 columns
  EpilogueArgs epilogue = {};
};

// Every row begins at a multiple of 16 bytes. The pitch of one row is never
// used.
inline bool RowsStartAt16Bytes(const void* p, int64_t pitch, int rows) {
  return reinterpret_cast<uintptr_t>(p) % 16 == 0 &&
         (rows == 1 || pitch % 16 == 0);
}

}  // namespace lamina::gemm_internal
