// code = convert(x / scale), scale = amax / qmax: see quant/quantize.h.
//
// Mapping: scales that belong to one row or less, and static ones: one pass,
// rows over threads (a dynamic row is read twice, the second time from cache).
// Dynamic tiles: the tiles over threads. Dynamic per tensor: a pass for amax
// and a pass for the codes; a maximum does not depend on the order in which
// threads contribute.
// Bytes per element: 4 or 2 read, 1 written; read twice for dynamic per tensor.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lamina/quant/quantize/quantize_cpu.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
//
#include <algorithm>
#include <array>
#include <cstdint>

#include "lamina/quant/quantize/quantize_policy.h"
#include "lamina/quant/store_quantized-inl.h"

#ifndef LAMINA_QUANT_QUANTIZE_CPU_ONCE_
#define LAMINA_QUANT_QUANTIZE_CPU_ONCE_
namespace lamina::quant_internal {
// Rows and columns that one call works on.
struct Region {
  int64_t row_begin, row_end, col_begin, col_end;
};
}  // namespace lamina::quant_internal
#endif

HWY_BEFORE_NAMESPACE();
namespace lamina {
namespace HWY_NAMESPACE {

using quant_internal::Region;

// Columns of one row of x as fp32.
// NOTE: the type is chosen at run time, once a vector: a third of the
// instantiations, and the branch is predicted.
struct Source {
  DType dtype;
  const void* row;

  HWY_INLINE VF32 operator()(int64_t i, int64_t n) const {
    const DF32 d;
    switch (dtype) {
      case DType::kBF16:
        return LoadUpTo(d, static_cast<const BF16*>(row) + i, n);
      case DType::kF16:
        return LoadUpTo(d, static_cast<const F16*>(row) + i, n);
      default:
        return LoadUpTo(d, static_cast<const float*>(row) + i, n);
    }
  }
};

Source SourceOf(const ConstMatrixView& x, int64_t row) {
  switch (x.dtype) {
    case DType::kBF16:
      return {x.dtype, x.Row<BF16>(row)};
    case DType::kF16:
      return {x.dtype, x.Row<F16>(row)};
    default:
      return {x.dtype, x.Row<float>(row)};
  }
}

// Codes and scales of whole rows whose scales are static or their own.
template <class Code>
HWY_NOINLINE void RowsTo(const QuantizeArgs& args, int64_t row_begin,
                         int64_t row_end) {
  for (int64_t row = row_begin; row < row_end; ++row) {
    StoreQuantized<Code, float>(DF32(), args.out,
                                {.row = row, .begin = 0, .end = args.x.cols},
                                SourceOf(args.x, row));
  }
}

// Codes of a region with one dynamic scale, which is known.
template <class Code>
HWY_NOINLINE void RegionTo(const QuantizeArgs& args, Region region,
                           float scale) {
  const float limit = ResolvedQmax(args.out);
  for (int64_t row = region.row_begin; row < region.row_end; ++row) {
    StoreCodes(DF32(), args.out.codes.Row<Code>(row), region.col_begin,
               region.col_end, 1.0f / scale, limit, SourceOf(args.x, row));
  }
}

void QuantizeRows(const QuantizeArgs& args, int64_t row_begin,
                  int64_t row_end) {
  Dispatch(
      CodeTable{}, std::array{args.out.codes.dtype},
      [&]<class Code>(Types<Code>) { RowsTo<Code>(args, row_begin, row_end); });
}

void QuantizeRegion(const QuantizeArgs& args, Region region, float scale) {
  Dispatch(
      CodeTable{}, std::array{args.out.codes.dtype},
      [&]<class Code>(Types<Code>) { RegionTo<Code>(args, region, scale); });
}

float RegionAmax(const QuantizeArgs& args, Region region) {
  float amax = 0.0f;
  for (int64_t row = region.row_begin; row < region.row_end; ++row) {
    amax = std::max(amax, FiniteAbsMax(DF32(), region.col_begin, region.col_end,
                                       SourceOf(args.x, row)));
  }
  return amax;
}

}  // namespace HWY_NAMESPACE
}  // namespace lamina
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <atomic>
#include <bit>

#include "lamina/core/math.h"
#include "lamina/core/parallel.h"

namespace lamina {
namespace quant_internal {
namespace {

HWY_EXPORT(QuantizeRows);
HWY_EXPORT(QuantizeRegion);
HWY_EXPORT(RegionAmax);

// Rows of about 32 Ki elements: some microseconds of work.
int64_t RowGrain(int64_t cols) { return std::max<int64_t>(1, 32768 / cols); }

void QuantizePerTensor(const QuantizeArgs& args, const Stream& stream) {
  const int64_t rows = args.x.total_rows();
  const int64_t cols = args.x.cols;
  // The bits of floats >= 0 are ordered as the floats are.
  std::atomic<uint32_t> amax_bits = 0;
  ParallelFor(
      stream, rows, RowGrain(cols), [&](int64_t begin, int64_t end, int) {
        const uint32_t bits = std::bit_cast<uint32_t>(
            HWY_DYNAMIC_DISPATCH(RegionAmax)(args, {begin, end, 0, cols}));
        uint32_t seen = amax_bits.load();
        while (bits > seen && !amax_bits.compare_exchange_weak(seen, bits)) {
        }
      });
  const float scale = StoreScale(
      args.out.scales, 0, 0,
      DynamicScale(std::bit_cast<float>(amax_bits.load()), args.out));
  ParallelFor(stream, rows, RowGrain(cols),
              [&](int64_t begin, int64_t end, int) {
                HWY_DYNAMIC_DISPATCH(QuantizeRegion)
                (args, {begin, end, 0, cols}, scale);
              });
}

void QuantizePerTile(const QuantizeArgs& args, const Stream& stream) {
  const ScaleView& scales = args.out.scales;
  const int64_t rows = args.x.total_rows();
  const int64_t cols = args.x.cols;
  const int64_t tile_cols = CeilDiv(cols, scales.block_cols);
  const int64_t tiles = CeilDiv(rows, scales.block_rows) * tile_cols;
  ParallelFor(stream, tiles, 2, [&](int64_t begin, int64_t end, int) {
    for (int64_t tile = begin; tile < end; ++tile) {
      const int64_t row = tile / tile_cols * scales.block_rows;
      const int64_t col = tile % tile_cols * scales.block_cols;
      const Region region{row, std::min(rows, row + scales.block_rows), col,
                          std::min(cols, col + scales.block_cols)};
      const float amax = HWY_DYNAMIC_DISPATCH(RegionAmax)(args, region);
      const float scale =
          StoreScale(scales, row, col, DynamicScale(amax, args.out));
      HWY_DYNAMIC_DISPATCH(QuantizeRegion)(args, region, scale);
    }
  });
}

}  // namespace

void QuantizeCpu(const QuantizeArgs& args, const Stream& stream) {
  if (args.out.dynamic) {
    switch (args.out.scales.granularity) {
      case ScaleGranularity::kPerTensor:
        return QuantizePerTensor(args, stream);
      case ScaleGranularity::kPerTile:
        return QuantizePerTile(args, stream);
      case ScaleGranularity::kPerRow:
      case ScaleGranularity::kPerBlock:
        break;
    }
  }
  ParallelFor(stream, args.x.total_rows(), RowGrain(args.x.cols),
              [&](int64_t begin, int64_t end, int) {
                HWY_DYNAMIC_DISPATCH(QuantizeRows)(args, begin, end);
              });
}

}  // namespace quant_internal
}  // namespace lamina
#endif  // HWY_ONCE
