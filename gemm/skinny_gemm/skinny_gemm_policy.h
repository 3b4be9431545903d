#pragma once

// What SkinnyGemm supports and how the CPU backend runs it: plain data.

#include <algorithm>
#include <cstdint>
#include <string>

#include "lamina/core/dispatch.h"
#include "lamina/core/dtype.h"
#include "lamina/core/math.h"
#include "lamina/gemm/skinny_gemm.h"

namespace lamina::gemm_internal {

// Every combination of an X, a W and a Y type is supported.
using XTable = Table<Types<float>, Types<F16>, Types<BF16>, Types<F8E4M3Fn>,
                     Types<F8E5M2>, Types<F8E4M3Fnuz>, Types<F8E5M2Fnuz>>;
using WTable = Table<Types<F16>, Types<BF16>, Types<F8E4M3Fn>, Types<F8E5M2>,
                     Types<F8E4M3Fnuz>, Types<F8E5M2Fnuz>>;
using YTable = Table<Types<float>, Types<F16>, Types<BF16>>;

inline constexpr int64_t kSlots = 16;        // partial sums of one output
inline constexpr int64_t kScaleBlock = 128;  // columns of a scale block

enum class SkinnyGemmPath : uint8_t {
  // Weights go from memory through the decoder straight into the sums of all
  // rows of x: bound by memory.
  kStream,
  // Some weight rows are decoded to an fp32 panel that all rows of x use:
  // bound by arithmetic.
  kTile,
};
constexpr const char* Name(SkinnyGemmPath path) {
  return path == SkinnyGemmPath::kStream ? "stream" : "tile";
}

// Most rows of x on the stream path.
inline constexpr int64_t kMaxStreamRows = 12;

// How far the stream path prefetches: with one stream, with each of two.
inline constexpr int64_t kPrefetchBytes = 4096;
inline constexpr int64_t kPrefetchBytesOfTwo = 1024;

// The register tile: 4 rows of x by 3 of w, 12 sums of 8 lanes in 16 registers.
inline constexpr int64_t kTileRows = 4;
inline constexpr int64_t kTileCols = 3;

// Rows of x that are converted to fp32 at a time: bounds the workspace.
inline constexpr int64_t kRowBlock = 512;

// Columns of x and w that a tile takes at a time, so that the rows of x stay
// in the first-level cache (4 rows * 512 * 4 bytes = 8 KiB).
inline constexpr int64_t kColBlock = 512;

// A panel stays in the second-level cache together with what streams past it.
inline constexpr int64_t kMaxPanelRows = 48;
inline constexpr int64_t kMinPanelRows = 12;
inline constexpr int64_t kPanelBytes = 256 << 10;

// Output columns of the stream path whose sums are finished together.
inline constexpr int64_t kStreamCols = 32;

// Work below this stays on one thread.
inline constexpr int64_t kMinThreadBytes = 64 << 10;  // of weights
inline constexpr int64_t kMinThreadProducts = 1 << 18;
inline constexpr int64_t kMinThreadElements = 1 << 14;  // converted, quantised

struct SkinnyGemmPolicy {
  SkinnyGemmPath path = SkinnyGemmPath::kStream;
  int64_t row_block = 1;   // rows of x per pass over the weights
  int64_t panel_rows = 0;  // weight rows decoded at a time on the tile path
  int64_t pitch = 0;       // floats from one fp32 row of x or w to the next

  friend constexpr bool operator==(const SkinnyGemmPolicy&,
                                   const SkinnyGemmPolicy&) = default;
  std::string ToString() const {
    return std::string("SkinnyGemm: path ") + Name(path) + ", row_block " +
           std::to_string(row_block) + ", panel_rows " +
           std::to_string(panel_rows) + ", pitch " + std::to_string(pitch);
  }
};

constexpr SkinnyGemmPolicy SelectSkinnyGemmPolicy(
    const SkinnyGemmProblem& problem) {
  SkinnyGemmPolicy policy;
  policy.path = problem.m <= kMaxStreamRows ? SkinnyGemmPath::kStream
                                            : SkinnyGemmPath::kTile;
  policy.row_block = std::clamp<int64_t>(problem.m, 1, kRowBlock);
  // An odd number of cache lines: rows do not fall on the same cache sets.
  policy.pitch = (CeilDiv(problem.k, kSlots) | 1) * kSlots;
  const int64_t rows = kPanelBytes / (policy.pitch * 4);
  policy.panel_rows =
      std::clamp(rows / kTileCols * kTileCols, kMinPanelRows, kMaxPanelRows);
  return policy;
}

// Byte offsets of the parts of the workspace, from its first 64-byte boundary.
struct SkinnyGemmWorkspace {
  int64_t x = 0;       // [row_block, pitch] fp32: rows of x
  int64_t values = 0;  // [row_block, out_cols] fp32: results to be quantised
  int64_t panels = 0;  // [threads][panel_rows, pitch] fp32: rows of w
  int64_t panel_bytes = 0;
  int64_t bytes = 0;  // all, with room to align
};

constexpr SkinnyGemmWorkspace PlanSkinnyGemmWorkspace(
    const SkinnyGemmProblem& problem, const SkinnyGemmPolicy& policy,
    int64_t threads) {
  const int64_t out_cols = problem.gated ? problem.n / 2 : problem.n;
  SkinnyGemmWorkspace plan;
  plan.values = policy.row_block * policy.pitch * 4;
  plan.panels = plan.values;
  if (problem.quantized) {
    plan.panels += RoundUp(policy.row_block * out_cols * 4, 64);
  }
  // Never less for a larger k, though fewer rows fit.
  const int64_t row_bytes = policy.pitch * 4;
  plan.panel_bytes =
      std::min(kMaxPanelRows * row_bytes,
               std::max(RoundUp(kPanelBytes, 64), kMinPanelRows * row_bytes));
  plan.bytes = plan.panels + threads * plan.panel_bytes + 64;
  return plan;
}

}  // namespace lamina::gemm_internal
