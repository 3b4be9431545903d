// What SkinnyGemm does to the sums of some output columns: scales and bias,
// gate, residual, store.

#if defined(LAMINA_GEMM_EPILOGUE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LAMINA_GEMM_EPILOGUE_INL_H_
#undef LAMINA_GEMM_EPILOGUE_INL_H_
#else
#define LAMINA_GEMM_EPILOGUE_INL_H_
#endif

#include <algorithm>
#include <array>
#include <cstdint>

#include "lamina/core/gate-inl.h"
#include "lamina/core/simd-inl.h"
#include "lamina/gemm/skinny_gemm/skinny_gemm_cpu.h"

HWY_BEFORE_NAMESPACE();
namespace lamina {
namespace HWY_NAMESPACE {

using gemm_internal::Chunk;
using gemm_internal::HasBlocks;
using gemm_internal::kMaxChunkRows;
using gemm_internal::ScaleOrOne;
using gemm_internal::YTable;

inline Chunk MakeChunk(const SkinnyGemmArgs& args, int64_t begin, int64_t end) {
  Chunk chunk{.begin = begin, .end = end, .run_rows = end - begin};
  const int64_t half = args.w.rows / 2;
  if (!args.gate) {
    chunk.first_row[0] = begin;
  } else if (args.gate->layout == GateLayout::kInterleaved) {
    chunk.first_row[0] = 2 * begin;
    chunk.run_rows = 2 * (end - begin);
  } else {
    const bool gate_first = args.gate->layout == GateLayout::kGateFirst;
    chunk.runs = 2;
    chunk.first_row[0] = gate_first ? begin : half + begin;
    chunk.first_row[1] = gate_first ? half + begin : begin;
  }
  return chunk;
}

// w_scale[i] for columns from `k` on.
inline void LoadWeightScales(const SkinnyGemmArgs& args, const Chunk& chunk,
                             int64_t k, float* w_scale) {
  for (int64_t i = 0; i < chunk.rows(); ++i) {
    w_scale[i] = ScaleOrOne(args.w_scales, chunk.Row(i), k);
  }
}

// What all rows of x have in common for one chunk, indexed by sum.
struct ChunkConstants {
  HWY_ALIGN float w_scale[kMaxChunkRows];
  HWY_ALIGN float bias[kMaxChunkRows];
  bool scaled;  // by one scale a row of x and one a row of w

  ChunkConstants(const SkinnyGemmArgs& args, const Chunk& chunk)
      : scaled(args.x.cols > 0 && !HasBlocks(args.x_scales) &&
               !HasBlocks(args.w_scales) &&
               (args.x_scales.has_value() || args.w_scales.has_value())) {
    if (scaled) LoadWeightScales(args, chunk, 0, w_scale);
    if (args.bias.has_value()) {
      Dispatch(YTable{}, std::array{args.bias.dtype}, [&]<class T>(Types<T>) {
        const T* from = static_cast<const T*>(args.bias.data);
        for (int64_t i = 0; i < chunk.rows(); ++i) {
          bias[i] = ToFloat(from[chunk.Row(i)]);
        }
      });
    }
  }
};

// Finishes row `row` of the chunk. sums[0, chunk.rows()) are its dots (or, with
// block scales, their scaled totals); they are overwritten. `values` is where
// the fp32 results of the row's column 0 go, or null.
template <class Y>
void FinishRow(const SkinnyGemmArgs& args, const Chunk& chunk,
               const ChunkConstants& constants, int64_t row,
               float* HWY_RESTRICT sums, float* values) {
  const DF32 d;
  if (constants.scaled) {
    const auto x_scale = hn::Set(d, ScaleOrOne(args.x_scales, row, 0));
    ForEachVector(d, chunk.rows(), [&](int64_t i, int64_t n) HWY_ATTR {
      const auto scaled = hn::Mul(hn::Mul(LoadUpTo(d, sums + i, n), x_scale),
                                  LoadUpTo(d, constants.w_scale + i, n));
      StoreUpTo(scaled, d, sums + i, n);
    });
  }
  if (args.bias.has_value()) {
    ForEachVector(d, chunk.rows(), [&](int64_t i, int64_t n) HWY_ATTR {
      const auto biased =
          hn::Add(LoadUpTo(d, sums + i, n), LoadUpTo(d, constants.bias + i, n));
      StoreUpTo(biased, d, sums + i, n);
    });
  }
  if (args.gate) {
    HWY_ALIGN float deinterleaved[kMaxChunkRows];
    float* gate = sums;
    float* up = sums + chunk.run_rows;
    if (args.gate->layout == GateLayout::kInterleaved) {
      gate = deinterleaved;
      up = deinterleaved + chunk.cols();
      for (int64_t i = 0; i < chunk.cols(); ++i) {
        gate[i] = sums[2 * i];
        up[i] = sums[2 * i + 1];
      }
    }
    ForEachVector(d, chunk.cols(), [&](int64_t i, int64_t n) HWY_ATTR {
      const auto product = GatedProduct(d, *args.gate, LoadUpTo(d, gate + i, n),
                                        LoadUpTo(d, up + i, n));
      StoreUpTo(product, d, sums + i, n);
    });
  }
  if (args.residual.has_value()) {
    const Y* residual = args.residual.Row<Y>(row) + chunk.begin;
    ForEachVector(d, chunk.cols(), [&](int64_t i, int64_t n) HWY_ATTR {
      const auto total =
          hn::Add(LoadUpTo(d, sums + i, n), LoadUpTo(d, residual + i, n));
      StoreUpTo(total, d, sums + i, n);
    });
  }
  if (args.y.has_value()) {
    Y* y = args.y.Row<Y>(row) + chunk.begin;
    ForEachVector(d, chunk.cols(), [&](int64_t i, int64_t n) HWY_ATTR {
      StoreUpTo(LoadUpTo(d, sums + i, n), d, y + i, n);
    });
  }
  if (values != nullptr) {
    std::copy_n(sums, chunk.cols(), values + chunk.begin);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace lamina
HWY_AFTER_NAMESPACE();

#endif  // include guard
