// SkinnyGemm on the CPU.
//
// y = x · wᵀ. Threads share the output columns; a thread takes a chunk of them
// at a time, sums all rows of x for it, and finishes it while it is in cache.
//   stream path (few rows of x): weights go from memory through the decoder
//     into the sums (weights_cpu.cc). Limit: reading w once from memory.
//   tile path: a panel of weight rows is decoded to fp32 in the second-level
//     cache; each 4 rows of x, kept in the first-level cache, sweep over it in
//     4 x 3 register tiles. Limit: two fma a cycle.
// Both paths follow the order of sums in skinny_gemm.h.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lamina/gemm/skinny_gemm/skinny_gemm_cpu.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
//
#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <limits>

#include "lamina/core/parallel.h"
#include "lamina/gemm/skinny_gemm/add_slots-inl.h"
#include "lamina/gemm/skinny_gemm/epilogue-inl.h"
#include "lamina/gemm/skinny_gemm/skinny_gemm_cpu.h"
#include "lamina/quant/fp8-inl.h"
#include "lamina/quant/store_quantized.h"

HWY_BEFORE_NAMESPACE();
namespace lamina {
namespace HWY_NAMESPACE {

using gemm_internal::Gemm;
using gemm_internal::kMaxPanelRows;
using gemm_internal::kScaleBlock;
using gemm_internal::kSlots;
using gemm_internal::kTileCols;
using gemm_internal::kTileRows;
using gemm_internal::SkinnyGemmPath;
using gemm_internal::SkinnyGemmPolicy;
using gemm_internal::StreamRun;
using gemm_internal::WeightKernels;
using gemm_internal::XTable;

// ---- x to fp32 --------------------------------------------------------------

// out[0, count) = in * kernels.x_factor, then zeros up to a multiple of 16; in
// the order the kernels want. True when x lies in their window.
template <class X>
bool ConvertRow(const X* HWY_RESTRICT in, int64_t count,
                const WeightKernels& kernels, float* HWY_RESTRICT out) {
  const DF32 d;
  const auto factor = hn::Set(d, kernels.x_factor);
  const auto infinity = hn::Set(d, std::numeric_limits<float>::infinity());
  auto smallest = infinity;
  auto largest = hn::Zero(d);
  ForEachVector(d, count, [&](int64_t i, int64_t n) HWY_ATTR {
    const auto v = LoadUpTo(d, in + i, n);
    const auto magnitude = hn::Abs(v);
    // NOTE: x86 takes the second operand if the first is NaN.
    largest = hn::Max(magnitude, largest);
    smallest = hn::Min(
        hn::IfThenElse(hn::Eq(v, hn::Zero(d)), infinity, magnitude), smallest);
    StoreUpTo(hn::Mul(v, factor), d, out + i, n);
  });
  const int64_t padded = RoundUp(count, kSlots);
  std::fill(out + count, out + padded, 0.0f);
#if HWY_TARGET != HWY_SCALAR
  if (kernels.deinterleaved) {
    const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
    for (int64_t i = 0; i < padded; i += 2 * lanes) {
      const auto low = hn::Load(d, out + i);
      const auto high = hn::Load(d, out + i + lanes);
      hn::Store(hn::ConcatEven(d, high, low), d, out + i);
      hn::Store(hn::ConcatOdd(d, high, low), d, out + i + lanes);
    }
  }
#endif
  return hn::GetLane(hn::MinOfLanes(d, smallest)) >=
             gemm_internal::kSmallestX &&
         hn::GetLane(hn::MaxOfLanes(d, largest)) < gemm_internal::kLargestX;
}

bool ConvertRows(const Gemm& gemm, const WeightKernels& kernels, int64_t begin,
                 int64_t end) {
  bool inside = true;
  Dispatch(XTable{}, std::array{gemm.args.x.dtype},
           [&]<class X>(Types<X>) HWY_ATTR {
             for (int64_t r = begin; r < end; ++r) {
               const X* in = gemm.args.x.Row<X>(gemm.begin + r);
               inside &= ConvertRow(in, gemm.args.x.cols, kernels, gemm.X(r));
             }
           });
  return inside;
}

// ---- Register tiles ---------------------------------------------------------

// kM rows of x times three rows of w, both fp32 with one pitch, columns
// [0, count), count a multiple of 16. Adds to the slots, which `first` sets to
// +0. A sweep takes the slots of one vector, so that 12 sums stay in registers.
template <int kM>
HWY_NOINLINE void TileDot(const float* HWY_RESTRICT x,
                          const float* HWY_RESTRICT w, int64_t pitch,
                          int64_t count, bool first,
                          float* HWY_RESTRICT slots) {
  const DF32 d;
  constexpr int kN = gemm_internal::kTileCols;
  constexpr int kLanes = static_cast<int>(hn::MaxLanes(DF32()));
  for (int begin = 0; begin < kSlots; begin += kLanes) {
    VF32 sums[kM][kN];
    for (int m = 0; m < kM; ++m) {
      for (int n = 0; n < kN; ++n) {
        sums[m][n] = first ? hn::Zero(d)
                           : hn::Load(d, slots + (m * kN + n) * kSlots + begin);
      }
    }
    for (int64_t k = begin; k < count; k += kSlots) {
      VF32 weights[kN];
      for (int n = 0; n < kN; ++n) {
        weights[n] = hn::Load(d, w + n * pitch + k);
      }
      for (int m = 0; m < kM; ++m) {
        const VF32 activation = hn::Load(d, x + m * pitch + k);
        for (int n = 0; n < kN; ++n) {
          sums[m][n] = FusedMulAdd(activation, weights[n], sums[m][n]);
        }
      }
    }
    for (int m = 0; m < kM; ++m) {
      for (int n = 0; n < kN; ++n) {
        hn::Store(sums[m][n], d, slots + (m * kN + n) * kSlots + begin);
      }
    }
  }
}

// sums[x row][kMaxChunkRows] of kM rows of x from `row` on for the panel.
template <int kM>
void TileSums(const Gemm& gemm, const Chunk& chunk, const float* panel,
              int64_t row, float* HWY_RESTRICT sums) {
  constexpr int64_t kTile = kM * kTileCols;
  HWY_ALIGN float slots[kMaxPanelRows * kM * kSlots];
  const int64_t pitch = gemm.policy.pitch;
  const int64_t cols = gemm.args.x.cols;
  const int64_t padded = RoundUp(cols, kSlots);
  const int64_t tiles = CeilDiv(chunk.rows(), kTileCols);
  const int64_t step = gemm.blocks ? kScaleBlock : gemm_internal::kColBlock;
  const auto scatter = [&](int64_t tile, auto&& store) HWY_ATTR {
    float dots[kTile];
    AddSlots(slots + tile * kTile * kSlots, kTile, dots);
    for (int64_t m = 0; m < kM; ++m) {
      for (int64_t n = 0; n < kTileCols; ++n) {
        store(m, tile * kTileCols + n, dots[m * kTileCols + n]);
      }
    }
  };
  if (gemm.blocks) std::fill_n(sums, kM * kMaxChunkRows, 0.0f);
  for (int64_t k = 0; k < cols; k += step) {
    float x_scale[kM] = {};
    HWY_ALIGN float w_scale[kMaxChunkRows];
    if (gemm.blocks) {
      for (int64_t m = 0; m < kM; ++m) x_scale[m] = gemm.XScale(row + m, k);
      LoadWeightScales(gemm.args, chunk, k, w_scale);
      std::fill(w_scale + chunk.rows(), w_scale + tiles * kTileCols, 1.0f);
    }
    for (int64_t tile = 0; tile < tiles; ++tile) {
      TileDot<kM>(gemm.X(row) + k, panel + tile * kTileCols * pitch + k, pitch,
                  std::min(step, padded - k), gemm.blocks || k == 0,
                  slots + tile * kTile * kSlots);
      if (gemm.blocks) {
        scatter(tile, [&](int64_t m, int64_t n, float dot) HWY_ATTR {
          sums[m * kMaxChunkRows + n] += (dot * x_scale[m]) * w_scale[n];
        });
      } else if (k + step >= cols) {
        scatter(tile, [&](int64_t m, int64_t n, float dot)
                          HWY_ATTR { sums[m * kMaxChunkRows + n] = dot; });
      }
    }
  }
}

// ---- The call ---------------------------------------------------------------

// Finishes rows [row, row + count) of the row block.
void FinishRows(const Gemm& gemm, const Chunk& chunk,
                const ChunkConstants& constants, int64_t row, int64_t count,
                float* sums) {
  Dispatch(YTable{}, std::array{gemm.args.y.dtype},
           [&]<class Y>(Types<Y>) HWY_ATTR {
             for (int64_t m = 0; m < count; ++m) {
               FinishRow<Y>(gemm.args, chunk, constants, gemm.begin + row + m,
                            sums + m * kMaxChunkRows, gemm.Values(row + m));
             }
           });
}

// One chunk on the tile path.
void TileChunk(const Gemm& gemm, const WeightKernels& kernels,
               const Chunk& chunk, float* panel) {
  static constexpr std::array kTileSums{TileSums<1>, TileSums<2>, TileSums<3>,
                                        TileSums<4>};
  static_assert(kTileSums.size() == kTileRows, "one for each count of rows");
  HWY_ALIGN float sums[kTileRows * kMaxChunkRows];
  const ChunkConstants constants(gemm.args, chunk);
  kernels.decode_panel(gemm, chunk, panel);
  for (int64_t row = 0; row < gemm.rows; row += kTileRows) {
    const int64_t count = std::min(kTileRows, gemm.rows - row);
    kTileSums[static_cast<size_t>(count - 1)](gemm, chunk, panel, row, sums);
    FinishRows(gemm, chunk, constants, row, count, sums);
  }
}

// Two chunks side by side on the stream path; `second` may be empty. A chunk
// of two runs is both streams itself.
void StreamChunks(const Gemm& gemm, const WeightKernels& kernels,
                  const Chunk& first, const Chunk& second) {
  HWY_ALIGN float sums[2][gemm_internal::kMaxStreamRows * kMaxChunkRows];
  if (first.runs == 2) {
    const StreamRun runs[] = {
        {first.first_row[0], first.run_rows, sums[0]},
        {first.first_row[1], first.run_rows, sums[0] + first.run_rows}};
    kernels.stream(gemm, runs);
  } else {
    const StreamRun runs[] = {{first.first_row[0], first.run_rows, sums[0]},
                              {second.first_row[0], second.run_rows, sums[1]}};
    kernels.stream(gemm, runs);
  }
  FinishRows(gemm, first, ChunkConstants(gemm.args, first), 0, gemm.rows,
             sums[0]);
  if (second.cols() > 0) {
    FinishRows(gemm, second, ChunkConstants(gemm.args, second), 0, gemm.rows,
               sums[1]);
  }
}

// k = 0: all sums are +0.
void EmptyChunk(const Gemm& gemm, const Chunk& chunk) {
  const ChunkConstants constants(gemm.args, chunk);
  for (int64_t row = 0; row < gemm.rows; ++row) {
    HWY_ALIGN float sums[kMaxChunkRows] = {};
    FinishRows(gemm, chunk, constants, row, 1, sums);
  }
}

// Output columns [begin, end) of all rows of the row block.
void RunColumns(const Gemm& gemm, const WeightKernels& kernels,
                SkinnyGemmPath path, int64_t begin, int64_t end, float* panel) {
  const auto chunk = [&](int64_t first, int64_t last) {
    return MakeChunk(gemm.args, first, last);
  };
  constexpr int64_t kCols = gemm_internal::kStreamCols;
  if (gemm.args.x.cols == 0) {
    for (int64_t col = begin; col < end; col += kCols) {
      EmptyChunk(gemm, chunk(col, std::min(end, col + kCols)));
    }
  } else if (path == SkinnyGemmPath::kTile) {
    const int64_t width = gemm.policy.panel_rows / (gemm.args.gate ? 2 : 1);
    for (int64_t col = begin; col < end; col += width) {
      TileChunk(gemm, kernels, chunk(col, std::min(end, col + width)), panel);
    }
  } else if (chunk(begin, end).runs == 2) {
    for (int64_t col = begin; col < end; col += kCols) {
      StreamChunks(gemm, kernels, chunk(col, std::min(end, col + kCols)), {});
    }
  } else {
    // The streams are the halves of the range.
    const int64_t half = begin + CeilDiv(end - begin, 2);
    for (int64_t col = begin; col < half; col += kCols) {
      const int64_t other = half + col - begin;
      StreamChunks(gemm, kernels, chunk(col, std::min(half, col + kCols)),
                   chunk(std::min(end, other), std::min(end, other + kCols)));
    }
  }
}

void RunRowBlock(const Gemm& gemm, const Stream& stream) {
  const SkinnyGemmArgs& args = gemm.args;
  const WeightKernels kernels = gemm_internal::WeightKernelsOf(args.w.dtype);
  const int64_t k = std::max<int64_t>(1, args.x.cols);
  const auto convert = [&](const WeightKernels& form) {
    std::atomic<bool> inside = true;
    ParallelFor(stream, gemm.rows,
                CeilDiv(gemm_internal::kMinThreadElements, k),
                [&](int64_t begin, int64_t end, int) {
                  if (!ConvertRows(gemm, form, begin, end)) inside = false;
                });
    return inside.load();
  };
  SkinnyGemmPath path = gemm.policy.path;
  if (path == SkinnyGemmPath::kTile) {
    convert({});
  } else if (!convert(kernels) && kernels.x_factor != 1.0f) {
    // The other path takes any x.
    convert({});
    path = SkinnyGemmPath::kTile;
  }
  const int64_t col_elements = k * (args.gate ? 2 : 1);
  const int64_t grain =
      path == SkinnyGemmPath::kStream
          ? gemm_internal::kMinThreadBytes /
                BytesFor(args.w.dtype, col_elements)
          : gemm_internal::kMinThreadProducts / (col_elements * gemm.rows);
  ParallelFor(stream, gemm.out_cols, grain,
              [&](int64_t begin, int64_t end, int thread) {
                RunColumns(gemm, kernels, path, begin, end,
                           reinterpret_cast<float*>(gemm.panels +
                                                    thread * gemm.panel_bytes));
              });
  if (gemm.values == nullptr) return;
  ParallelFor(stream, gemm.rows,
              CeilDiv(gemm_internal::kMinThreadElements, gemm.out_cols),
              [&](int64_t begin, int64_t end, int) {
                for (int64_t r = begin; r < end; ++r) {
                  StoreQuantizedSpan(
                      args.quantized,
                      {.row = gemm.begin + r, .begin = 0, .end = gemm.out_cols},
                      gemm.Values(r), args.y.dtype);
                }
              });
}

void Run(const SkinnyGemmArgs& args, const SkinnyGemmPolicy& policy,
         const gemm_internal::SkinnyGemmWorkspace& plan, char* workspace,
         const Stream& stream) {
  Gemm gemm{.args = args, .policy = policy};
  gemm.x = reinterpret_cast<float*>(workspace + plan.x);
  if (args.quantized.has_value()) {
    gemm.values = reinterpret_cast<float*>(workspace + plan.values);
  }
  gemm.panels = workspace + plan.panels;
  gemm.panel_bytes = plan.panel_bytes;
  gemm.out_cols = args.gate ? args.w.rows / 2 : args.w.rows;
  gemm.blocks = HasBlocks(args.x_scales) || HasBlocks(args.w_scales);
  for (int64_t begin = 0; begin < args.x.rows; begin += policy.row_block) {
    gemm.begin = begin;
    gemm.rows = std::min(policy.row_block, args.x.rows - begin);
    RunRowBlock(gemm, stream);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace lamina
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lamina {
HWY_EXPORT(Run);
void gemm_internal::SkinnyGemmCpu(const SkinnyGemmArgs& args,
                                  const SkinnyGemmPolicy& policy,
                                  const SkinnyGemmWorkspace& plan,
                                  char* workspace, const Stream& stream) {
  HWY_DYNAMIC_DISPATCH(Run)(args, policy, plan, workspace, stream);
}
}  // namespace lamina
#endif  // HWY_ONCE
