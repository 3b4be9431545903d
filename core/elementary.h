#pragma once

// Elementary functions as exact sequences of fp32 operations, so that every
// backend and every SIMD target gives the same bits: additions, products and
// divisions round to nearest-even, std::fma is fused, nothing else is.
// Subnormal numbers must not be flushed. core/elementary-inl.h is the vector
// version. NaN gives NaN (sign and payload unspecified).
//
// Largest errors over all fp32 inputs, in ULP of the exact result, subnormal
// results included (tests/core/elementary_test.cc has the sweep):
//
//   Exp                 1.02   Exp(-Inf) = 0; overflow and +Inf give +Inf
//   Sigmoid             2.41   Sigmoid(-Inf) = 0, Sigmoid(+Inf) = 1
//   TimesSigmoid(x, x)  3.40   -Inf gives -0, +Inf gives +Inf
//   GaussianLinearUnit  7.50   -Inf gives -0, +Inf gives +Inf
//
// There is no tanh and no erf: 1 + tanh(u) = 2 sigmoid(2u) and
// 1 + erf(x / sqrt 2) = 2 Phi(x), and both sums cancel where x is negative.

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>

#include "lamina/core/device/host_device.h"

namespace lamina {

namespace elementary {
inline constexpr float kLog2E = 0x1.715476p+0f;
// ln 2 in two parts.
inline constexpr float kLn2High = 0x1.62e43p-1f;
inline constexpr float kLn2Low = -0x1.05c61p-29f;
// Added to a small float, it leaves the nearest integer in the low bits.
inline constexpr float kRound = 0x1.8p23f;
// Beyond it, exp is 0 or Inf whatever sensible factor it is scaled by, and
// the exponent still splits into two powers of two that are normal.
inline constexpr float kExpLimit = 174.0f;
// exp(r) = 1 + r + r^2 * (c[0] + c[1] r + …) for |r| <= ln2 / 2 within 2^-28:
// minimax in the relative error, coefficients rounded to fp32.
inline constexpr std::array kExp = {0x1.fffffcp-2f, 0x1.55549p-3f,
                                    0x1.5558f4p-5f, 0x1.123a6cp-7f,
                                    0x1.6a2358p-10f};
// Phi(-a) = exp(-a^2 / 2) * (c[0] + c[1] t + …), t = (a - 4) / (a + 4), for
// a in [0, 16] within 2^-27: minimax in the relative error.
inline constexpr float kTailLimit = 16.0f;
inline constexpr std::array kTail = {
    0x1.82b4bcp-4f,   -0x1.5cf97cp-3f,  0x1.fd750cp-4f,  -0x1.25b69cp-4f,
    0x1.f9b3e8p-6f,   -0x1.164a5p-7f,   0x1.076b22p-11f, 0x1.4feb4cp-11f,
    -0x1.6b44a6p-13f, -0x1.7cdc26p-15f, 0x1.ad409ap-17f};
}  // namespace elementary

// factor * exp(x) without an intermediate underflow or overflow of exp(x).
// x is taken as ±174 beyond these.
LAMINA_HD inline float ScaledExp(float x, float factor) {
  using elementary::kExpLimit, elementary::kRound;
  // NOTE: a copy, because device code has no host arrays.
  constexpr auto kExp = elementary::kExp;
  x = x < -kExpLimit ? -kExpLimit : x;
  x = x > kExpLimit ? kExpLimit : x;
  const float shifted = std::fma(x, elementary::kLog2E, kRound);
  const float n = shifted - kRound;
  float r = std::fma(n, -elementary::kLn2High, x);
  r = std::fma(n, -elementary::kLn2Low, r);
  float q = kExp[4];
  for (int i = 3; i >= 0; --i) q = std::fma(q, r, kExp[i]);
  const float p = 1.0f + std::fma(q, r * r, r);
  // 2^n as two factors, each a normal number.
  const int32_t exponent = static_cast<int32_t>(
      std::bit_cast<uint32_t>(shifted) - std::bit_cast<uint32_t>(kRound));
  const int32_t half = exponent >> 1;
  const auto power = [](int32_t e) {
    return std::bit_cast<float>((static_cast<uint32_t>(e) + 127u) << 23);
  };
  return factor * p * power(half) * power(exponent - half);
}

LAMINA_HD inline float Exp(float x) { return ScaledExp(x, 1.0f); }

// x * sigmoid(v) = x / (1 + exp(-v)). Where v < 0 it is
// (x * exp(v)) / (1 + exp(v)), which keeps tiny results; v < -174 gives ±0
// with the sign of x, even for an infinite x.
LAMINA_HD inline float TimesSigmoid(float x, float v) {
  if (v < -elementary::kExpLimit) x = std::copysign(0.0f, x);
  const float magnitude = std::fabs(v);
  const float e = ScaledExp(-magnitude, 1.0f);
  const float numerator = v < 0.0f ? ScaledExp(-magnitude, x) : x;
  return numerator / (1.0f + e);
}

LAMINA_HD inline float Sigmoid(float x) { return TimesSigmoid(1.0f, x); }

// x * Phi(x), Phi being the normal distribution: gelu. From the tail
// Phi(-|x|), so that nothing cancels: for x < 0 it is x * Phi(-|x|), else
// x - x * Phi(-|x|).
LAMINA_HD inline float GaussianLinearUnit(float x) {
  using elementary::kTailLimit;
  constexpr auto kTail = elementary::kTail;
  float a = std::fabs(x);
  a = a > kTailLimit ? kTailLimit : a;
  const float t = (a - 4.0f) / (a + 4.0f);
  float m = kTail[10];
  for (int i = 9; i >= 0; --i) m = std::fma(m, t, kTail[i]);
  // a^2 / 2 in two parts: exp(-(s + s_low)) = exp(-s) * (1 - s_low).
  const float h = 0.5f * a;
  const float s = a * h;
  const float s_low = std::fma(a, h, -s);
  const float scale = a * m;
  const float tail = ScaledExp(-s, std::fma(-s_low, scale, scale));
  return x < 0.0f ? -tail : x - tail;
}

}  // namespace lamina
