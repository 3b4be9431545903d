#pragma once

// One SkinnyGemm problem with its memory: guarded matrices, random contents,
// optional scales, bias, gate, residual, quantised output.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "lamina/core/dispatch.h"
#include "lamina/gemm/skinny_gemm.h"
#include "lamina/gemm/skinny_gemm/skinny_gemm_policy.h"
#include "tests/support/memory.h"
#include "tests/support/random.h"
#include "tests/support/test_device.h"

namespace lamina::testing {

struct GemmSpec {
  int64_t m = 1, n = 8, k = 32;
  DType x = DType::kBF16;
  DType w = DType::kBF16;
  DType y = DType::kBF16;
  std::optional<ScaleGranularity> x_scales = std::nullopt;
  std::optional<ScaleGranularity> w_scales = std::nullopt;
  DType scale_type = DType::kF32;
  std::optional<DType> bias = std::nullopt;
  std::optional<GateSpec> gate = std::nullopt;
  bool residual = false;
  bool in_place = false;  // the residual is y
  std::optional<DType> codes = std::nullopt;
  ScaleGranularity code_scales = ScaleGranularity::kPerRow;
  bool dynamic = true;
  bool round_before_quant = false;
  bool no_y = false;
  // Small integers, and scales that are powers of two: sums are exact in any
  // order.
  bool exact = false;
  int64_t pad = 0;     // row_stride - cols, of all matrices
  int64_t offset = 0;  // elements from a 64-byte boundary, of all matrices
  uint64_t seed = 1;

  int64_t out_cols() const { return gate ? n / 2 : n; }
};

inline void FillNormal(Random& random, const GuardedMatrix& matrix,
                       float deviation = 1.0f) {
  const MatrixView view = matrix.view();
  using AnyTable = Table<Types<float>, Types<F16>, Types<BF16>, Types<F8E4M3Fn>,
                         Types<F8E5M2>, Types<F8E4M3Fnuz>, Types<F8E5M2Fnuz>>;
  Dispatch(AnyTable{}, std::array{view.dtype}, [&]<class T>(Types<T>) {
    for (int64_t r = 0; r < view.rows; ++r) {
      for (int64_t c = 0; c < view.cols; ++c) {
        view.Row<T>(r)[c] = FromFloat<T>(random.Normal(0.0f, deviation));
      }
    }
  });
}

inline void FillIntegers(Random& random, const GuardedMatrix& matrix) {
  const MatrixView view = matrix.view();
  using AnyTable = Table<Types<float>, Types<F16>, Types<BF16>, Types<F8E4M3Fn>,
                         Types<F8E5M2>, Types<F8E4M3Fnuz>, Types<F8E5M2Fnuz>>;
  Dispatch(AnyTable{}, std::array{view.dtype}, [&]<class T>(Types<T>) {
    for (int64_t r = 0; r < view.rows; ++r) {
      for (int64_t c = 0; c < view.cols; ++c) {
        view.Row<T>(r)[c] =
            FromFloat<T>(static_cast<float>(random.Integer(-2, 2)));
      }
    }
  });
}

// Scales of a [rows, cols] matrix.
class OwnedScales {
 public:
  OwnedScales() = default;
  OwnedScales(Random& random, std::optional<ScaleGranularity> granularity,
              DType dtype, int64_t rows, int64_t cols,
              bool powers_of_two = false) {
    if (!granularity) return;
    const int64_t blocks = std::max<int64_t>(1, CeilDiv(cols, 128));
    int64_t count = 1;
    view_.granularity = *granularity;
    view_.dtype = dtype;
    if (*granularity == ScaleGranularity::kPerRow) {
      count = rows;
      view_.row_stride = 1;
    } else if (*granularity == ScaleGranularity::kPerBlock) {
      count = rows * blocks;
      view_.block_cols = 128;
      view_.row_stride = blocks;
    } else if (*granularity == ScaleGranularity::kPerTile) {
      count = CeilDiv(rows, 128) * blocks;
      view_.block_cols = view_.block_rows = 128;
      view_.row_stride = blocks;
    }
    for (int64_t i = 0; i < std::max<int64_t>(1, count); ++i) {
      const float scale = static_cast<float>(random.Uniform(0.01, 0.2));
      powers_.push_back(FromFloat<F8E8M0>(scale));
      floats_.push_back(powers_of_two ? ToFloat(powers_.back()) : scale);
    }
    view_.data = dtype == DType::kF32 ? static_cast<void*>(floats_.data())
                                      : static_cast<void*>(powers_.data());
  }
  OwnedScales(OwnedScales&&) = default;
  ScaleView view() const { return view_; }

 private:
  std::vector<float> floats_;
  std::vector<F8E8M0> powers_;
  ScaleView view_;
};

class GemmCase {
 public:
  explicit GemmCase(const GemmSpec& s)
      : spec(s),
        random(s.seed),
        x(s.x, s.m, s.k, s.k + s.pad, s.offset),
        w(s.w, s.n, s.k, s.k + s.pad, s.offset),
        bias(s.bias.value_or(DType::kF32), 1, s.n, -1, s.offset),
        residual(s.y, s.m, s.out_cols(), s.out_cols() + s.pad, s.offset),
        y(s.y, s.m, s.out_cols(), s.out_cols() + s.pad, s.offset),
        codes(s.codes.value_or(DType::kI8), s.m, s.out_cols(),
              s.out_cols() + s.pad, s.offset),
        x_scales(random, s.x_scales, s.scale_type, s.m, s.k, s.exact),
        w_scales(random, s.w_scales, s.scale_type, s.n, s.k, s.exact),
        code_scales(random, s.code_scales, DType::kF32, s.m, s.out_cols()) {
    for (const GuardedMatrix* matrix : {&x, &w, &bias, &residual}) {
      if (spec.exact) {
        FillIntegers(random, *matrix);
      } else {
        FillNormal(random, *matrix);
      }
    }
  }

  SkinnyGemmArgs Args() {
    SkinnyGemmArgs args{.x = x.view(), .w = w.view()};
    if (spec.x_scales) args.x_scales = x_scales.view();
    if (spec.w_scales) args.w_scales = w_scales.view();
    if (spec.bias) {
      args.bias = {
          .data = bias.view().data, .dtype = *spec.bias, .size = spec.n};
    }
    args.gate = spec.gate;
    args.y = y.view();
    if (spec.residual) args.residual = residual.view();
    if (spec.in_place) args.residual = y.view();
    if (spec.no_y) args.y.data = nullptr;
    if (spec.codes) {
      args.quantized.codes = codes.view();
      args.quantized.scales = code_scales.view();
      args.quantized.dynamic = spec.dynamic;
      args.quantized.round_before_quant = spec.round_before_quant;
    }
    return args;
  }

  // Runs with a workspace of just the right size, at an odd address and full
  // of NaN, whose guard bytes must survive.
  absl::Status Run(int threads = 2) { return Run(TestStream(threads)); }
  absl::Status Run(const Stream& stream, PrefillGemm* prefill = nullptr) {
    SkinnyGemmArgs args = Args();
    args.prefill = prefill;
    const auto bytes = SkinnyGemmWorkspaceBytes(
        {.m = spec.m,
         .n = spec.n,
         .k = spec.k,
         .x_type = spec.x,
         .w_type = spec.w,
         .y_type = spec.y,
         .gated = spec.gate.has_value(),
         .quantized = spec.codes.has_value(),
         .prefill = prefill != nullptr},
        GetDeviceInfo(stream.device()), stream.num_threads());
    if (!bytes.ok()) return bytes.status();
    constexpr size_t kGuard = 64;
    std::vector<uint8_t> memory(static_cast<size_t>(*bytes) + 2 * kGuard + 1,
                                0xff);
    args.workspace = memory.data() + kGuard + 1;
    args.workspace_bytes = *bytes;
    absl::Status status = SkinnyGemm(args, stream);
    if (status.ok()) status = Synchronize(stream);
    const auto clean = [](auto begin, auto end) {
      return std::all_of(begin, end, [](uint8_t b) { return b == 0xff; });
    };
    EXPECT_TRUE(clean(memory.begin(), memory.begin() + kGuard + 1));
    EXPECT_TRUE(clean(memory.end() - kGuard, memory.end()));
    EXPECT_TRUE(x.GuardsIntact() && w.GuardsIntact() && y.GuardsIntact() &&
                codes.GuardsIntact() && residual.GuardsIntact() &&
                bias.GuardsIntact());
    return status;
  }

  GemmSpec spec;
  Random random;
  GuardedMatrix x, w, bias, residual, y, codes;
  OwnedScales x_scales, w_scales, code_scales;
};

template <class T>
bool SameBits(T a, T b) {
  return __builtin_memcmp(&a, &b, sizeof(T)) == 0 ||
         (std::isnan(ToFloat(a)) && std::isnan(ToFloat(b)));
}

// y holds round_T of the values.
inline void ExpectY(const ConstMatrixView& y,
                    const std::vector<float>& values) {
  Dispatch(gemm_internal::YTable{}, std::array{y.dtype},
           [&]<class Y>(Types<Y>) {
             for (int64_t r = 0; r < y.rows; ++r) {
               for (int64_t c = 0; c < y.cols; ++c) {
                 const float want = values[static_cast<size_t>(r * y.cols + c)];
                 const Y got = y.Row<Y>(r)[c];
                 ASSERT_TRUE(SameBits(got, FromFloat<Y>(want)))
                     << std::hexfloat << "row " << r << " col " << c << ": "
                     << ToFloat(got) << ", want " << want;
               }
             }
           });
}

}  // namespace lamina::testing
