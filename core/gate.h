#pragma once

// Activation functions and gated products: what to compute (GateSpec) and the
// fp32 rule. It stands at the lowest rank because `activation` and the
// epilogue of `gemm` share it.

#include <cstdint>

#include "lamina/core/attributes.h"

namespace lamina {

enum class ActivationKind : uint8_t {
  kSilu,      // x / (1 + exp(-x))
  kGelu,      // x * Phi(x), by erf
  kGeluTanh,  // the tanh approximation
  kRelu,
  kIdentity,
};

// Where gate and up stand in a row of 2 * cols elements.
enum class GateLayout : uint8_t {
  kGateFirst,    // [gate | up]   (Llama: silu(gate) * up)
  kGateSecond,   // [up | gate]
  kInterleaved,  // gate0, up0, gate1, up1, …   (gpt-oss)
};

// y = act(gate) * up, or with `clamped` gpt-oss's SwiGLU:
//   g = min(gate, limit); u = clamp(up, -limit, limit)
//   y = g * sigmoid(alpha * g) * (u + up_offset)
struct GateSpec {
  ActivationKind kind = ActivationKind::kSilu;
  GateLayout layout = GateLayout::kGateFirst;
  bool clamped = false;
  float alpha = 1.702f;
  float limit = 7.0f;  // 0: no clamp
  float up_offset = 1.0f;
};

}  // namespace lamina
