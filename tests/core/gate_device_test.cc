// The GPU's quick divisions and gates (core/quick_divide.cuh, core/gate.cuh)
// against IEEE division and core/gate.h, bit for bit. Device code runs here as
// plain functions; reciprocals that are off by one ULP stand for hardware.

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "lamina/core/float16.h"
#include "lamina/core/gate.cuh"
#include "lamina/core/gate.h"
#include "lamina/core/quick_divide.cuh"

namespace lamina {
namespace {

using gpu::kOctet;
using gpu::Octet;

float FromBits(uint32_t bits) { return std::bit_cast<float>(bits); }
bool Same(float a, float b) {
  return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b) ||
         (std::isnan(a) && std::isnan(b));
}

// Where a reciprocal that is off by one ULP cannot be repaired.
bool NeedsExactReciprocal(float d) {
  return d == 0x1.fffffap0f || d == 0x1.fffffep0f;
}

// Division is scaled by powers of two, so that d in [1, 2) stands for all.
TEST(QuickDivide, NewtonStepGivesTheNearestReciprocalOrOneThatDoes) {
  std::vector<std::pair<float, float>> others;  // d, approximation
  for (uint32_t mantissa = 0; mantissa < 1u << 23; ++mantissa) {
    const float d = FromBits(0x3f800000u | mantissa);
    const float nearest = static_cast<float>(1.0 / static_cast<double>(d));
    for (int off : {-1, 0, 1}) {
      const float approximation = FromBits(std::bit_cast<uint32_t>(nearest) +
                                           static_cast<uint32_t>(off));
      const float error = std::fma(-d, approximation, 1.0f);
      const float refined = std::fma(error, approximation, approximation);
      if (refined == nearest) continue;
      ASSERT_NE(off, 0) << d;
      others.emplace_back(d, approximation);
    }
  }
  EXPECT_LT(others.size(), 40u);
  for (const auto& [d, approximation] : others) {
    if (NeedsExactReciprocal(d)) continue;
    for (uint32_t i = 0; i < 1u << 24; i += 11) {
      const float n = FromBits(0x3f800000u + i);
      ASSERT_EQ(gpu::QuickDivide(n, d, approximation), n / d)
          << n << " / " << d;
    }
  }
}

TEST(QuickDivide, TwoDivisorsNeedTheNearestReciprocal) {
  for (float d : {0x1.fffffap0f, 0x1.fffffep0f}) {
    const float nearest = static_cast<float>(1.0 / static_cast<double>(d));
    bool fails_otherwise = false;
    for (uint32_t i = 0; i < 1u << 24; ++i) {
      const float n = FromBits(0x3f800000u + i);
      ASSERT_EQ(gpu::QuickDivide(n, d, nearest), n / d) << n << " / " << d;
      fails_otherwise =
          fails_otherwise ||
          gpu::QuickDivide(n, d, std::nextafter(nearest, 0.0f)) != n / d ||
          gpu::QuickDivide(n, d, std::nextafter(nearest, 1.0f)) != n / d;
    }
    EXPECT_TRUE(fails_otherwise) << d;
  }
}

TEST(QuickDivide, RandomQuotientsAndZeros) {
  std::mt19937 random(1);
  for (int i = 0; i < 2'000'000; ++i) {
    const float d = std::ldexp(FromBits(0x3f800000u | (random() & 0x7fffffu)),
                               static_cast<int>(random() % 40) - 20);
    const float n = std::ldexp(FromBits(0x3f800000u | (random() & 0x7fffffu)),
                               static_cast<int>(random() % 120) - 60);
    if (NeedsExactReciprocal(std::ldexp(d, -std::ilogb(d)))) continue;
    const float nearest = 1.0f / d;
    for (float approximation :
         {nearest, std::nextafter(nearest, 0.0f),
          std::nextafter(nearest, std::numeric_limits<float>::max())}) {
      ASSERT_EQ(gpu::QuickDivide(n, d, approximation), n / d)
          << n << " / " << d;
    }
  }
  EXPECT_TRUE(Same(gpu::QuickDivide(0.0f, 1.5f), 0.0f));
  EXPECT_TRUE(Same(gpu::QuickDivide(-0.0f, 1.5f), -0.0f));
}

// Gates that the tests go through: every bf16 value, and fp32 values of every
// exponent.
std::vector<float> Gates() {
  std::vector<float> gates;
  for (uint32_t bits = 0; bits < 1u << 16; ++bits) {
    gates.push_back(ToFloat(BF16{static_cast<uint16_t>(bits)}));
  }
  std::mt19937 random(2);
  for (int i = 0; i < 200'000; ++i) {
    gates.push_back(FromBits(static_cast<uint32_t>(random())));
    gates.push_back(std::normal_distribution<float>(0, 20)(random));
  }
  for (float edge : {70.0f, 87.0f, 88.5f, 104.0f, 174.0f, 0x1p-23f}) {
    for (float x :
         {edge, std::nextafter(edge, 0.0f), std::nextafter(edge, 1e9f)}) {
      gates.push_back(x);
      gates.push_back(-x);
    }
  }
  while (gates.size() % kOctet != 0) gates.push_back(0);
  return gates;
}

void ExpectEqualGates(const GateSpec& spec) {
  static const std::vector<float> gates = Gates();
  std::mt19937 random(3);
  for (size_t i = 0; i < gates.size(); i += kOctet) {
    Octet gate, up;
    for (size_t k = 0; k < kOctet; ++k) {
      gate.v[k] = gates[i + k];
      up.v[k] = std::normal_distribution<float>(0, 5)(random);
    }
    const Octet y = gpu::GatedProduct(spec, gate, up);
    for (size_t k = 0; k < kOctet; ++k) {
      const float want = GatedProduct(spec, gate.v[k], up.v[k]);
      ASSERT_TRUE(Same(y.v[k], want))
          << Name(spec.kind) << " gate " << gate.v[k] << " up " << up.v[k]
          << ": " << y.v[k] << ", want " << want;
    }
  }
}

TEST(GateDevice, EqualsTheRule) {
  for (int kind = 0; kind < kNumActivationKinds; ++kind) {
    ExpectEqualGates({.kind = static_cast<ActivationKind>(kind)});
  }
}

TEST(GateDevice, ClampedEqualsTheRule) {
  for (float limit : {0.0f, 7.0f}) {
    for (float alpha : {1.702f, 0.0f, -3.0f, 63.0f, 65.0f, 1e-30f, 1e30f}) {
      SCOPED_TRACE(std::to_string(alpha) + " " + std::to_string(limit));
      ExpectEqualGates({.clamped = true, .alpha = alpha, .limit = limit});
    }
  }
}

}  // namespace
}  // namespace lamina
