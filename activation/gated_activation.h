#pragma once

#include "absl/status/status.h"
#include "lamina/core/gate.h"
#include "lamina/core/stream.h"
#include "lamina/core/views.h"
#include "lamina/quant/scale.h"

namespace lamina {

struct GatedActivationArgs {
  ConstMatrixView x;  // [batch, rows, 2 * cols]: T in {f32, f16, bf16}
  GateSpec gate;
  MatrixView y;       // [batch, rows, cols]: T; optional with `quantized`
  QuantizedOutput quantized;
};
[[nodiscard]] absl::Status GatedActivation(const GatedActivationArgs& args,
                                           Stream stream);

}  // namespace lamina
