// SkinnyGemm with many rows of x and a library for them: a model of one, on
// every device, and on a CUDA GPU cuBLASLt itself.

#include "lamina/gemm/prefill_gemm.h"

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "lamina/core/dispatch.h"
#include "tests/gemm/skinny_gemm_checks.h"

namespace lamina {
namespace {

using testing::GemmCase;
using testing::GemmSpec;

constexpr auto kTensor = ScaleGranularity::kPerTensor;
constexpr auto kRow = ScaleGranularity::kPerRow;

// Sums on the host: memory of tests can be reached from there.
class Model : public PrefillGemm {
 public:
  std::string name() const override { return "model"; }
  absl::Status Run(const PrefillProblem& problem, const Stream&) override {
    ++calls;
    if (refuses) return absl::UnimplementedError("model");
    using Inputs = Table<Types<F16>, Types<BF16>, Types<F8E4M3Fn>>;
    using Outputs = Table<Types<float>, Types<F16>, Types<BF16>>;
    const float scale =
        problem.x_scale == nullptr ? 1.0f : *problem.x_scale * *problem.w_scale;
    Dispatch(Inputs{}, std::array{problem.type}, [&]<class T>(Types<T>) {
      Dispatch(Outputs{}, std::array{problem.out_type}, [&]<class O>(Types<O>) {
        for (int64_t r = 0; r < problem.m; ++r) {
          for (int64_t c = 0; c < problem.n; ++c) {
            const T* const x =
                static_cast<const T*>(problem.x) + r * problem.x_pitch;
            const T* const w =
                static_cast<const T*>(problem.w) + c * problem.w_pitch;
            float sum = 0.0f;
            for (int64_t k = 0; k < problem.k; ++k) {
              sum += ToFloat(x[k]) * ToFloat(w[k]);
            }
            static_cast<O*>(problem.out)[r * problem.out_pitch + c] =
                FromFloat<O>(sum * scale);
          }
        }
      });
    });
    return absl::OkStatus();
  }

  int calls = 0;
  bool refuses = false;
};

// Sums are exact: bit for bit the scalar model.
void ExpectExact(const GemmSpec& spec, PrefillGemm* library) {
  SCOPED_TRACE(Describe(spec));
  GemmCase test(spec);
  const std::vector<float> want = testing::SkinnyGemmReference(test.Args());
  const absl::Status status = test.Run(testing::TestStream(), library);
  ASSERT_TRUE(status.ok()) << status.ToString();
  if (!spec.no_y) testing::ExpectY(test.y.view(), want);
  if (!spec.codes) return;
  GemmCase model(spec);
  testing::QuantizeReference(want, spec.y, model.Args().quantized);
  EXPECT_EQ(test.codes.Dense<uint8_t>(), model.codes.Dense<uint8_t>());
}

std::vector<GemmSpec> Specs() {
  std::vector<GemmSpec> specs;
  for (const DType type : {DType::kBF16, DType::kF16, DType::kF8E4M3Fn}) {
    GemmSpec spec{.m = 130, .n = 64, .k = 64, .x = type, .w = type};
    spec.exact = true;
    if (IsFp8(type)) spec.x_scales = spec.w_scales = kTensor;
    specs.push_back(spec);  // straight to y
    spec.y = DType::kF32;
    specs.push_back(spec);
    if (IsFp8(type)) spec.x_scales = spec.w_scales = kRow;
    spec.bias = DType::kF32;
    spec.residual = true;
    spec.pad = 16;
    specs.push_back(spec);
    spec.gate = GateSpec{.kind = ActivationKind::kRelu};
    spec.codes = DType::kF8E4M3Fn;
    specs.push_back(spec);
    spec.dynamic = false;
    specs.push_back(spec);
  }
  return specs;
}

class Prefill : public ::testing::Test {
 protected:
  void SetUp() override {
    if (testing::TestStream().device().backend != Backend::kCuda) {
      GTEST_SKIP() << "no library";
    }
  }
};

TEST_F(Prefill, EpilogueOfALibrarysSums) {
  for (const GemmSpec& spec : Specs()) {
    Model model;
    ExpectExact(spec, &model);
    EXPECT_EQ(model.calls, 1);
  }
}

// More rows than sums are kept of, and a rest that is not for the library.
TEST_F(Prefill, ManyRows) {
  for (const int64_t m : {1024, 1040, 2100}) {
    GemmSpec spec{.m = m, .n = 16, .k = 16, .residual = true, .exact = true};
    spec.codes = DType::kF8E4M3Fn;
    Model model;
    ExpectExact(spec, &model);
    EXPECT_EQ(model.calls, m == 2100 ? 2 : 1);
  }
}

TEST_F(Prefill, WhatTheLibraryDoesNotTake) {
  Model model;
  GemmSpec few{.m = 64, .n = 16, .k = 16, .exact = true};
  ExpectExact(few, &model);
  GemmSpec odd{.m = 65, .n = 16, .k = 17, .exact = true};
  ExpectExact(odd, &model);
  GemmSpec pair{.m = 65, .n = 16, .k = 16, .w = DType::kF16, .exact = true};
  ExpectExact(pair, &model);
  EXPECT_EQ(model.calls, 0);
  model.refuses = true;
  for (const GemmSpec& spec : Specs()) ExpectExact(spec, &model);
  EXPECT_GT(model.calls, 0);
}

TEST_F(Prefill, CublasLt) {
  const auto library = LoadCublasLt(testing::TestStream().device());
  if (!library.ok()) GTEST_SKIP() << library.status();
  for (const GemmSpec& spec : Specs()) ExpectExact(spec, library->get());
}

// SkinnyGemm's error is no larger than the library's, with the same bound for
// both: FP8 sums of sm_90 have 14 bits.
TEST_F(Prefill, ErrorsBesideCublasLt) {
  const auto library = LoadCublasLt(testing::TestStream().device());
  if (!library.ok()) GTEST_SKIP() << library.status();
  for (const DType type : {DType::kBF16, DType::kF16, DType::kF8E4M3Fn}) {
    double worst[2] = {0, 0};
    for (const bool by_library : {false, true}) {
      GemmCase test({.m = 128,
                     .n = 256,
                     .k = 4096,
                     .x = type,
                     .w = type,
                     .y = DType::kF32});
      const auto want = testing::SkinnyGemmDouble(test.Args());
      ASSERT_TRUE(
          test.Run(testing::TestStream(), by_library ? library->get() : nullptr)
              .ok());
      const auto got = test.y.Dense<float>();
      for (size_t i = 0; i < got.size(); ++i) {
        worst[by_library] =
            std::max(worst[by_library],
                     std::fabs(got[i] - want.sums[i]) / want.magnitudes[i]);
      }
    }
    RecordProperty(std::string("ours_") + Name(type), std::to_string(worst[0]));
    RecordProperty(std::string("cublaslt_") + Name(type),
                   std::to_string(worst[1]));
    EXPECT_LE(worst[0], IsFp8(type) ? 0x1p-12 : 0x1p-20) << Name(type);
    EXPECT_LE(worst[0], 2 * worst[1]) << Name(type);
  }
}

TEST(LoadCublasLt, SaysWhatIsMissing) {
  const auto library = LoadCublasLt(Device{});
  EXPECT_EQ(library.status().code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace lamina
