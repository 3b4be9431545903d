// SkinnyGemm on the device at hand (tests/support/test_device.h). Where sums
// are exact, every kernel equals the scalar model bit for bit; with random
// values the CPU and the GPUs' general kernel still do, each by its own rule,
// and kernels on matrix units are close to the sum in double.

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "lamina/core/graph.h"
#include "lamina/gemm/skinny_gemm.h"
#include "tests/gemm/skinny_gemm_checks.h"
#include "tests/support/sparse_memory.h"
#include "tests/support/targets.h"

namespace lamina {
namespace {

using gemm_internal::WTable;
using gemm_internal::XTable;
using gemm_internal::YTable;
using testing::ExpectCloseToDouble;
using testing::ExpectEqualsModel;
using testing::ExpectY;
using testing::ForEachTarget;
using testing::GemmCase;
using testing::GemmSpec;
using testing::RuleOfDevice;
using testing::SameBits;

constexpr auto kTensor = ScaleGranularity::kPerTensor;
constexpr auto kRow = ScaleGranularity::kPerRow;
constexpr auto kBlock = ScaleGranularity::kPerBlock;
constexpr auto kTile = ScaleGranularity::kPerTile;

// ---- Types and scales -------------------------------------------------------

TEST(SkinnyGemmDevice, EveryCombinationOfTypes) {
  ForEachRow(XTable{}, [&]<class X>(Types<X>) {
    ForEachRow(WTable{}, [&]<class W>(Types<W>) {
      ForEachRow(YTable{}, [&]<class Y>(Types<Y>) {
        for (const int64_t m : {1, 3, 9}) {
          for (const int64_t k : {77, 144}) {
            GemmSpec spec{.m = m,
                          .n = 13,
                          .k = k,
                          .x = DTypeOf<X>::value,
                          .w = DTypeOf<W>::value,
                          .y = DTypeOf<Y>::value,
                          .exact = true};
            if (IsFp8(spec.x)) spec.x_scales = kRow;
            if (IsFp8(spec.w)) spec.w_scales = kRow;
            ExpectEqualsModel(spec);
          }
        }
      });
    });
  });
}

TEST(SkinnyGemmDevice, EveryGranularityOfScales) {
  const std::optional<ScaleGranularity> none;
  // NOTE: types that rings do not take: ring_gemm_gpu_test.cc has theirs.
  for (const DType x : {DType::kF8E4M3Fn, DType::kF8E5M2Fnuz, DType::kBF16}) {
    for (const DType scale_type : {DType::kF32, DType::kF8E8M0}) {
      for (const auto x_scales : {none, std::optional(kTensor),
                                  std::optional(kRow), std::optional(kBlock)}) {
        for (const auto w_scales :
             {none, std::optional(kTensor), std::optional(kRow),
              std::optional(kBlock), std::optional(kTile)}) {
          if (x_scales && !IsFp8(x)) continue;
          for (const int64_t m : {1, 6}) {
            GemmSpec spec{.m = m,
                          .n = 133,
                          .k = 304,
                          .x = x,
                          .w = DType::kF8E5M2,
                          .y = DType::kF32,
                          .x_scales = x_scales,
                          .w_scales = w_scales,
                          .scale_type = scale_type,
                          .bias = DType::kF32,
                          .exact = true};
            ExpectEqualsModel(spec);
            // Types that only the general kernel takes: any values.
            if (x != DType::kF8E5M2Fnuz) continue;
            spec.exact = false;
            ExpectEqualsModel(spec);
          }
        }
      }
    }
  }
}

TEST(SkinnyGemmDevice, EveryCodeOfTheFp8Types) {
  ForEachRow(WTable{}, [&]<class W>(Types<W>) {
    if constexpr (sizeof(W) == 1) {
      for (const int64_t k : {16, 21}) {
        GemmSpec spec{.n = 256,
                      .k = k,
                      .x = DType::kF32,
                      .w = DTypeOf<W>::value,
                      .y = DType::kF32};
        GemmCase test(spec);
        for (int64_t r = 0; r < 256; ++r) {
          std::fill_n(test.w.Row<W>(r), k, W());
          test.w.At<W>(r, k - 1).bits = static_cast<uint8_t>(r);
        }
        std::fill_n(test.x.Row<float>(0), k, 1.0f);
        ASSERT_TRUE(test.Run().ok());
        for (int64_t r = 0; r < 256; ++r) {
          // + 0.0f: a sum of -0 and zeros is +0.
          const float want = ToFloat(test.w.At<W>(r, k - 1)) + 0.0f;
          ASSERT_TRUE(SameBits(test.y.At<float>(0, r), want))
              << Name(spec.w) << " code " << r << ": " << test.y.At<float>(0, r)
              << ", want " << want;
        }
      }
    }
  });
}

// ---- The rule ---------------------------------------------------------------

// fp32 activations are multiplied on the ordinary lanes: bit for bit.
TEST(SkinnyGemmDevice, RandomValuesByTheRule) {
  for (const DType w : {DType::kF16, DType::kBF16, DType::kF8E4M3Fn}) {
    for (const int64_t m : {1, 2, 3, 5, 8, 9, 17}) {
      for (const int64_t k : {1, 7, 8, 9, 255, 256, 257, 300, 1001, 1592}) {
        // Rows that are octets apart, and rows that are not.
        for (const int64_t pad : {RoundUp(k, 16) - k, int64_t{0}}) {
          ExpectEqualsModel({.m = m,
                             .n = 11,
                             .k = k,
                             .x = DType::kF32,
                             .w = w,
                             .y = DType::kF32,
                             .pad = pad});
        }
      }
    }
  }
}

TEST(SkinnyGemmDevice, SpecialActivations) {
  const float inf = std::numeric_limits<float>::infinity();
  for (const DType w : {DType::kBF16, DType::kF8E4M3Fn, DType::kF8E5M2Fnuz}) {
    for (const float value :
         {0x1p127f, -0x1p120f, 0x1p-149f, inf, -inf, std::nanf(""), -0.0f}) {
      GemmSpec spec{
          .m = 3, .n = 9, .k = 70, .x = DType::kF32, .w = w, .y = DType::kF32};
      GemmCase test(spec);
      for (int64_t r = 0; r < spec.m; ++r) {
        for (int64_t c = r; c < 70; c += 3) test.x.At<float>(r, c) = value;
      }
      const auto want =
          testing::SkinnyGemmReference(test.Args(), RuleOfDevice());
      ASSERT_TRUE(test.Run().ok());
      ExpectY(test.y.view(), want);
      if (::testing::Test::HasFatalFailure()) return;
    }
  }
}

TEST(SkinnyGemmDevice, RandomValuesAreCloseToDouble) {
  struct Pair {
    DType x, w;
    double bound;  // of the sum of magnitudes
  };
  // NOTE: FP8 products of wgmma are summed with 14 bits or so, and every 128
  // columns in fp32.
  for (const Pair& pair : {Pair{DType::kF8E4M3Fn, DType::kF8E4M3Fn, 0x1p-11},
                           Pair{DType::kBF16, DType::kBF16, 0x1p-18},
                           Pair{DType::kF16, DType::kF16, 0x1p-18},
                           Pair{DType::kBF16, DType::kF8E4M3Fn, 0x1p-18}}) {
    for (const int64_t m : {1, 9, 33}) {
      for (const int64_t k : {16, 144, 784}) {
        if (m > 9 && k != 144) continue;
        for (const bool blocks : {false, true}) {
          GemmSpec spec{.m = m,
                        .n = 20,
                        .k = k,
                        .x = pair.x,
                        .w = pair.w,
                        .y = DType::kF32};
          if (IsFp8(pair.x)) spec.x_scales = blocks ? kBlock : kRow;
          if (IsFp8(pair.w)) spec.w_scales = blocks ? kTile : kRow;
          ExpectCloseToDouble(spec, pair.bound);
        }
      }
    }
  }
}

// ---- Epilogues --------------------------------------------------------------

TEST(SkinnyGemmDevice, EveryGate) {
  struct Shape {
    int64_t m, n;
    DType w;
  };
  ForEachTarget([] {
    for (int layout = 0; layout < kNumGateLayouts; ++layout) {
      for (int kind = 0; kind <= kNumActivationKinds; ++kind) {
        GateSpec gate{.layout = static_cast<GateLayout>(layout)};
        if (kind == kNumActivationKinds) {
          gate.clamped = true;
        } else {
          gate.kind = static_cast<ActivationKind>(kind);
        }
        for (const Shape& shape :
             {Shape{1, 142, DType::kF8E4M3Fn}, Shape{3, 6, DType::kBF16},
              Shape{9, 2, DType::kF8E5M2Fnuz}, Shape{9, 278, DType::kF16}}) {
          GemmSpec spec{.m = shape.m,
                        .n = shape.n,
                        .k = 48,
                        .w = shape.w,
                        .bias = DType::kBF16,
                        .gate = gate,
                        .exact = true};
          if (IsFp8(shape.w)) spec.w_scales = kRow;
          ExpectEqualsModel(spec);
        }
      }
    }
  });
}

TEST(SkinnyGemmDevice, BiasAndResidual) {
  ForEachTarget([] {
    for (const DType y : {DType::kF32, DType::kF16, DType::kBF16}) {
      for (const std::optional<DType> bias :
           {std::optional<DType>(), std::optional(DType::kF32),
            std::optional(y)}) {
        for (const int residual : {0, 1, 2}) {
          for (const bool gated : {false, true}) {
            for (const int64_t m : {1, 6}) {
              GemmSpec spec{.m = m,
                            .n = testing::OnCpu() ? 150 : 70,
                            .k = 48,
                            .y = y,
                            .bias = bias,
                            .residual = residual == 1,
                            .in_place = residual == 2,
                            .exact = true,
                            .pad = 3};
              if (gated) spec.gate = GateSpec{};
              ExpectEqualsModel(spec);
            }
          }
        }
      }
    }
  });
}

TEST(SkinnyGemmDevice, QuantizedOutput) {
  ForEachTarget([] {
    for (const DType codes :
         {DType::kF8E4M3Fn, DType::kF8E5M2, DType::kF8E4M3Fnuz,
          DType::kF8E5M2Fnuz, DType::kI8}) {
      for (const auto granularity : {kTensor, kRow, kBlock, kTile}) {
        for (const bool dynamic : {false, true}) {
          if (dynamic && (granularity == kTensor || granularity == kTile)) {
            continue;
          }
          for (const bool gated : {false, true}) {
            GemmSpec spec{.m = gated ? 7 : 2,
                          .n = 300,
                          .k = 33,
                          .x = gated ? DType::kBF16 : DType::kF32,
                          .residual = gated,
                          .codes = codes,
                          .code_scales = granularity,
                          .dynamic = dynamic,
                          .round_before_quant = !gated,
                          .no_y = gated,
                          .exact = gated,
                          .pad = 1};
            if (gated) spec.gate = GateSpec{};
            ExpectEqualsModel(spec);
          }
        }
      }
    }
  });
}

// ---- Shapes, strides, alignment ---------------------------------------------

TEST(SkinnyGemmDevice, ManyRows) {
  // More than one launch takes, and with scales that rows share.
  for (const int64_t m : {16, 63, 64, 65, 150}) {
    for (const auto granularity : {kRow, kBlock, kTile}) {
      ExpectEqualsModel({.m = m,
                         .n = 10,
                         .k = 17,
                         .x = DType::kF8E5M2,
                         .x_scales = kBlock,
                         .residual = true,
                         .codes = DType::kF8E4M3Fn,
                         .code_scales = granularity,
                         .dynamic = granularity != kTile,
                         .exact = true});
    }
  }
}

// A path for few rows must not take one too many (vllm #44368).
TEST(SkinnyGemmDevice, EveryNumberOfRows) {
  for (const DType w : {DType::kBF16, DType::kF8E4M3Fn, DType::kF8E5M2}) {
    for (int64_t m = 1; m <= 64; ++m) {
      if (testing::OnSimt() && m > 9 && m % 16 > 1) continue;
      ExpectEqualsModel({.m = m, .n = 21, .k = 160, .w = w, .exact = true});
    }
  }
}

TEST(SkinnyGemmDevice, EveryNumberOfOutputs) {
  for (int64_t n = 1; n <= 40; ++n) {
    for (const int64_t m : {1, 2, 3, 5}) {
      if (testing::OnSimt() && n % 4 != m % 4) continue;
      ExpectEqualsModel({.m = m, .n = n, .k = 24, .exact = true});
    }
  }
  // More blocks than run at once: none may wait for another (cutlass #1296).
  // Host SIMT: more than a grid takes.
  const int64_t many = testing::OnSimt() ? 2071 : 70001;
  for (const int64_t k : {9, 16}) {
    for (const int64_t m : {1, 2, 20}) {
      if (testing::OnSimt() && k == 16 && m > 1) continue;
      ExpectEqualsModel(
          {.m = m, .n = many, .k = k, .in_place = true, .exact = true});
    }
  }
}

TEST(SkinnyGemmDevice, EveryLengthOfSums) {
  for (const DType w : {DType::kBF16, DType::kF8E4M3Fn}) {
    for (const int64_t m : {1, 5}) {
      const auto check = [&](int64_t k) {
        for (const int64_t pad : {RoundUp(k, 16) - k, int64_t{0}}) {
          ExpectEqualsModel(
              {.m = m, .n = 6, .k = k, .w = w, .exact = true, .pad = pad});
        }
      };
      const bool simt = testing::OnSimt();
      for (int64_t k = 1; k <= 40; k += simt ? 3 : 1) check(k);
      // ROCm/vllm #28: every eighth; aiter #5286, #3737, MLX #3854: what does
      // not divide into equal parts of whole steps, and less than a step a
      // part.
      for (int64_t k = 200; k <= 1592; k += simt ? 129 : 8) check(k);
      for (const int64_t k : {5120, 12800, 25600}) {
        if (simt && k != 12800) continue;
        ExpectEqualsModel({.m = m, .n = 5, .k = k, .w = w, .exact = true});
      }
    }
  }
}

TEST(SkinnyGemmDevice, EveryAlignmentAndPitch) {
  for (const DType w : {DType::kBF16, DType::kF8E4M3Fn}) {
    for (int64_t offset = 0; offset <= 8; ++offset) {
      for (const int64_t pad : {0, 1, 3, 8, 16}) {
        for (const int64_t m : {1, 5}) {
          for (const int64_t k : {48, 61}) {
            ExpectEqualsModel({.m = m,
                               .n = 9,
                               .k = k,
                               .w = w,
                               .bias = DType::kF32,
                               .residual = true,
                               .exact = true,
                               .pad = pad,
                               .offset = offset});
          }
        }
      }
    }
  }
}

TEST(SkinnyGemmDevice, OffsetsBeyond32Bits) {
  // Two rows 2^31 + 8 elements apart in memory that is never backed.
  constexpr int64_t kStride = (int64_t{1} << 31) + 8;
  constexpr int64_t kBytes = (kStride + 64) * 2;
  constexpr int64_t kCols = 24;
  const testing::SparseMemory x(kBytes), w(kBytes), residual(kBytes), y(kBytes);
  if (!x.ok() || !w.ok() || !residual.ok() || !y.ok()) {
    GTEST_SKIP() << "no address space";
  }
  testing::Random random(3);
  for (const int64_t row : {0, 1}) {
    for (int64_t i = 0; i < kCols; ++i) {
      for (const testing::SparseMemory* memory : {&x, &w, &residual}) {
        memory->as<BF16>()[row * kStride + i] =
            FromFloat<BF16>(static_cast<float>(random.Integer(-2, 2)));
      }
    }
  }
  const Stream stream = testing::TestStream();
  std::vector<char> workspace(static_cast<size_t>(*SkinnyGemmWorkspaceBytes(
      {.m = 2, .n = 2, .k = kCols}, GetDeviceInfo(stream.device()), 1)));
  const SkinnyGemmArgs args{
      .x = Matrix<const BF16>(x.as<BF16>(), 2, kCols, kStride),
      .w = Matrix<const BF16>(w.as<BF16>(), 2, kCols, kStride),
      .residual = Matrix<const BF16>(residual.as<BF16>(), 2, 2, kStride),
      .y = Matrix(y.as<BF16>(), 2, 2, kStride),
      .workspace = workspace.data(),
      .workspace_bytes = static_cast<int64_t>(workspace.size())};
  const auto want = testing::SkinnyGemmReference(args, RuleOfDevice());
  const absl::Status status = SkinnyGemm(args, stream);
  ASSERT_TRUE(status.ok()) << status.ToString();
  ExpectY(args.y, want);
}

TEST(SkinnyGemmDevice, EmptyProblems) {
  ForEachTarget([] {
    for (const int64_t m : {1, 5}) {
      // k = 0: the bias, whatever the scales.
      GemmSpec spec{.m = m,
                    .n = 20,
                    .k = 0,
                    .x = DType::kF8E4M3Fn,
                    .w = DType::kF8E4M3Fn,
                    .x_scales = kTensor,
                    .w_scales = kTensor,
                    .bias = DType::kF32};
      ExpectEqualsModel(spec);
      GemmCase with_nan(spec);
      static_cast<float*>(with_nan.w_scales.view().data)[0] = std::nanf("");
      const auto want =
          testing::SkinnyGemmReference(with_nan.Args(), RuleOfDevice());
      ASSERT_FALSE(std::isnan(want[0]));
      ASSERT_TRUE(with_nan.Run().ok());
      ExpectY(with_nan.y.view(), want);
      ExpectEqualsModel({.m = m, .n = 20, .k = 0});
      ExpectEqualsModel({.m = m, .n = 0, .k = 20});
    }
    ExpectEqualsModel({.m = 0, .n = 20, .k = 20});
    ExpectEqualsModel({.m = 0, .n = 20, .k = 20, .codes = DType::kI8});
  });
}

// ---- What a row does not depend on ------------------------------------------

TEST(SkinnyGemmDevice, ARowDoesNotDependOnTheOthers) {
  for (const DType x : {DType::kF32, DType::kF8E5M2Fnuz}) {
    for (const DType w : {DType::kBF16, DType::kF8E4M3Fn}) {
      GemmSpec spec{
          .m = 70, .n = 37, .k = 330, .x = x, .w = w, .y = DType::kF32};
      if (IsFp8(w)) spec.w_scales = kTile;
      GemmCase all(spec);
      ASSERT_TRUE(all.Run().ok());
      for (const int64_t m : {1, 2, 3, 7}) {
        spec.m = m;
        GemmCase some(spec);
        const int64_t bytes = BytesFor(x, spec.k);
        for (int64_t first = 0; first + m <= 70; first += 23) {
          some.y.Poison();
          for (int64_t r = 0; r < m; ++r) {
            std::copy_n(static_cast<const char*>(all.x.view().data) +
                            (first + r) * bytes,
                        bytes,
                        static_cast<char*>(some.x.view().data) + r * bytes);
          }
          SkinnyGemmArgs args = some.Args();
          args.w = all.w.view();
          args.w_scales = all.Args().w_scales;
          std::vector<char> workspace(1 << 20);
          args.workspace = workspace.data();
          args.workspace_bytes = 1 << 20;
          ASSERT_TRUE(SkinnyGemm(args, testing::TestStream()).ok());
          for (int64_t r = 0; r < m; ++r) {
            for (int64_t c = 0; c < spec.n; ++c) {
              ASSERT_TRUE(SameBits(some.y.At<float>(r, c),
                                   all.y.At<float>(first + r, c)))
                  << "m " << m << " row " << first + r << " col " << c;
            }
          }
        }
      }
    }
  }
}

// vllm #54706, aiter #4581, hipfire #383: sums in whatever order blocks end.
TEST(SkinnyGemmDevice, RepeatsItself) {
  const int repeats = testing::OnSimt() ? 2 : 200;
  for (const DType x : {DType::kF32, DType::kBF16, DType::kF8E4M3Fn}) {
    for (const DType w : {DType::kF8E4M3Fn, DType::kF8E5M2, DType::kBF16}) {
      for (const int64_t m : {1, 8, 20}) {
        GemmCase test({.m = m,
                       .n = 50,
                       .k = 528,
                       .x = x,
                       .w = w,
                       .y = DType::kF32,
                       .codes = DType::kF8E4M3Fn});
        ASSERT_TRUE(test.Run().ok());
        const auto y = test.y.Dense<float>();
        const auto codes = test.codes.Dense<uint8_t>();
        for (int i = 0; i < repeats; ++i) {
          test.y.Poison();
          test.codes.Poison();
          ASSERT_TRUE(test.Run().ok());
          ASSERT_EQ(testing::FirstDifference(test.y.Dense<float>(), y), -1)
              << Describe(test.spec) << " repeat " << i;
          ASSERT_EQ(test.codes.Dense<uint8_t>(), codes);
        }
      }
    }
  }
}

struct Outputs {
  explicit Outputs(GemmCase& test)
      : y(test.y.Dense<BF16>()), codes(test.codes.Dense<uint8_t>()) {}
  bool operator==(const Outputs& other) const {
    return y == other.y && codes == other.codes;
  }
  std::vector<BF16> y;
  std::vector<uint8_t> codes;
};

std::vector<GemmSpec> SpecsOfStreams(uint64_t seed) {
  const auto f8 = DType::kF8E4M3Fn;
  std::vector<GemmSpec> specs = {
      {.m = 9, .n = 100, .k = 528, .w = f8},
      {.m = 3, .n = 300, .k = 512, .x = f8, .w = f8},
      {.m = 40, .n = 60, .k = 272, .x = DType::kF16, .w = DType::kF8E5M2},
      {.m = 20, .n = 100, .k = 300},
  };
  for (GemmSpec& spec : specs) {
    spec.codes = f8;
    spec.seed = seed++;
  }
  return specs;
}

// Problems of the same shapes on two streams of two host threads (llama.cpp
// #9413, flashinfer #4476: what is shared by shape).
int DifferencesOnAStream(uint64_t seed, int repeats) {
  int differences = 0;
  absl::StatusOr<OwnedStream> stream =
      OwnedStream::Create(testing::TestStream().device());
  if (!stream.ok()) return 1;
  for (const GemmSpec& spec : SpecsOfStreams(seed)) {
    GemmCase test(spec);
    if (!test.Run().ok()) ++differences;
    const Outputs want(test);
    for (int i = 0; i < repeats; ++i) {
      test.y.Poison();
      test.codes.Poison();
      const absl::Status status = test.Run(stream->stream());
      if (!status.ok() || !(Outputs(test) == want)) ++differences;
    }
  }
  return differences;
}
TEST(SkinnyGemmDevice, TwoStreams) {
  const int repeats = testing::OnSimt() ? 3 : 100;
  int differences = -1;
  std::thread other([&] { differences = DifferencesOnAStream(10, repeats); });
  EXPECT_EQ(DifferencesOnAStream(20, repeats), 0);
  other.join();
  EXPECT_EQ(differences, 0);
}

// Two recordings, memory taken in between, run again after their outputs were
// spoiled, while another stream runs the same.
TEST(SkinnyGemmDevice, GraphsKeepWhatTheyNeed) {
  if (testing::OnCpu() || testing::OnSimt()) GTEST_SKIP() << "no graphs";
  const auto owned = OwnedStream::Create(testing::TestStream().device());
  ASSERT_TRUE(owned.ok());
  const Stream stream = owned->stream().WithOverlap();
  struct Recorded {
    explicit Recorded(const GemmSpec& spec) : test(spec) {}
    GemmCase test;
    std::optional<Outputs> want;
    std::vector<char> workspace = std::vector<char>(1 << 20, -1);
    std::optional<Graph> graph;
  };
  std::vector<std::unique_ptr<Recorded>> recordings;
  std::vector<std::vector<char>> between;
  for (const GemmSpec& spec : SpecsOfStreams(30)) {
    recordings.push_back(std::make_unique<Recorded>(spec));
    Recorded* const recorded = recordings.back().get();
    ASSERT_TRUE(recorded->test.Run().ok());
    recorded->want.emplace(recorded->test);
    SkinnyGemmArgs args = recorded->test.Args();
    args.workspace = recorded->workspace.data();
    args.workspace_bytes = 1 << 20;
    absl::StatusOr<Graph> graph =
        Graph::Capture(stream, [&] { return SkinnyGemm(args, stream); });
    ASSERT_TRUE(graph.ok()) << graph.status();
    recorded->graph = *std::move(graph);
    between.emplace_back(1 << 20, -1);
  }
  int differences = -1;
  std::thread other([&] { differences = DifferencesOnAStream(40, 30); });
  for (int i = 0; i < 30; ++i) {
    for (const auto& recorded : recordings) {
      recorded->test.y.Poison();
      recorded->test.codes.Poison();
      EXPECT_TRUE(recorded->graph->Launch(stream).ok());
      EXPECT_TRUE(recorded->graph->Launch(stream).ok());
    }
    EXPECT_TRUE(Synchronize(stream).ok());
    for (const auto& recorded : recordings) {
      EXPECT_TRUE(Outputs(recorded->test) == *recorded->want)
          << Describe(recorded->test.spec);
    }
  }
  other.join();
  EXPECT_EQ(differences, 0);
}

// What the operator before writes is read after it has ended (flashinfer
// #5081): x, its scales, bias and residual, in turn from two sources.
TEST(SkinnyGemmDevice, OverlapWaitsForWhatComesBefore) {
  if (testing::OnCpu()) GTEST_SKIP() << "no overlap";
  const auto f8 = DType::kF8E4M3Fn;
  const GemmSpec first_spec{.m = 3,
                            .n = 512,
                            .k = testing::OnSimt() ? 512 : 16384,
                            .w = f8,
                            .codes = f8};
  // NOTE: seeds of their own, or x would be the same.
  GemmSpec other_spec = first_spec;
  other_spec.seed = 2;
  GemmCase before[2] = {GemmCase(first_spec), GemmCase(other_spec)};
  GemmCase after({.m = 3, .n = 512, .k = 512, .x = f8, .w = f8, .seed = 3});
  const auto owned = OwnedStream::Create(testing::TestStream().device());
  ASSERT_TRUE(owned.ok());
  const Stream plain = owned->stream();
  const Stream overlap = plain.WithOverlap();
  std::vector<char> workspace(1 << 20, -1);
  // Both write what the one after reads.
  const auto run = [&](int source, const Stream& stream) {
    SkinnyGemmArgs args = before[source].Args();
    args.y = before[0].y.view();
    args.quantized = before[0].Args().quantized;
    args.workspace = workspace.data();
    args.workspace_bytes = 1 << 20;
    absl::Status status = SkinnyGemm(args, stream);
    SkinnyGemmArgs next = after.Args();
    next.x = args.quantized.codes;
    next.x_scales = args.quantized.scales;
    next.residual = args.y;
    next.bias = {.data = args.y.data, .dtype = DType::kBF16, .size = 512};
    status.Update(SkinnyGemm(next, stream));
    return status;
  };
  std::vector<BF16> want[2];
  for (const int source : {0, 1}) {
    ASSERT_TRUE(run(source, plain).ok());
    ASSERT_TRUE(Synchronize(plain).ok());
    want[source] = after.y.Dense<BF16>();
  }
  ASSERT_NE(want[0], want[1]);
  for (int i = 0; i < (testing::OnSimt() ? 4 : 100); ++i) {
    after.y.Poison();
    for (int k = 0; k < 3; ++k) ASSERT_TRUE(run((i + k) % 2, overlap).ok());
    ASSERT_TRUE(Synchronize(overlap).ok());
    ASSERT_EQ(after.y.Dense<BF16>(), want[i % 2]) << "repeat " << i;
  }
}

}  // namespace
}  // namespace lamina
