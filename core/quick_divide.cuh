#pragma once

// Exactly rounded division in five instructions after the reciprocal, for
// arguments whose quotient and its steps are normal numbers.

#include <cmath>

#include "lamina/core/device/intrinsics.cuh"

namespace lamina::gpu {

// n / d when `reciprocal` is the float nearest to 1 / d: a quotient within one
// ULP and its correction by the exact remainder (Markstein, "Computation of
// elementary functions on the IBM RISC System/6000 processor", 1990).
// NOTE: the remainder is d * quotient - n, so that -0 / d stays -0.
__device__ inline float QuotientFrom(float n, float d, float reciprocal) {
  const float quotient = n * reciprocal;
  const float remainder = std::fma(d, quotient, -n);
  return std::fma(-remainder, reciprocal, quotient);
}

// n / d for n = +-0 or 2^-100 <= |n| <= 2^126, 2^-100 <= |d| <= 2^100 and a
// quotient in that range; any n when d is a power of two in it.
//
// `approximation` is within one ULP of 1 / d. The vendors' divisions are these
// steps with a check of the exponents before them (AMD's has one step more).
// The Newton step makes it the nearest float for all but some 30 mantissas of
// d, and two of those give a wrong quotient if the approximation is off for
// them: 1.fffffa, by 1.5 ULP, which it is not, and 1.fffffe, by half a ULP.
// There the vendors' own divisions of 1 and 2 would be wrong as well.
// tests/core/gate_device_test.cc has all d.
__device__ inline float QuickDivide(float n, float d, float approximation) {
  const float error = std::fma(-d, approximation, 1.0f);
  return QuotientFrom(n, d, std::fma(error, approximation, approximation));
}
__device__ inline float QuickDivide(float n, float d) {
  return QuickDivide(n, d, ApproximateReciprocal(d));
}

}  // namespace lamina::gpu
