// Elementary functions, activations and gated products: accuracy against
// double precision, the edges, and the vector versions against the scalar
// ones, bit for bit, on every SIMD target of this machine.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tests/core/elementary_test.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
//
#include "lamina/core/gate-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lamina {
namespace HWY_NAMESPACE {

template <class F>
HWY_INLINE void Apply(const float* in, float* out, int64_t count, F&& f) {
  const DF32 d;
  ForEachVector(d, count, [&](int64_t i, int64_t n) HWY_ATTR {
    StoreUpTo(f(d, LoadUpTo(d, in + i, n)), d, out + i, n);
  });
}

void VectorExp(const float* in, float* out, int64_t count) {
  Apply(in, out, count, [](DF32 d, VF32 x) HWY_ATTR { return Exp(d, x); });
}
void VectorSigmoid(const float* in, float* out, int64_t count) {
  Apply(in, out, count, [](DF32 d, VF32 x) HWY_ATTR { return Sigmoid(d, x); });
}
void VectorActivate(ActivationKind kind, const float* in, float* out,
                    int64_t count) {
  Apply(in, out, count,
        [&](DF32 d, VF32 x) HWY_ATTR { return Activate(d, kind, x); });
}
void VectorGatedProduct(const GateSpec& spec, const float* gate,
                        const float* up, float* out, int64_t count) {
  const DF32 d;
  ForEachVector(d, count, [&](int64_t i, int64_t n) HWY_ATTR {
    StoreUpTo(
        GatedProduct(d, spec, LoadUpTo(d, gate + i, n), LoadUpTo(d, up + i, n)),
        d, out + i, n);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace lamina
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <functional>
#include <limits>
#include <ostream>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "lamina/core/device.h"
#include "lamina/core/float16.h"
#include "lamina/core/parallel.h"
#include "tests/support/random.h"
#include "tests/support/targets.h"

namespace lamina {

HWY_EXPORT(VectorExp);
HWY_EXPORT(VectorSigmoid);
HWY_EXPORT(VectorActivate);
HWY_EXPORT(VectorGatedProduct);

namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

using testing::ForEachTarget;

// Equal bits, or NaN both.
bool Same(float a, float b) {
  return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b) ||
         (std::isnan(a) && std::isnan(b));
}

double Gelu(double x) { return 0.5 * x * std::erfc(-x * M_SQRT1_2); }
double GeluTanh(double x) {
  const double v = 2 * std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x);
  return x / (1 + std::exp(-v));
}

struct Function {
  const char* name;
  float (*scalar)(float);
  double (*reference)(double);
  void (*vector)(const float*, float*, int64_t);
  // Largest error in ULP, for inputs in [low, high].
  double max_ulp;
  float low;
  float high;
};

void PrintTo(const Function& function, std::ostream* out) {
  *out << function.name;
}

const Function kFunctions[] = {
    {"exp", [](float x) { return Exp(x); },
     [](double x) { return std::exp(x); },
     [](const float* in, float* out, int64_t n) {
       HWY_DYNAMIC_DISPATCH(VectorExp)(in, out, n);
     },
     1.05, -kInf, kInf},
    {"sigmoid", [](float x) { return Sigmoid(x); },
     [](double x) { return 1 / (1 + std::exp(-x)); },
     [](const float* in, float* out, int64_t n) {
       HWY_DYNAMIC_DISPATCH(VectorSigmoid)(in, out, n);
     },
     2.5, -kInf, kInf},
    {"silu", [](float x) { return Activate(ActivationKind::kSilu, x); },
     [](double x) { return x / (1 + std::exp(-x)); },
     [](const float* in, float* out, int64_t n) {
       HWY_DYNAMIC_DISPATCH(VectorActivate)(ActivationKind::kSilu, in, out, n);
     },
     3.5, -3e38f, kInf},
    {"gelu", [](float x) { return Activate(ActivationKind::kGelu, x); }, Gelu,
     [](const float* in, float* out, int64_t n) {
       HWY_DYNAMIC_DISPATCH(VectorActivate)(ActivationKind::kGelu, in, out, n);
     },
     7.6, -3e38f, kInf},
    {"gelu_tanh",
     [](float x) { return Activate(ActivationKind::kGeluTanh, x); }, GeluTanh,
     [](const float* in, float* out, int64_t n) {
       HWY_DYNAMIC_DISPATCH(VectorActivate)
       (ActivationKind::kGeluTanh, in, out, n);
     },
     220.0, -3e38f, kInf},
    {"gelu_tanh_near_zero",
     [](float x) { return Activate(ActivationKind::kGeluTanh, x); }, GeluTanh,
     [](const float* in, float* out, int64_t n) {
       HWY_DYNAMIC_DISPATCH(VectorActivate)
       (ActivationKind::kGeluTanh, in, out, n);
     },
     7.6, -2.0f, kInf},
};

// |got - want| in units of the last place of want, as fp32.
double UlpError(float got, double want) {
  const float rounded = static_cast<float>(want);
  if (got == rounded || (std::isnan(got) && std::isnan(want))) return 0;
  if (std::isnan(got) || std::isinf(got) || std::isinf(rounded)) return 1e9;
  const int exponent = want == 0 ? -126 : std::max(-126, std::ilogb(want));
  return std::fabs(static_cast<double>(got) - want) /
         std::ldexp(1.0, exponent - 23);
}

// Checks every `step`th bit pattern of [begin, end): accuracy of the vector
// version, and its equality with the scalar one.
struct Patterns {
  uint64_t begin;
  uint64_t end;
  uint64_t step;
};
void Check(const Function& function, Patterns patterns, double* worst,
           float* worst_input) {
  constexpr int64_t kCount = 4096;
  std::vector<float> in(kCount), out(kCount);
  for (uint64_t pattern = patterns.begin; pattern < patterns.end;) {
    int64_t count = 0;
    for (; count < kCount && pattern < patterns.end; pattern += patterns.step) {
      in[count++] = std::bit_cast<float>(static_cast<uint32_t>(pattern));
    }
    function.vector(in.data(), out.data(), count);
    for (int64_t i = 0; i < count; ++i) {
      ASSERT_TRUE(Same(out[i], function.scalar(in[i])))
          << function.name << "(" << in[i] << ") = " << out[i];
      if (!(in[i] >= function.low && in[i] <= function.high)) continue;
      const double error = UlpError(out[i], function.reference(in[i]));
      if (error > *worst) {
        *worst = error;
        *worst_input = in[i];
      }
    }
  }
}

class Elementary : public ::testing::TestWithParam<Function> {};
INSTANTIATE_TEST_SUITE_P(, Elementary, ::testing::ValuesIn(kFunctions),
                         [](const auto& param_info) {
                           return std::string(param_info.param.name);
                         });

TEST_P(Elementary, IsAccurateAndEqualOnEveryTarget) {
  ForEachTarget([&] {
    double worst = 0;
    float input = 0;
    Check(GetParam(), {0, uint64_t{1} << 32, 16381}, &worst, &input);
    RecordProperty("ulp", std::to_string(worst));
    EXPECT_LE(worst, GetParam().max_ulp) << "at " << input;
  });
}

// Every float of magnitude 2^-30 to 512, on either side of which the results
// are trivial (and sampled above). Takes minutes; run it after a change:
//   core_elementary_test --gtest_also_run_disabled_tests
TEST_P(Elementary, DISABLED_EveryFloat) {
  constexpr uint64_t kFirst = uint64_t{127 - 30} << 23;
  constexpr uint64_t kLast = uint64_t{127 + 9} << 23;
  constexpr uint64_t kSign = uint64_t{1} << 31;
  constexpr int64_t kParts = 64;
  std::vector<double> worst(kParts);
  std::vector<float> input(kParts);
  ParallelFor(Stream::Cpu(), kParts, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t part = begin; part < end; ++part) {
      for (const uint64_t sign : {uint64_t{0}, kSign}) {
        Check(
            GetParam(),
            {sign + kFirst + static_cast<uint64_t>(part), sign + kLast, kParts},
            &worst[part], &input[part]);
      }
    }
  });
  const auto top = std::max_element(worst.begin(), worst.end());
  std::printf("%s: at most %.3f ULP, at %a\n", GetParam().name, *top,
              static_cast<double>(input[top - worst.begin()]));
  EXPECT_LE(*top, GetParam().max_ulp);
}

// ---- Edges ------------------------------------------------------------------

constexpr ActivationKind kKinds[] = {
    ActivationKind::kSilu, ActivationKind::kGelu, ActivationKind::kGeluTanh,
    ActivationKind::kRelu, ActivationKind::kIdentity};
static_assert(std::size(kKinds) == kNumActivationKinds);

TEST(Exp, OverflowsAndUnderflowsWhereFp32Does) {
  EXPECT_EQ(Exp(0.0f), 1.0f);
  EXPECT_EQ(Exp(0x1.62e42ep+6f), 0x1.ffff08p+127f);  // 88.72283: the last
  EXPECT_EQ(Exp(0x1.62e43p+6f), kInf);
  EXPECT_EQ(Exp(-103.97f), 0x1p-149f);  // the smallest subnormal
  EXPECT_EQ(Exp(-103.98f), 0.0f);
  EXPECT_EQ(Exp(-87.5f), 0x1.b2caeep-127f);  // a subnormal result
  EXPECT_EQ(Exp(kInf), kInf);
  EXPECT_EQ(Exp(-kInf), 0.0f);
  EXPECT_FALSE(std::signbit(Exp(-kInf)));
  EXPECT_EQ(Exp(3e38f), kInf);
  EXPECT_EQ(Exp(-3e38f), 0.0f);
  EXPECT_TRUE(std::isnan(Exp(kNan)));
}

TEST(Sigmoid, HasItsLimits) {
  EXPECT_EQ(Sigmoid(0.0f), 0.5f);
  EXPECT_EQ(Sigmoid(kInf), 1.0f);
  EXPECT_EQ(Sigmoid(-kInf), 0.0f);
  EXPECT_EQ(Sigmoid(100.0f), 1.0f);
  EXPECT_GT(Sigmoid(-103.0f), 0.0f);
  EXPECT_TRUE(std::isnan(Sigmoid(kNan)));
}

TEST(Activate, KeepsTheEdges) {
  for (const ActivationKind kind : kKinds) {
    SCOPED_TRACE(Name(kind));
    EXPECT_TRUE(Same(Activate(kind, 0.0f), 0.0f));
    EXPECT_TRUE(Same(Activate(kind, -0.0f), -0.0f));
    EXPECT_TRUE(std::isnan(Activate(kind, kNan)));
    EXPECT_TRUE(std::isnan(Activate(kind, -kNan)));
    EXPECT_EQ(Activate(kind, kInf), kInf);
    // Large x are exact.
    for (const float x : {20.0f, 40.0f, 1e4f, 65504.0f, 1e20f, 3.4e38f}) {
      EXPECT_EQ(Activate(kind, x), x);
      if (kind != ActivationKind::kIdentity && x > 100.0f) {
        EXPECT_EQ(Activate(kind, -x), 0.0f) << x;
      }
    }
    if (kind != ActivationKind::kIdentity) {
      const float limit = Activate(kind, -kInf);
      EXPECT_EQ(limit, 0.0f);
      EXPECT_EQ(std::signbit(limit), kind != ActivationKind::kRelu);
    }
  }
}

TEST(Activate, SiluKeepsTinyResults) {
  EXPECT_NEAR(Activate(ActivationKind::kSilu, -88.5f), -3.25e-37f, 0.01e-37f);
  EXPECT_LT(Activate(ActivationKind::kSilu, -100.0f), 0.0f);
  // The exact value at -104 is -7.1e-44, fifty times the smallest subnormal.
  EXPECT_NEAR(Activate(ActivationKind::kSilu, -104.0f), -7.1e-44f, 0.2e-44f);
  EXPECT_TRUE(Same(Activate(ActivationKind::kSilu, -110.0f), -0.0f));
}

TEST(Activate, GeluTanhIsNeverNan) {
  for (const float x : {10.5f, -13.24f, 20.0f, 40.0f, 1e4f, 65504.0f}) {
    EXPECT_EQ(Activate(ActivationKind::kGeluTanh, std::fabs(x)), std::fabs(x));
    const float low = Activate(ActivationKind::kGeluTanh, -std::fabs(x));
    EXPECT_LE(low, 0.0f);
    EXPECT_GE(low, -1e-20f);
  }
  // Every finite bf16 and its neighbours in fp32.
  for (uint32_t high = 0; high < 65536; ++high) {
    for (const uint32_t low : {0u, 0x7fffu, 0xffffu}) {
      const float x = std::bit_cast<float>((high << 16) | low);
      if (!std::isfinite(x)) continue;
      for (const ActivationKind kind : kKinds) {
        ASSERT_TRUE(std::isfinite(Activate(kind, x))) << Name(kind) << x;
      }
    }
  }
}

// The formula of the contract, in double precision.
double ClampedReference(const GateSpec& spec, double gate, double up) {
  if (spec.limit != 0) {
    gate = std::min<double>(gate, spec.limit);
    up = std::clamp<double>(up, -spec.limit, spec.limit);
  }
  return gate / (1 + std::exp(-spec.alpha * gate)) * (up + spec.up_offset);
}

TEST(GatedProduct, ClampedFollowsTheFormula) {
  const GateSpec specs[] = {{.clamped = true},
                            {.clamped = true, .limit = 0},
                            {.clamped = true, .alpha = 1, .up_offset = 0},
                            {.clamped = true, .limit = 0.5f}};
  testing::Random random(3);
  for (const GateSpec& spec : specs) {
    for (int i = 0; i < 2000; ++i) {
      const float gate = random.Normal(0, 6);
      const float up = random.Normal(0, 6);
      const double want = ClampedReference(spec, gate, up);
      EXPECT_NEAR(GatedProduct(spec, gate, up), want,
                  2e-6 * std::fabs(want) + 1e-6 * std::fabs(gate))
          << gate << " " << up;
    }
  }
}

TEST(GatedProduct, ClampedEdges) {
  const GateSpec spec{.clamped = true};
  const float at_limit = GatedProduct(spec, 7.0f, 7.0f);
  EXPECT_EQ(GatedProduct(spec, 1e30f, kInf), at_limit);
  EXPECT_EQ(GatedProduct(spec, kInf, 7.5f), at_limit);
  EXPECT_EQ(GatedProduct(spec, 7.0f, -8.0f), GatedProduct(spec, 7.0f, -7.0f));
  // The gate has no lower clamp: sigmoid takes it to zero.
  EXPECT_NE(GatedProduct(spec, -8.0f, 1.0f), GatedProduct(spec, -7.0f, 1.0f));
  EXPECT_TRUE(Same(GatedProduct(spec, -kInf, 1.0f), -0.0f));
  EXPECT_TRUE(Same(GatedProduct(spec, -1e30f, -7.0f), 0.0f));
  EXPECT_TRUE(std::isnan(GatedProduct(spec, kNan, 1.0f)));
  EXPECT_TRUE(std::isnan(GatedProduct(spec, 1.0f, kNan)));
  // A limit of 0 does not clamp.
  const GateSpec unlimited{.clamped = true, .limit = 0};
  EXPECT_EQ(GatedProduct(unlimited, 100.0f, 99.0f), 10000.0f);
}

TEST(GatedProduct, VectorsEqualScalarsOnEveryTarget) {
  const float edges[] = {
      0.0f,  -0.0f,  1.0f,      -1.0f,      7.0f,    -7.0f,  7.5f,   -7.5f,
      88.5f, -88.5f, -104.0f,   174.0f,     -175.0f, 1e30f,  -1e30f, kInf,
      -kInf, kNan,   0x1p-149f, -0x1p-140f, 16.0f,   -13.0f, -14.3f, 65504.0f};
  std::vector<float> gates, ups;
  for (const float gate : edges) {
    for (const float up : edges) {
      gates.push_back(gate);
      ups.push_back(up);
    }
  }
  testing::Random random(5);
  for (int i = 0; i < 5003; ++i) {
    gates.push_back(random.Normal(0, 5));
    ups.push_back(random.Normal(0, 5));
  }
  std::vector<GateSpec> specs = {{.clamped = true},
                                 {.clamped = true, .limit = 0},
                                 {.clamped = true, .alpha = 1e-3f},
                                 {.clamped = true, .alpha = -2, .limit = kInf}};
  for (const ActivationKind kind : kKinds) specs.push_back({.kind = kind});
  std::vector<float> out(gates.size());
  ForEachTarget([&] {
    for (const GateSpec& spec : specs) {
      HWY_DYNAMIC_DISPATCH(VectorGatedProduct)
      (spec, gates.data(), ups.data(), out.data(),
       static_cast<int64_t>(out.size()));
      for (size_t i = 0; i < out.size(); ++i) {
        ASSERT_TRUE(Same(out[i], GatedProduct(spec, gates[i], ups[i])))
            << Name(spec.kind) << " gate " << gates[i] << " up " << ups[i];
      }
    }
  });
}

}  // namespace
}  // namespace lamina
#endif  // HWY_ONCE
