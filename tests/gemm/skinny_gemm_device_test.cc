// SkinnyGemm on the device at hand (tests/support/test_device.h). Where sums
// are exact, every kernel equals the scalar model bit for bit; with random
// values the CPU and the GPUs' general kernel still do, each by its own rule,
// and kernels on matrix units are close to the sum in double.

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "lamina/core/graph.h"
#include "lamina/gemm/skinny_gemm.h"
#include "tests/gemm/skinny_gemm_case.h"
#include "tests/gemm/skinny_gemm_reference.h"
#include "tests/support/quantize_reference.h"
#include "tests/support/sparse_memory.h"
#include "tests/support/test_device.h"

namespace lamina {
namespace {

using gemm_internal::WTable;
using gemm_internal::XTable;
using gemm_internal::YTable;
using testing::ExpectY;
using testing::GemmCase;
using testing::GemmSpec;
using testing::SameBits;
using testing::SumRule;

constexpr auto kTensor = ScaleGranularity::kPerTensor;
constexpr auto kRow = ScaleGranularity::kPerRow;
constexpr auto kBlock = ScaleGranularity::kPerBlock;
constexpr auto kTile = ScaleGranularity::kPerTile;

SumRule RuleOfDevice() {
  return testing::OnCpu() ? SumRule::kCpu : SumRule::kGpu;
}

::testing::Message Describe(const GemmSpec& spec) {
  ::testing::Message message;
  message << "m " << spec.m << " n " << spec.n << " k " << spec.k << " x "
          << Name(spec.x) << " w " << Name(spec.w) << " y " << Name(spec.y)
          << " pad " << spec.pad << " offset " << spec.offset;
  if (spec.codes) message << " codes " << Name(*spec.codes);
  return message;
}

void ExpectEqualsModel(const GemmSpec& spec) {
  SCOPED_TRACE(Describe(spec));
  GemmCase test(spec);
  if (spec.in_place) FillIntegers(test.random, test.y);
  const std::vector<float> want =
      testing::SkinnyGemmReference(test.Args(), RuleOfDevice());
  const absl::Status status = test.Run();
  ASSERT_TRUE(status.ok()) << status.ToString();
  if (!spec.no_y) ExpectY(test.y.view(), want);
  if (!spec.codes) return;
  GemmCase model(spec);
  testing::QuantizeReference(want, spec.y, model.Args().quantized);
  for (int64_t r = 0; r < spec.m; ++r) {
    for (int64_t c = 0; c < spec.out_cols(); ++c) {
      ASSERT_EQ(test.codes.At<uint8_t>(r, c), model.codes.At<uint8_t>(r, c))
          << "code of row " << r << " col " << c;
    }
    const ScaleView got = test.code_scales.view();
    const ScaleView scale = model.code_scales.view();
    for (const int64_t c : {int64_t{0}, spec.out_cols() - 1}) {
      ASSERT_EQ(LoadScale(got, r, c), LoadScale(scale, r, c)) << "row " << r;
    }
  }
}

// Close to the sum in double: y f32, no epilogue.
void ExpectCloseToDouble(const GemmSpec& spec, double bound) {
  SCOPED_TRACE(Describe(spec));
  GemmCase test(spec);
  const auto want = testing::SkinnyGemmDouble(test.Args());
  const absl::Status status = test.Run();
  ASSERT_TRUE(status.ok()) << status.ToString();
  for (size_t i = 0; i < want.sums.size(); ++i) {
    const auto at = static_cast<int64_t>(i);
    ASSERT_NEAR(test.y.At<float>(at / spec.n, at % spec.n), want.sums[i],
                bound * want.magnitudes[i])
        << "row " << at / spec.n << " col " << at % spec.n;
  }
}

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
  for (const DType x : {DType::kF8E4M3Fn, DType::kF8E5M2, DType::kBF16}) {
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
                          .w = DType::kF8E4M3Fn,
                          .y = DType::kF32,
                          .x_scales = x_scales,
                          .w_scales = w_scales,
                          .scale_type = scale_type,
                          .bias = DType::kF32,
                          .exact = true};
            ExpectEqualsModel(spec);
            // Types that only the general kernel takes: any values.
            if (x != DType::kF8E5M2) continue;
            spec.w = DType::kF8E5M2;
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
  for (int layout = 0; layout < kNumGateLayouts; ++layout) {
    for (int kind = 0; kind <= kNumActivationKinds; ++kind) {
      GateSpec gate{.layout = static_cast<GateLayout>(layout)};
      if (kind == kNumActivationKinds) {
        gate.clamped = true;
      } else {
        gate.kind = static_cast<ActivationKind>(kind);
      }
      for (const DType w : {DType::kBF16, DType::kF8E4M3Fn}) {
        for (const int64_t m : {1, 3, 9}) {
          for (const int64_t n : {2, 6, 142}) {
            GemmSpec spec{.m = m,
                          .n = n,
                          .k = 48,
                          .w = w,
                          .bias = DType::kBF16,
                          .gate = gate,
                          .exact = true};
            if (IsFp8(w)) spec.w_scales = kRow;
            ExpectEqualsModel(spec);
          }
        }
      }
    }
  }
}

TEST(SkinnyGemmDevice, BiasAndResidual) {
  for (const DType y : {DType::kF32, DType::kF16, DType::kBF16}) {
    for (const std::optional<DType> bias :
         {std::optional<DType>(), std::optional(DType::kF32),
          std::optional(y)}) {
      for (const int residual : {0, 1, 2}) {
        for (const bool gated : {false, true}) {
          for (const int64_t m : {1, 6}) {
            GemmSpec spec{.m = m,
                          .n = 70,
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
}

TEST(SkinnyGemmDevice, QuantizedOutput) {
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

TEST(SkinnyGemmDevice, EveryNumberOfOutputs) {
  for (int64_t n = 1; n <= 40; ++n) {
    for (const int64_t m : {1, 2, 3, 5}) {
      ExpectEqualsModel({.m = m, .n = n, .k = 24, .exact = true});
    }
  }
  // More than a grid of host SIMT takes.
  for (const int64_t m : {1, 2, 20}) {
    ExpectEqualsModel(
        {.m = m, .n = 2071, .k = 9, .in_place = true, .exact = true});
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
      for (int64_t k = 1; k <= 40; ++k) check(k);
      for (int64_t k = 200; k <= 1592; k += 57) check(k);
      ExpectEqualsModel({.m = m, .n = 5, .k = 12800, .w = w, .exact = true});
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
}

// ---- What a row does not depend on ------------------------------------------

TEST(SkinnyGemmDevice, ARowDoesNotDependOnTheOthers) {
  for (const DType x : {DType::kF32, DType::kF8E5M2}) {
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

TEST(SkinnyGemmDevice, RepeatsItself) {
  for (const DType x : {DType::kF32, DType::kBF16, DType::kF8E4M3Fn}) {
    for (const int64_t m : {1, 8, 20}) {
      const GemmSpec spec{.m = m,
                          .n = 50,
                          .k = 528,
                          .x = x,
                          .w = DType::kF8E4M3Fn,
                          .y = DType::kF32};
      GemmCase first(spec);
      ASSERT_TRUE(first.Run().ok());
      for (int i = 0; i < 20; ++i) {
        GemmCase again(spec);
        ASSERT_TRUE(again.Run().ok());
        ASSERT_EQ(testing::FirstDifference(again.y.Dense<float>(),
                                           first.y.Dense<float>()),
                  -1)
            << Name(x) << " m " << m << " repeat " << i;
      }
    }
  }
}

// Two problems of one shape, on two streams of two host threads.
TEST(SkinnyGemmDevice, TwoStreams) {
  const GemmSpec spec{.m = 9,
                      .n = 100,
                      .k = 528,
                      .w = DType::kF8E4M3Fn,
                      .codes = DType::kF8E4M3Fn};
  const auto repeat = [](GemmSpec mine, int* differences) {
    GemmCase first(mine);
    if (!first.Run().ok()) ++*differences;
    absl::StatusOr<OwnedStream> stream =
        OwnedStream::Create(testing::TestStream().device());
    for (int i = 0; i < 30; ++i) {
      GemmCase again(mine);
      if (!stream.ok() || !again.Run(stream->stream()).ok() ||
          again.codes.Dense<uint8_t>() != first.codes.Dense<uint8_t>() ||
          again.y.Dense<BF16>() != first.y.Dense<BF16>()) {
        ++*differences;
      }
    }
  };
  GemmSpec other_spec = spec;
  other_spec.seed = 2;
  int differences[2] = {0, 0};
  std::thread other(repeat, other_spec, &differences[0]);
  repeat(spec, &differences[1]);
  other.join();
  EXPECT_EQ(differences[0], 0);
  EXPECT_EQ(differences[1], 0);
}

// Two recordings, memory taken in between, run again after their outputs were
// spoiled.
TEST(SkinnyGemmDevice, GraphsKeepWhatTheyNeed) {
  if (testing::OnCpu() || testing::OnSimt()) GTEST_SKIP() << "no graphs";
  const auto owned = OwnedStream::Create(testing::TestStream().device());
  ASSERT_TRUE(owned.ok());
  const Stream stream = owned->stream().WithOverlap();
  struct Recorded {
    explicit Recorded(const GemmSpec& spec) : test(spec), want(spec) {}
    GemmCase test;
    GemmCase want;
    std::vector<char> workspace = std::vector<char>(1 << 20, -1);
    std::optional<Graph> graph;
  };
  Recorded fp8({.m = 3,
                .n = 300,
                .k = 512,
                .x = DType::kF8E4M3Fn,
                .w = DType::kF8E4M3Fn,
                .codes = DType::kF8E4M3Fn});
  Recorded bf16({.m = 20, .n = 300, .k = 512, .codes = DType::kI8});
  std::vector<std::vector<char>> between;
  for (Recorded* recorded : {&fp8, &bf16}) {
    ASSERT_TRUE(recorded->want.Run().ok());
    SkinnyGemmArgs args = recorded->test.Args();
    args.workspace = recorded->workspace.data();
    args.workspace_bytes = 1 << 20;
    absl::StatusOr<Graph> graph =
        Graph::Capture(stream, [&] { return SkinnyGemm(args, stream); });
    ASSERT_TRUE(graph.ok()) << graph.status();
    recorded->graph = *std::move(graph);
    between.emplace_back(1 << 20, -1);
  }
  for (int i = 0; i < 3; ++i) {
    for (Recorded* recorded : {&fp8, &bf16}) {
      recorded->test.y.Poison();
      recorded->test.codes.Poison();
      ASSERT_TRUE(recorded->graph->Launch(stream).ok());
      ASSERT_TRUE(recorded->graph->Launch(stream).ok());
    }
    ASSERT_TRUE(Synchronize(stream).ok());
    for (Recorded* recorded : {&fp8, &bf16}) {
      EXPECT_EQ(recorded->test.y.Dense<BF16>(), recorded->want.y.Dense<BF16>());
      EXPECT_EQ(recorded->test.codes.Dense<uint8_t>(),
                recorded->want.codes.Dense<uint8_t>());
    }
  }
}

}  // namespace
}  // namespace lamina
