#pragma once

#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lamina/core/gate.h"
#include "lamina/core/stream.h"
#include "lamina/core/views.h"
#include "lamina/quant/scale.h"

namespace lamina {

// y = epilogue(x · wᵀ)
struct SkinnyGemmArgs {
  ConstMatrixView x;        // [m, k]: f32, f16, bf16 or FP8
  ConstScaleView x_scales;  // FP8 x: per tensor, per row, per 128-block
  ConstMatrixView w;        // [n, k]: f16, bf16 or FP8; row = output channel
  ConstScaleView w_scales;  // FP8 w: per tensor, per row, per 128x128 tile
  ConstVectorView bias;     // [n]: y's dtype or f32; optional
  std::optional<GateSpec> gate;  // gated activation: y is [m, n / 2]
  ConstMatrixView residual;      // [m, n or n / 2]: y's dtype, added last
  MatrixView y;                  // f32, f16, bf16; optional with `quantized`
  QuantizedOutput quantized;
  void* workspace = nullptr;
  int64_t workspace_bytes = 0;
};
[[nodiscard]] absl::Status SkinnyGemm(const SkinnyGemmArgs& args,
                                      Stream stream);

// The part of the arguments that decides how much workspace is needed.
struct SkinnyGemmProblem {
  int64_t m = 0, n = 0, k = 0;
  DType x_type = DType::kBF16;
  DType w_type = DType::kBF16;
  DType y_type = DType::kBF16;
  bool gated = false;
  bool quantized = false;
};
[[nodiscard]] absl::StatusOr<int64_t> SkinnyGemmWorkspaceBytes(
    const SkinnyGemmProblem& problem, const DeviceInfo& device,
    int num_threads = 0);

}  // namespace lamina
