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
    StoreUpTo(GatedProduct(d, spec, LoadUpTo(d, gate + i, n),
                           LoadUpTo(d, up + i, n)),
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

namespace lamina {

HWY_EXPORT(VectorExp);
HWY_EXPORT(VectorSigmoid);
HWY_EXPORT(VectorActivate);
HWY_EXPORT(VectorGatedProduct);

namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

void ForEachTarget(const std::function<void()>& body) {
  for (const std::string& target : CpuTargetNames()) {
    ASSERT_TRUE(ForceCpuTarget(target));
    SCOPED_TRACE(target);
    body();
  }
  ForceCpuTarget("");
}

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
     1.0, -kInf, kInf},
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
     2.5, -3e38f, kInf},
    {"gelu", [](float x) { return Activate(ActivationKind::kGelu, x); }, Gelu,
     [](const float* in, float* out, int64_t n) {
       HWY_DYNAMIC_DISPATCH(VectorActivate)(ActivationKind::kGelu, in, out, n);
     },
     6.0, -3e38f, kInf},
    {"gelu_tanh",
     [](float x) { return Activate(ActivationKind::kGeluTanh, x); }, GeluTanh,
     [](const float* in, float* out, int64_t n) {
       HWY_DYNAMIC_DISPATCH(VectorActivate)(ActivationKind::kGeluTanh, in,
                                            out, n);
     },
     200.0, -3e38f, kInf},
    {"gelu_tanh_near_zero",
     [](float x) { return Activate(ActivationKind::kGeluTanh, x); }, GeluTanh,
     [](const float* in, float* out, int64_t n) {
       HWY_DYNAMIC_DISPATCH(VectorActivate)(ActivationKind::kGeluTanh, in,
                                            out, n);
     },
     8.0, -2.0f, kInf},
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

// Checks the bit patterns begin, begin + step, … below 2^32: accuracy of the
// vector version, and its equality with the scalar one.
void CheckPatterns(const Function& function, uint64_t begin, uint64_t step,
                   double* worst, float* worst_input) {
  constexpr int64_t kCount = 4096;
  std::vector<float> in(kCount), out(kCount);
  *worst = 0;
  for (uint64_t pattern = begin; pattern < (uint64_t{1} << 32);) {
    int64_t count = 0;
    for (; count < kCount && pattern < (uint64_t{1} << 32); pattern += step) {
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
    CheckPatterns(GetParam(), 0, 16381, &worst, &input);
    RecordProperty("ulp", std::to_string(worst));
    EXPECT_LE(worst, GetParam().max_ulp) << "at " << input;
  });
}

// Half a minute for each function; run it after a change:
//   core_elementary_test --gtest_also_run_disabled_tests
TEST_P(Elementary, DISABLED_EveryFloat) {
  const Stream stream = Stream::Cpu();
  constexpr int64_t kParts = 64;
  std::vector<double> worst(kParts);
  std::vector<float> input(kParts);
  ParallelFor(stream, kParts, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t part = begin; part < end; ++part) {
      CheckPatterns(GetParam(), static_cast<uint64_t>(part), kParts,
                    &worst[part], &input[part]);
    }
  });
  const auto top = std::max_element(worst.begin(), worst.end());
  std::printf("%s: at most %.3f ULP, at %a\n", GetParam().name, *top,
              static_cast<double>(input[top - worst.begin()]));
  EXPECT_LE(*top, GetParam().max_ulp);
}

}  // namespace
}  // namespace lamina
#endif  // HWY_ONCE
