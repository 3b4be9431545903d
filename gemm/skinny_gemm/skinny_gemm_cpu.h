#pragma once

// What the parts of the CPU backend share: one call's state, the weight rows
// behind some output columns, and the kernels that depend on the weight type.

#include <algorithm>
#include <cstdint>

#include "lamina/gemm/skinny_gemm.h"
#include "lamina/gemm/skinny_gemm/skinny_gemm_policy.h"

namespace lamina::gemm_internal {

// Runs checked arguments on the CPU. `workspace` is the first 64-byte boundary
// of the caller's.
void SkinnyGemmCpu(const SkinnyGemmArgs& args, const SkinnyGemmPolicy& policy,
                   const SkinnyGemmWorkspace& plan, char* workspace,
                   const Stream& stream);

// Most weight rows whose sums are finished together: the gate and the up rows
// of kStreamCols output columns.
inline constexpr int64_t kMaxChunkRows =
    std::max(2 * kStreamCols, kMaxPanelRows);

inline bool HasBlocks(const ConstScaleView& scales) {
  return scales.has_value() &&
         scales.granularity >= ScaleGranularity::kPerBlock;
}

// The scale of matrix element (row, col), 1 without scales.
inline float ScaleOrOne(const ConstScaleView& scales, int64_t row,
                        int64_t col) {
  return scales.has_value() ? LoadScale(scales, row, col) : 1.0f;
}

// Rows [begin, begin + rows) of x, in fp32.
struct Gemm {
  const SkinnyGemmArgs& args;
  const SkinnyGemmPolicy& policy;
  int64_t begin = 0;
  int64_t rows = 0;
  float* x = nullptr;       // [rows, pitch]
  float* values = nullptr;  // [rows, out_cols], when the output is quantised
  char* panels = nullptr;   // one a thread
  int64_t panel_bytes = 0;
  int64_t out_cols = 0;
  bool blocks = false;  // scales per block

  float* X(int64_t row) const { return x + row * policy.pitch; }
  float* Values(int64_t row) const {
    return values == nullptr ? nullptr : values + row * out_cols;
  }
  float XScale(int64_t row, int64_t col) const {
    return ScaleOrOne(args.x_scales, begin + row, col);
  }
};

// The weight rows behind output columns [begin, end): one run of adjacent
// rows, or with split gate layouts two of the same length, gate's first. Sums
// of a chunk are indexed in this order.
struct Chunk {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t first_row[2] = {0, 0};
  int64_t run_rows = 0;
  int64_t runs = 1;

  int64_t cols() const { return end - begin; }
  int64_t rows() const { return runs * run_rows; }
  int64_t Row(int64_t i) const {
    return i < run_rows ? first_row[0] + i : first_row[1] + i - run_rows;
  }
};

// Adjacent weight rows of the stream path, and where their sums go:
// sums[x row * kMaxChunkRows + weight row].
struct StreamRun {
  int64_t first_row = 0;
  int64_t rows = 0;
  float* sums = nullptr;
};
inline constexpr int64_t kStreams = 2;

// The window of x outside of which a stream kernel with x_factor != 1 is not
// exact: every |x| must be 0, NaN or in [kSmallestX, kLargestX).
inline constexpr float kSmallestX = 0x1p-87f;
inline constexpr float kLargestX = 0x1p30f;

// The kernels of one weight type.
struct WeightKernels {
  // The stream path wants x multiplied by this power of two, and if so told
  // with the even columns of each 16 before the odd ones.
  float x_factor = 1.0f;
  bool deinterleaved = false;
  // Dots (with block scales: scaled totals) of all rows of x and the weight
  // rows of kStreams runs, read from memory.
  void (*stream)(const Gemm&, const StreamRun* runs) = nullptr;
  // The chunk's weight rows in fp32, `pitch` apart, with zero columns up to a
  // multiple of 16 and zero rows up to a multiple of kTileCols.
  void (*decode_panel)(const Gemm&, const Chunk&, float* panel) = nullptr;
};
WeightKernels WeightKernelsOf(DType w_type);

}  // namespace lamina::gemm_internal
