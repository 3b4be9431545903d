#pragma once

// Activation functions and gated products: what to compute (GateSpec) and the
// fp32 rule. It stands at the lowest rank because `activation` and the
// epilogue of `gemm` share it. core/gate-inl.h is the vector version, equal
// bit for bit; core/elementary.h has the functions below it.
//
//   silu(x)      = x * sigmoid(x)                      within 3.4 ULP
//   gelu(x)      = x * Phi(x)                          within 7.5 ULP
//   gelu_tanh(x) = x * sigmoid(2u),  u = sqrt(2/pi) (x + 0.044715 x^3)
//                = 0.5 x (1 + tanh u), without its cancellation and without
//                  NaN where u overflows; within 7.6 ULP for x >= -2, growing
//                  with |u| to 215 where results leave the normal range
//   relu(x)      = x < 0 ? 0 : x
//
// NaN gives NaN in all of them, relu included (sign and payload unspecified);
// -0 gives -0. silu, gelu and gelu_tanh give x itself for large x, +Inf for
// +Inf, and for -Inf the limit, -0 (the bare formula would give NaN). Tiny
// results are kept: silu(-88.5) is -3.3e-37.

#include <cstdint>

#include "lamina/core/device/host_device.h"
#include "lamina/core/elementary.h"

namespace lamina {

enum class ActivationKind : uint8_t {
  kSilu,
  kGelu,
  kGeluTanh,
  kRelu,
  kIdentity,
};
inline constexpr int kNumActivationKinds = 5;
constexpr const char* Name(ActivationKind kind) {
  switch (kind) {
    case ActivationKind::kSilu:
      return "silu";
    case ActivationKind::kGelu:
      return "gelu";
    case ActivationKind::kGeluTanh:
      return "gelu_tanh";
    case ActivationKind::kRelu:
      return "relu";
    case ActivationKind::kIdentity:
      return "identity";
  }
  return "invalid";
}

// Where gate and up stand in a row of 2 * cols elements.
enum class GateLayout : uint8_t {
  kGateFirst,    // [gate | up]   (Llama: silu(gate) * up)
  kGateSecond,   // [up | gate]
  kInterleaved,  // gate0, up0, gate1, up1, …   (gpt-oss)
};
inline constexpr int kNumGateLayouts = 3;
constexpr const char* Name(GateLayout layout) {
  switch (layout) {
    case GateLayout::kGateFirst:
      return "gate_first";
    case GateLayout::kGateSecond:
      return "gate_second";
    case GateLayout::kInterleaved:
      return "interleaved";
  }
  return "invalid";
}

// y = act(gate) * up, or with `clamped` gpt-oss's SwiGLU:
//   g = min(gate, limit)              (the gate has no lower clamp)
//   u = clamp(up, -limit, limit)
//   y = (g * sigmoid(alpha * g)) * (u + up_offset)
// A NaN passes the clamps.
struct GateSpec {
  ActivationKind kind = ActivationKind::kSilu;  // not read when clamped
  GateLayout layout = GateLayout::kGateFirst;
  bool clamped = false;
  // Of `clamped` alone:
  float alpha = 1.702f;
  float limit = 7.0f;  // 0: no clamp
  float up_offset = 1.0f;
};

namespace gate_internal {
// 2 sqrt(2/pi), and 0.044715 of it.
inline constexpr float kGeluTanh1 = 0x1.988454p+0f;
inline constexpr float kGeluTanh3 = 0x1.2444f2p-4f;
}  // namespace gate_internal

LAMINA_HD inline float Activate(ActivationKind kind, float x) {
  switch (kind) {
    case ActivationKind::kSilu:
      return TimesSigmoid(x, x);
    case ActivationKind::kGelu:
      return GaussianLinearUnit(x);
    case ActivationKind::kGeluTanh:
      return TimesSigmoid(x, x * std::fma(gate_internal::kGeluTanh3, x * x,
                                          gate_internal::kGeluTanh1));
    case ActivationKind::kRelu:
      return x < 0.0f ? 0.0f : x;
    case ActivationKind::kIdentity:
      return x;
  }
  return x;
}

LAMINA_HD inline float GatedProduct(const GateSpec& spec, float gate,
                                    float up) {
  if (!spec.clamped) return Activate(spec.kind, gate) * up;
  if (spec.limit != 0.0f) {
    gate = gate > spec.limit ? spec.limit : gate;
    up = up > spec.limit ? spec.limit : up;
    up = up < -spec.limit ? -spec.limit : up;
  }
  return TimesSigmoid(gate, spec.alpha * gate) * (up + spec.up_offset);
}

}  // namespace lamina
