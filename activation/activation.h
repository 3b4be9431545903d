#pragma once

#include "absl/status/status.h"
#include "lamina/core/gate.h"
#include "lamina/core/stream.h"
#include "lamina/core/views.h"
#include "lamina/quant/scale.h"

namespace lamina {

struct ActivationArgs {
  ConstMatrixView x;  // [batch, rows, cols]: T
  ActivationKind kind = ActivationKind::kSilu;
  MatrixView y;       // T; may be x; optional with `quantized`
  QuantizedOutput quantized;
};
[[nodiscard]] absl::Status Activation(const ActivationArgs& args,
                                      Stream stream);

}  // namespace lamina
