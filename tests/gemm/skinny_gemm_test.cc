// SkinnyGemm on the CPU against the scalar model of its rule, on every SIMD
// target: what skinny_gemm_device_test.cc does not ask of every device.

#include "lamina/gemm/skinny_gemm.h"

#include <bit>
#include <cmath>
#include <limits>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "lamina/gemm/skinny_gemm/skinny_gemm_cpu.h"
#include "tests/gemm/skinny_gemm_checks.h"
#include "tests/support/targets.h"

namespace lamina {
namespace {

using gemm_internal::WTable;
using gemm_internal::XTable;
using gemm_internal::YTable;
using testing::ExpectEqualsModel;
using testing::ExpectY;
using testing::ForEachTarget;
using testing::GemmCase;
using testing::GemmSpec;
using testing::SameBits;

constexpr auto kTensor = ScaleGranularity::kPerTensor;
constexpr auto kRow = ScaleGranularity::kPerRow;
constexpr auto kBlock = ScaleGranularity::kPerBlock;
constexpr auto kTile = ScaleGranularity::kPerTile;

// ---- Types and scales -------------------------------------------------------

template <class Row>
class SkinnyGemmTypes : public ::testing::Test {};
TYPED_TEST_SUITE(SkinnyGemmTypes, testing::TestTypesOf<WTable>::type,
                 testing::TypeNames);

TYPED_TEST(SkinnyGemmTypes, EqualsTheModelForEveryXAndY) {
  const DType w = TypeParam::kKey[0];
  ForEachTarget([&] {
    ForEachRow(XTable{}, [&]<class X>(Types<X>) {
      ForEachRow(YTable{}, [&]<class Y>(Types<Y>) {
        for (const int64_t m : {1, 2, 3, 4, 5}) {
          GemmSpec spec{.m = m,
                        .n = 37,
                        .k = 100,
                        .x = DTypeOf<X>::value,
                        .w = w,
                        .y = DTypeOf<Y>::value};
          if (IsFp8(spec.x)) spec.x_scales = kRow;
          if (IsFp8(w)) spec.w_scales = kRow;
          ExpectEqualsModel(spec);
        }
      });
    });
  });
}

TYPED_TEST(SkinnyGemmTypes, EqualsTheModelForEveryGranularity) {
  const DType w = TypeParam::kKey[0];
  ForEachTarget([&] {
    for (const DType scale_type : {DType::kF32, DType::kF8E8M0}) {
      for (const auto x_scales : std::vector<std::optional<ScaleGranularity>>{
               std::nullopt, kTensor, kRow, kBlock}) {
        for (const auto w_scales : std::vector<std::optional<ScaleGranularity>>{
                 std::nullopt, kTensor, kRow, kBlock, kTile}) {
          if (w_scales && !IsFp8(w)) continue;
          for (const int64_t m : {1, 3, 6}) {
            ExpectEqualsModel({.m = m,
                               .n = 133,
                               .k = 300,
                               .x = DType::kF8E4M3Fn,
                               .w = w,
                               .x_scales = x_scales,
                               .w_scales = w_scales,
                               .scale_type = scale_type,
                               .bias = DType::kF32});
          }
        }
      }
    }
  });
}

// Every code of the type goes through both decoders, one a row.
TYPED_TEST(SkinnyGemmTypes, DecodesEveryCode) {
  using W = typename std::tuple_element_t<0, decltype([]<class T>(Types<T>) {
                                            return std::tuple<T>();
                                          }(TypeParam()))>;
  constexpr int64_t kCodes = sizeof(W) == 1 ? 256 : 65536;
  ForEachTarget([&] {
    for (const int64_t m : {1, 5}) {
      // A cache line of weights, with FP8 two whole steps, and a tail. The code
      // stands in each of them.
      const int64_t k = sizeof(W) == 1 ? 97 : 33;
      GemmSpec spec{.m = m,
                    .n = kCodes,
                    .k = k,
                    .x = DType::kF32,
                    .w = DTypeOf<W>::value,
                    .y = DType::kF32};
      for (const int64_t at : {int64_t{0}, k / 2, k - 12, k - 1}) {
        GemmCase test(spec);
        for (int64_t r = 0; r < kCodes; ++r) {
          std::fill_n(test.w.template Row<W>(r), k, W());
          if constexpr (sizeof(W) == 1) {
            test.w.template At<W>(r, at).bits = static_cast<uint8_t>(r);
          } else {
            test.w.template At<W>(r, at).bits = static_cast<uint16_t>(r);
          }
        }
        for (int64_t r = 0; r < m; ++r) {
          std::fill_n(test.x.template Row<float>(r), k, 1.0f);
        }
        ASSERT_TRUE(test.Run().ok());
        for (int64_t r = 0; r < kCodes; ++r) {
          // + 0.0f: a sum of -0 and zeros is +0.
          const float want = ToFloat(test.w.template At<W>(r, at)) + 0.0f;
          ASSERT_TRUE(SameBits(test.y.template At<float>(m - 1, r), want))
              << "code " << r << ": " << test.y.template At<float>(m - 1, r)
              << ", want " << want;
        }
      }
    }
  });
}

// Values at the ends of fp32: where folding a power of two into x would
// overflow, and where it must not lose bits.
TYPED_TEST(SkinnyGemmTypes, HugeTinyAndSpecialActivations) {
  const DType w = TypeParam::kKey[0];
  const float inf = std::numeric_limits<float>::infinity();
  ForEachTarget([&] {
    for (const float value :
         {0x1p127f, -0x1p120f, 0x1.8p118f, 0x1p-126f, 0x1p-149f, -0x1p-140f,
          inf, -inf, std::nanf(""), -0.0f}) {
      for (const int64_t m : {1, 4, 5}) {
        GemmSpec spec{.m = m,
                      .n = 9,
                      .k = 70,
                      .x = DType::kF32,
                      .w = w,
                      .y = DType::kF32};
        GemmCase test(spec);
        for (int64_t r = 0; r < m; ++r) {
          for (int64_t c = r; c < 70; c += 3) {
            test.x.template At<float>(r, c) = value;
          }
        }
        const auto want = testing::SkinnyGemmReference(test.Args());
        ASSERT_TRUE(test.Run().ok());
        ExpectY(test.y.view(), want);
        if (::testing::Test::HasFatalFailure()) return;
      }
    }
  });
}

// The smallest and the largest activations that the decoders of FP8 weights
// take with a power of two, with every significand and every code: no sum may
// lose a bit that the model keeps. One bit further out as well.
TYPED_TEST(SkinnyGemmTypes, ActivationsAtTheEdgesOfTheWindow) {
  const DType w = TypeParam::kKey[0];
  const auto bits_of = [](float v) { return std::bit_cast<uint32_t>(v); };
  ForEachTarget([&] {
    for (const uint32_t first :
         {bits_of(gemm_internal::kSmallestX),
          bits_of(gemm_internal::kSmallestX) - 1,
          bits_of(gemm_internal::kLargestX) - (1 << 22),
          bits_of(gemm_internal::kLargestX) - (1 << 22) + 1}) {
      for (const int64_t m : {1, 5}) {
        GemmSpec spec{.m = m,
                      .n = 64,
                      .k = 300,
                      .x = DType::kF32,
                      .w = w,
                      .y = DType::kF32};
        GemmCase test(spec);
        testing::Random random(11);
        for (int64_t r = 0; r < m; ++r) {
          for (int64_t c = 0; c < spec.k; ++c) {
            // From `first` on for half a binade, `first + 2^22 - 1` included.
            const uint32_t offset =
                c == 0
                    ? (1 << 22) - 1
                    : static_cast<uint32_t>(random.Integer(0, (1 << 22) - 1));
            const float x = std::bit_cast<float>(first + (c == 1 ? 0 : offset));
            test.x.template At<float>(r, c) = c % 3 == 0 ? -x : x;
          }
        }
        if (IsFp8(w)) {
          for (int64_t r = 0; r < spec.n; ++r) {
            // NaN codes in some rows only.
            for (int64_t c = 0; c < spec.k; ++c) {
              const int code = static_cast<int>((r * 7 + c) & 0xff);
              const bool nan = (code & 0x7f) > 0x7b || code == 0x80;
              test.w.template At<uint8_t>(r, c) =
                  static_cast<uint8_t>(nan && r % 9 != 0 ? code ^ 0x11 : code);
            }
          }
        }
        const auto want = testing::SkinnyGemmReference(test.Args());
        ASSERT_TRUE(test.Run().ok());
        ExpectY(test.y.view(), want);
        if (::testing::Test::HasFatalFailure()) return;
      }
    }
  });
}

// ---- Shapes, strides, alignment ---------------------------------------------

TEST(SkinnyGemm, EveryNumberOfRows) {
  ForEachTarget([&] {
    for (const DType w : {DType::kBF16, DType::kF8E4M3Fn}) {
      for (int64_t m = 1; m <= 17; ++m) {
        ExpectEqualsModel({.m = m, .n = 50, .k = 576, .w = w});
      }
      for (const int64_t m : {64, 65}) {
        ExpectEqualsModel({.m = m, .n = 20, .k = 100, .w = w});
      }
    }
    // More rows than are converted at a time.
    ExpectEqualsModel({.m = 2 * gemm_internal::kRowBlock + 1,
                       .n = 5,
                       .k = 17,
                       .codes = DType::kF8E4M3Fn});
  });
}

TEST(SkinnyGemm, EveryNumberOfOutputs) {
  ForEachTarget([&] {
    for (int64_t n = 1; n <= 140; ++n) {
      for (const int64_t m : {1, 2, 3, 5}) {
        ExpectEqualsModel({.m = m, .n = n, .k = 24}, 3);
      }
    }
  });
}

TEST(SkinnyGemm, EveryLengthOfSums) {
  ForEachTarget([&] {
    for (const DType w : {DType::kBF16, DType::kF8E4M3Fn}) {
      for (const int64_t m : {1, 2, 5}) {
        for (int64_t k = 1; k <= 70; ++k) {
          ExpectEqualsModel({.m = m, .n = 6, .k = k, .w = w});
        }
        for (int64_t k = 200; k <= 1592; k += 8) {
          ExpectEqualsModel({.m = m, .n = 6, .k = k, .w = w});
        }
        for (const int64_t k : {1536, 4097, 12800}) {
          ExpectEqualsModel({.m = m, .n = 16, .k = k, .w = w});
        }
      }
    }
  });
}

TEST(SkinnyGemm, EveryAlignmentAndPitch) {
  ForEachTarget([&] {
    for (const DType w : {DType::kBF16, DType::kF8E4M3Fn}) {
      for (int64_t offset = 0; offset <= 4; ++offset) {
        for (const int64_t pad : {0, 1, 8, 61}) {
          for (const int64_t m : {1, 4, 5}) {
            ExpectEqualsModel({.m = m,
                               .n = 45,
                               .k = 61,
                               .w = w,
                               .bias = DType::kF32,
                               .residual = true,
                               .pad = pad,
                               .offset = offset});
          }
        }
      }
    }
  });
}

TEST(SkinnyGemm, NoRowsNeedNoWorkspace) {
  const std::vector<BF16> w(4);
  const absl::Status status =
      SkinnyGemm({.x = {.dtype = DType::kBF16, .cols = 4},
                  .w = Matrix(w.data(), 1, 4),
                  .y = {.dtype = DType::kBF16, .cols = 1}},
                 Stream::Cpu());
  EXPECT_TRUE(status.ok()) << status.ToString();
}

// ---- What a row does not depend on ------------------------------------------

TEST(SkinnyGemm, ARowDoesNotDependOnTheOthers) {
  for (const DType w : {DType::kBF16, DType::kF8E4M3Fn}) {
    for (const auto w_scales : {kRow, kTile}) {
      GemmSpec spec{.m = 300,
                    .n = 131,
                    .k = 330,
                    .w = w,
                    .bias = DType::kF32,
                    .codes = DType::kF8E4M3Fn};
      if (IsFp8(w)) spec.w_scales = w_scales;
      GemmCase all(spec);
      ASSERT_TRUE(all.Run().ok());
      for (const int64_t m : {1, 2, 3, 4, 7}) {
        spec.m = m;
        GemmCase some(spec);
        for (int64_t first = 0; first + m <= 300; first += 41) {
          some.y.Poison();
          some.codes.Poison();
          for (int64_t r = 0; r < m; ++r) {
            std::copy_n(all.x.Row<BF16>(first + r), spec.k,
                        some.x.Row<BF16>(r));
          }
          SkinnyGemmArgs args = all.Args();
          const auto bytes = SkinnyGemmWorkspaceBytes({.m = m,
                                                       .n = spec.n,
                                                       .k = spec.k,
                                                       .w_type = w,
                                                       .quantized = true},
                                                      GetDeviceInfo({}), 2);
          std::vector<char> workspace(static_cast<size_t>(*bytes));
          args.x = some.x.view();
          args.y = some.y.view();
          args.quantized = some.Args().quantized;
          args.workspace = workspace.data();
          args.workspace_bytes = *bytes;
          ASSERT_TRUE(SkinnyGemm(args, Stream::Cpu(2)).ok());
          for (int64_t r = 0; r < m; ++r) {
            for (int64_t c = 0; c < spec.n; ++c) {
              ASSERT_EQ(some.y.At<BF16>(r, c), all.y.At<BF16>(first + r, c));
              ASSERT_EQ(some.codes.At<uint8_t>(r, c),
                        all.codes.At<uint8_t>(first + r, c));
            }
          }
        }
      }
    }
  }
}

TEST(SkinnyGemm, BitsDoNotDependOnThreadsTargetsOrTheRun) {
  for (const int64_t m : {1, 4, 70}) {
    GemmSpec spec{.m = m,
                  .n = 960,
                  .k = 576,
                  .w = DType::kF8E4M3Fn,
                  .y = DType::kF32,
                  .w_scales = kRow};
    GemmCase first(spec);
    ASSERT_TRUE(first.Run(1).ok());
    const auto want = first.y.Dense<float>();
    ForEachTarget([&] {
      for (const int threads : {1, 2, 3, 7}) {
        GemmCase again(spec);
        ASSERT_TRUE(again.Run(threads).ok());
        ASSERT_EQ(testing::FirstDifference(again.y.Dense<float>(), want), -1)
            << threads << " threads, m " << m;
      }
    });
  }
}

TEST(SkinnyGemm, TwoHostThreads) {
  GemmSpec spec{.m = 3, .n = 500, .k = 576, .y = DType::kF32};
  GemmCase one(spec);
  ASSERT_TRUE(one.Run().ok());
  const auto want = one.y.Dense<float>();
  const auto repeat = [&](int* differences) {
    for (int i = 0; i < 30; ++i) {
      GemmCase mine(spec);
      if (!mine.Run().ok() ||
          testing::FirstDifference(mine.y.Dense<float>(), want) != -1) {
        ++*differences;
      }
    }
  };
  int differences[2] = {0, 0};
  std::thread other(repeat, &differences[0]);
  repeat(&differences[1]);
  other.join();
  EXPECT_EQ(differences[0], 0);
  EXPECT_EQ(differences[1], 0);
}

// ---- Accuracy and the plan --------------------------------------------------

TEST(SkinnyGemm, IsCloseToDouble) {
  for (const DType w : {DType::kBF16, DType::kF8E4M3Fn}) {
    for (const int64_t k : {576, 1536, 12800}) {
      for (const auto w_scales : {kRow, kTile}) {
        GemmSpec spec{.m = 5,
                      .n = 40,
                      .k = k,
                      .x = DType::kF32,
                      .w = w,
                      .y = DType::kF32};
        if (IsFp8(w)) spec.w_scales = w_scales;
        GemmCase test(spec);
        const auto want = testing::SkinnyGemmDouble(test.Args());
        ASSERT_TRUE(test.Run().ok());
        const double bound =
            (static_cast<double>(CeilDiv(k, 16)) + 6.0) * 0x1p-24;
        for (size_t i = 0; i < want.sums.size(); ++i) {
          const auto at = static_cast<int64_t>(i);
          ASSERT_NEAR(test.y.At<float>(at / 40, at % 40), want.sums[i],
                      bound * want.magnitudes[i]);
        }
      }
    }
  }
}

constexpr auto kDecode =
    gemm_internal::SelectSkinnyGemmPolicy({.m = 1, .n = 960, .k = 576});
static_assert(kDecode.path == gemm_internal::SkinnyGemmPath::kStream);
constexpr auto kPrefill =
    gemm_internal::SelectSkinnyGemmPolicy({.m = 512, .n = 960, .k = 576});
static_assert(kPrefill.path == gemm_internal::SkinnyGemmPath::kTile);

TEST(SkinnyGemmPolicy, PrintsItself) {
  EXPECT_EQ(kPrefill.ToString(),
            "SkinnyGemm: path tile, row_block 512, panel_rows 48, pitch 592");
}

TEST(SkinnyGemmWorkspace, LargerProblemsNeverNeedLess) {
  const auto bytes = [](SkinnyGemmProblem problem, int threads) {
    return *SkinnyGemmWorkspaceBytes(problem, GetDeviceInfo({}), threads);
  };
  for (const bool quantized : {false, true}) {
    int64_t last_k = 0;
    for (int64_t k = 0; k < 20000; k += 7) {
      const int64_t now =
          bytes({.m = 3, .n = 64, .k = k, .quantized = quantized}, 2);
      ASSERT_GE(now, last_k) << "k " << k;
      last_k = now;
    }
    int64_t last_m = 0;
    for (int64_t m = 0; m < 700; ++m) {
      const int64_t now =
          bytes({.m = m, .n = 64, .k = 99, .quantized = quantized}, 2);
      ASSERT_GE(now, last_m) << "m " << m;
      last_m = now;
    }
  }
  EXPECT_GT(bytes({.m = 1, .n = 1, .k = 1}, 3),
            bytes({.m = 1, .n = 1, .k = 1}, 2));
  // Zero threads: as many as the device has units.
  DeviceInfo eight;
  eight.num_units = 8;
  EXPECT_EQ(*SkinnyGemmWorkspaceBytes({.m = 1, .n = 1, .k = 1}, eight),
            bytes({.m = 1, .n = 1, .k = 1}, 8));
}

}  // namespace
}  // namespace lamina
