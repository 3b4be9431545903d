#pragma once

// core/gate.h on a GPU, equal to it bit for bit (NaN: any NaN), with fewer
// instructions: the rule divides exactly and scales by 2^n in two steps, which
// common arguments do not need.
//
//   2^n       is one normal number for |v| < 70, and e = p * 2^n is exact. Then
//             x * e rounds once, as (x * p) * 2^a * 2^b does.
//   n / d     with 1 <= d <= 2 is QuickDivide.
//
// Other arguments, NaN and infinities among them, take the plain rule.

#include <bit>
#include <cmath>
#include <cstdint>

#include "lamina/core/elementary.h"
#include "lamina/core/gate.h"
#include "lamina/core/octet.cuh"
#include "lamina/core/quick_divide.cuh"

namespace lamina::gpu {

namespace gate_internal {

// |v| below which QuickTimesSigmoid is exact, for |v| / 64 <= |x| <= 2^64 |v|:
// numerators are then 0 or at least 2^-101, or d is 2.
inline constexpr float kQuickLimit = 70.0f;

// ScaledExp(x, 1) for -70 < x <= 0.
__device__ inline float QuickExp(float x) {
  constexpr auto kExp = elementary::kExp;
  const float shifted = std::fma(x, elementary::kLog2E, elementary::kRound);
  const float n = shifted - elementary::kRound;
  float r = std::fma(n, -elementary::kLn2High, x);
  r = std::fma(n, -elementary::kLn2Low, r);
  float q = kExp[4];
#pragma unroll
  for (int i = 3; i >= 0; --i) q = std::fma(q, r, kExp[i]);
  const float p = 1.0f + std::fma(q, r * r, r);
  // p * 2^n: the low bits of `shifted` are n, and its other bits leave a
  // float's end.
  return std::bit_cast<float>(std::bit_cast<uint32_t>(p) +
                              (std::bit_cast<uint32_t>(shifted) << 23));
}

// TimesSigmoid for |v| < kQuickLimit.
__device__ inline float QuickTimesSigmoid(float x, float v) {
  const float e = QuickExp(-std::fabs(v));
  return QuickDivide(MultiplyWhereNegative(x, e, v), 1.0f + e);
}

// NOTE: not inline, because it is rarely called and would be most of a kernel.
__attribute__((noinline)) inline __device__ float PlainTimesSigmoid(float x,
                                                                    float v) {
  return lamina::TimesSigmoid(x, v);
}

// TimesSigmoid of each pair; `limit` is kQuickLimit or less.
// NOTE: the check comes first. Loads of what is needed after the sigmoid stay
// before its branch; nvcc would move them to where an L2 hit would be in time.
__device__ inline Octet TimesSigmoid(const Octet& x, const Octet& v,
                                     float limit) {
  bool quick = true;
#pragma unroll
  for (int i = 0; i < kOctet; ++i) {
    quick &= std::fabs(v.v[i]) < limit;  // NaN: no
  }
  return quick ? Map(x, v, QuickTimesSigmoid) : Map(x, v, PlainTimesSigmoid);
}

// lamina::GaussianLinearUnit with the division above: 4 <= a + 4 <= 20.
__device__ inline float QuickGaussianLinearUnit(float x) {
  using elementary::kTailLimit;
  constexpr auto kTail = elementary::kTail;
  float a = std::fabs(x);
  a = a > kTailLimit ? kTailLimit : a;
  const float t = QuickDivide(a - 4.0f, a + 4.0f);
  float m = kTail[10];
#pragma unroll
  for (int i = 9; i >= 0; --i) m = std::fma(m, t, kTail[i]);
  const float h = 0.5f * a;
  const float s = a * h;
  const float s_low = std::fma(a, h, -s);
  const float scale = a * m;
  const float tail = ScaledExp(-s, std::fma(-s_low, scale, scale));
  return x < 0.0f ? -tail : x - tail;
}
// NOTE: not inline for the same reason.
__attribute__((noinline)) inline __device__ Octet GaussianLinearUnit(Octet x) {
  return Map(x, QuickGaussianLinearUnit);
}

}  // namespace gate_internal

// lamina::GatedProduct of each pair. The branches on `spec` are uniform; there
// is one copy of the sigmoid for all that have one.
__device__ inline Octet GatedProduct(const GateSpec& spec, const Octet& gate,
                                     const Octet& up) {
  using lamina::gate_internal::kGeluTanh1, lamina::gate_internal::kGeluTanh3;
  Octet x = gate;
  Octet factor = up;
  Octet v;  // x * sigmoid(v)
  float quick_limit = gate_internal::kQuickLimit;
  if (spec.clamped) {
    const float limit = spec.limit;
    if (limit != 0.0f) {
      x = Map(x, [&](float a) { return a > limit ? limit : a; });
      factor = Map(factor, [&](float a) {
        const float below = a > limit ? limit : a;
        return below < -limit ? -limit : below;
      });
    }
    v = Map(x, [&](float a) { return spec.alpha * a; });
    factor = Map(factor, [&](float a) { return a + spec.up_offset; });
    const float alpha = std::fabs(spec.alpha);
    if (!(alpha >= 0x1p-64f && alpha <= 64.0f)) quick_limit = 0.0f;
  } else if (spec.kind == ActivationKind::kSilu) {
    v = x;
  } else if (spec.kind == ActivationKind::kGeluTanh) {
    v = Map(
        x, [](float a) { return a * std::fma(kGeluTanh3, a * a, kGeluTanh1); });
  } else {
    if (spec.kind == ActivationKind::kGelu) {
      x = gate_internal::GaussianLinearUnit(x);
    } else if (spec.kind == ActivationKind::kRelu) {
      x = Map(x, [](float a) { return a < 0.0f ? 0.0f : a; });
    }
    return Map(x, factor, [](float a, float b) { return a * b; });
  }
  return Map(gate_internal::TimesSigmoid(x, v, quick_limit), factor,
             [](float a, float b) { return a * b; });
}

// silu(gate) * up of each pair, by lamina::GatedProduct's rule, for kernels
// that do nothing else. Values has floats v[…].
template <class Values>
__device__ inline Values SwiGlu(const Values& gate, const Values& up) {
  constexpr int kCount = sizeof(Values) / sizeof(float);
  bool quick = true;
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    quick &= std::fabs(gate.v[i]) < gate_internal::kQuickLimit;  // NaN: no
  }
  Values result;
  if (quick) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      result.v[i] = gate_internal::QuickTimesSigmoid(gate.v[i], gate.v[i]);
    }
  } else {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      result.v[i] = gate_internal::PlainTimesSigmoid(gate.v[i], gate.v[i]);
    }
  }
#pragma unroll
  for (int i = 0; i < kCount; ++i) result.v[i] *= up.v[i];
  return result;
}

// lamina::Activate of each value.
__device__ inline Octet Activate(ActivationKind kind, const Octet& x) {
  // A product with 1 changes nothing.
  return GatedProduct(GateSpec{.kind = kind}, x,
                      Map(x, [](float) { return 1.0f; }));
}

}  // namespace lamina::gpu
