#include "tests/gemm/skinny_gemm_reference.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>

#include "lamina/core/dispatch.h"
#include "lamina/core/gate.h"
#include "lamina/core/math.h"
#include "lamina/quant/fp8.h"

namespace lamina::testing {
namespace {

using AnyTable = Table<Types<float>, Types<F16>, Types<BF16>, Types<F8E4M3Fn>,
                       Types<F8E5M2>, Types<F8E4M3Fnuz>, Types<F8E5M2Fnuz>>;

std::vector<float> RowOf(const ConstMatrixView& view, int64_t row) {
  std::vector<float> values(static_cast<size_t>(view.cols));
  Dispatch(AnyTable{}, std::array{view.dtype}, [&]<class T>(Types<T>) {
    for (int64_t c = 0; c < view.cols; ++c) {
      values[static_cast<size_t>(c)] = ToFloat(view.Row<T>(row)[c]);
    }
  });
  return values;
}

float Dot(const float* a, const float* b, int64_t count) {
  float slot[16] = {};
  for (int64_t k = 0; k < count; ++k) {
    slot[k % 16] = std::fma(a[k], b[k], slot[k % 16]);
  }
  for (int64_t k = count; k < RoundUp(count, 16); ++k) slot[k % 16] += 0.0f;
  for (int width = 8; width > 0; width /= 2) {
    for (int s = 0; s < width; ++s) slot[s] += slot[s + width];
  }
  return slot[0];
}

float Scale(const ConstScaleView& scales, int64_t row, int64_t col) {
  return scales.has_value() ? LoadScale(scales, row, col) : 1.0f;
}

bool HasBlocks(const ConstScaleView& scales) {
  return scales.has_value() &&
         (scales.granularity == ScaleGranularity::kPerBlock ||
          scales.granularity == ScaleGranularity::kPerTile);
}

// The sum of row m of x and row r of w by the GPUs' rule.
float GpuSum(const SkinnyGemmArgs& args, std::vector<float> x,
             std::vector<float> w, int64_t m, int64_t r, bool blocks) {
  const size_t count = x.size();
  if (count == 0) return 0.0f;
  x.resize(static_cast<size_t>(RoundUp(args.x.cols, 8)));
  w.resize(x.size());
  float partial[32] = {};
  for (size_t first = 0; first < count; first += 8) {
    float dot = 0.0f;
    for (size_t i = first; i < first + 8; ++i) dot = std::fma(x[i], w[i], dot);
    const int64_t col = static_cast<int64_t>(first);
    if (blocks) {
      dot = (dot * Scale(args.x_scales, m, col)) * Scale(args.w_scales, r, col);
    }
    partial[first / 8 % 32] += dot;
  }
  for (int width = 16; width > 0; width /= 2) {
    for (int i = 0; i < width; ++i) {
      partial[i] = partial[2 * i] + partial[2 * i + 1];
    }
  }
  if (blocks) return partial[0];
  return (partial[0] * Scale(args.x_scales, m, 0)) * Scale(args.w_scales, r, 0);
}

}  // namespace

std::vector<float> SkinnyGemmReference(const SkinnyGemmArgs& args,
                                       SumRule rule) {
  const int64_t k = args.x.cols;
  const int64_t n = args.w.rows;
  const bool blocks = HasBlocks(args.x_scales) || HasBlocks(args.w_scales);
  std::vector<std::vector<float>> w;
  for (int64_t r = 0; r < n; ++r) w.push_back(RowOf(args.w, r));
  std::vector<float> bias(static_cast<size_t>(n));
  if (args.bias.has_value()) {
    bias = RowOf({.data = args.bias.data,
                  .dtype = args.bias.dtype,
                  .rows = 1,
                  .cols = n},
                 0);
  }
  std::vector<float> values;
  for (int64_t m = 0; m < args.x.rows; ++m) {
    const std::vector<float> x = RowOf(args.x, m);
    std::vector<float> row(static_cast<size_t>(n));
    for (int64_t r = 0; r < n; ++r) {
      const float* weights = w[static_cast<size_t>(r)].data();
      float sum = 0.0f;
      if (rule == SumRule::kGpu) {
        sum = GpuSum(args, x, w[static_cast<size_t>(r)], m, r, blocks);
      } else if (blocks) {
        for (int64_t b = 0; b < k; b += 128) {
          const float dot =
              Dot(x.data() + b, weights + b, std::min<int64_t>(128, k - b));
          const float scaled =
              (dot * Scale(args.x_scales, m, b)) * Scale(args.w_scales, r, b);
          sum += scaled;
        }
      } else if (k > 0) {
        sum = (Dot(x.data(), weights, k) * Scale(args.x_scales, m, 0)) *
              Scale(args.w_scales, r, 0);
      }
      if (args.bias.has_value()) sum += bias[static_cast<size_t>(r)];
      row[static_cast<size_t>(r)] = sum;
    }
    std::vector<float> out = row;
    if (args.gate) {
      const size_t cols = row.size() / 2;
      out.resize(cols);
      for (size_t c = 0; c < cols; ++c) {
        const bool interleaved = args.gate->layout == GateLayout::kInterleaved;
        const bool second = args.gate->layout == GateLayout::kGateSecond;
        const float gate = row[interleaved ? 2 * c : second ? cols + c : c];
        const float up = row[interleaved ? 2 * c + 1 : second ? c : cols + c];
        out[c] = GatedProduct(*args.gate, gate, up);
      }
    }
    if (args.residual.has_value()) {
      const std::vector<float> residual = RowOf(args.residual, m);
      for (size_t c = 0; c < out.size(); ++c) out[c] += residual[c];
    }
    values.insert(values.end(), out.begin(), out.end());
  }
  return values;
}

DoubleSums SkinnyGemmDouble(const SkinnyGemmArgs& args) {
  DoubleSums result;
  for (int64_t m = 0; m < args.x.rows; ++m) {
    const std::vector<float> x = RowOf(args.x, m);
    for (int64_t r = 0; r < args.w.rows; ++r) {
      const std::vector<float> w = RowOf(args.w, r);
      double sum = 0;
      double magnitude = 0;
      for (size_t k = 0; k < x.size(); ++k) {
        const int64_t col = static_cast<int64_t>(k);
        const double product = static_cast<double>(x[k]) * w[k] *
                               Scale(args.x_scales, m, col) *
                               Scale(args.w_scales, r, col);
        sum += product;
        magnitude += std::fabs(product);
      }
      result.sums.push_back(sum);
      result.magnitudes.push_back(magnitude);
    }
  }
  return result;
}

}  // namespace lamina::testing
