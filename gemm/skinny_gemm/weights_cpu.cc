// The part of SkinnyGemm's CPU backend that depends on the weight type: the
// stream path, and the decoding of panels for the tile path.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lamina/gemm/skinny_gemm/weights_cpu.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
//
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>

#include "hwy/cache_control.h"
#include "lamina/gemm/skinny_gemm/add_slots-inl.h"
#include "lamina/gemm/skinny_gemm/decode_weights-inl.h"
#include "lamina/gemm/skinny_gemm/skinny_gemm_cpu.h"

HWY_BEFORE_NAMESPACE();
namespace lamina {
namespace HWY_NAMESPACE {

using gemm_internal::Chunk;
using gemm_internal::Gemm;
using gemm_internal::kMaxChunkRows;
using gemm_internal::kScaleBlock;
using gemm_internal::kSlots;
using gemm_internal::kStreams;
using gemm_internal::ScaleOrOne;
using gemm_internal::StreamRun;
using gemm_internal::WeightKernels;
using gemm_internal::WTable;

// kRuns streams of `rows` weight rows, columns [0, count) of each.
template <class W>
struct WeightRows {
  const W* data[kStreams];
  int64_t rows;
  int64_t stride;
  int64_t count;
  int64_t ahead;  // elements from a weight to the one to prefetch
};

// kM rows of x (fp32, `pitch` apart, zero past `count` up to a multiple of 16,
// prepared for the decoder) times the weight rows of kRuns streams. Writes the
// slots of all outputs, [w row][stream][x row][slot]. True when the decoder
// took NaN codes for numbers.
#if HWY_TARGET == HWY_SCALAR
template <class W, int kM, int kRuns>
bool StreamDot(const float* x, int64_t pitch, const WeightRows<W>& w,
               float* slots) {
  std::fill_n(slots, w.rows * kRuns * kM * kSlots, 0.0f);
  for (int64_t i = 0; i < w.rows * kRuns; ++i) {
    const W* row = w.data[i % kRuns] + i / kRuns * w.stride;
    for (int64_t k = 0; k < RoundUp(w.count, kSlots); ++k) {
      const float weight = k < w.count ? ToFloat(row[k]) : 0.0f;
      for (int64_t m = 0; m < kM; ++m) {
        float& slot = slots[(i * kM + m) * kSlots + k % kSlots];
        slot = std::fma(x[m * pitch + k], weight, slot);
      }
    }
  }
  return false;
}
#else
template <class Decoder>
HWY_INLINE void StoreSlots(DF32 d, const VF32* sums, float* slots) {
  constexpr int kLanes = static_cast<int>(hn::MaxLanes(DF32()));
  if constexpr (Decoder::kDeinterleaved) {
    // Slots 0 … 3 and 8 … 11; 4 … 7 and 12 … 15.
    const auto even = hn::InterleaveLower(d, sums[0], sums[kSlotVectors - 1]);
    const auto odd = hn::InterleaveUpper(d, sums[0], sums[kSlotVectors - 1]);
    hn::Store(hn::ConcatLowerLower(d, odd, even), d, slots);
    hn::Store(hn::ConcatUpperUpper(d, odd, even), d, slots + kLanes);
  } else {
    for (int i = 0; i < kSlotVectors; ++i) {
      hn::Store(sums[i], d, slots + i * kLanes);
    }
  }
}

template <class W, int kM, int kRuns>
HWY_NOINLINE bool StreamDot(const float* HWY_RESTRICT x, int64_t pitch,
                            const WeightRows<W>& w, float* HWY_RESTRICT slots) {
  const DF32 d;
  constexpr int kLanes = static_cast<int>(hn::MaxLanes(DF32()));
  constexpr int64_t kLine = 64 / static_cast<int64_t>(sizeof(W));
  typename StreamDecoder<W>::NaNSearch nan_search;
  for (int64_t n = 0; n < w.rows; ++n) {
    const W* row[kRuns];
    VF32 sums[kRuns][kM][kSlotVectors];
    for (int r = 0; r < kRuns; ++r) {
      row[r] = w.data[r] + n * w.stride;
      for (int m = 0; m < kM; ++m) {
        for (int i = 0; i < kSlotVectors; ++i) sums[r][m][i] = hn::Zero(d);
      }
    }
    const auto step = [&](int r, int64_t k, const W* p) HWY_ATTR {
      const Slots weights = StreamDecoder<W>::Decode(d, p);
      for (int m = 0; m < kM; ++m) {
        for (int i = 0; i < kSlotVectors; ++i) {
          sums[r][m][i] =
              FusedMulAdd(hn::Load(d, x + m * pitch + k + i * kLanes),
                          weights.v[i], sums[r][m][i]);
        }
      }
    };
    int64_t k = 0;
    for (; k + kLine <= w.count; k += kLine) {
      for (int r = 0; r < kRuns; ++r) {
        hwy::Prefetch(row[r] + k + w.ahead);
        for (int64_t i = 0; i < kLine; i += kSlots) {
          step(r, k + i, row[r] + k + i);
        }
        nan_search.AddLine(row[r] + k);
      }
    }
    for (; k + kSlots <= w.count; k += kSlots) {
      for (int r = 0; r < kRuns; ++r) {
        step(r, k, row[r] + k);
        nan_search.AddSlots(row[r] + k);
      }
    }
    for (int r = 0; r < kRuns; ++r) {
      if (k < w.count) {
        HWY_ALIGN W tail[kSlots];
        std::fill(std::copy_n(row[r] + k, w.count - k, tail), tail + kSlots,
                  W());
        step(r, k, tail);
        nan_search.AddSlots(tail);
      }
      for (int m = 0; m < kM; ++m) {
        StoreSlots<StreamDecoder<W>>(d, sums[r][m], slots);
        slots += kSlots;
      }
    }
  }
  return nan_search.Found();
}
#endif  // HWY_TARGET == HWY_SCALAR

// A NaN in the slots of the weight rows that have a NaN code.
template <class W, int kM, int kRuns>
HWY_NOINLINE void MarkNaN(const WeightRows<W>& w, float* slots) {
  for (int64_t i = 0; i < w.rows * kRuns; ++i) {
    const W* row = w.data[i % kRuns] + i / kRuns * w.stride;
    if (std::none_of(row, row + w.count,
                     [](W code) { return std::isnan(ToFloat(code)); })) {
      continue;
    }
    for (int64_t m = 0; m < kM; ++m) {
      slots[(i * kM + m) * kSlots] = std::nanf("");
    }
  }
}

// The stream some bytes on, at the same column if rows are shorter than that.
template <class W>
int64_t PrefetchAhead(const ConstMatrixView& w, int64_t bytes) {
  const int64_t ahead = bytes / static_cast<int64_t>(sizeof(W));
  if (w.cols >= ahead || w.rows <= 1) return ahead;
  return CeilDiv(ahead, w.cols) * w.row_stride;
}

// Weight rows of each stream whose slots are added together.
inline constexpr int64_t kStreamGroup = 4;

// Rows [m, m + kM) of x and `rows` weight rows of each run from index i on.
template <class W, int kM, int kRuns>
void StreamGroup(const Gemm& gemm, const StreamRun* runs, int64_t i,
                 int64_t rows, int64_t m) {
  const ConstMatrixView& view = gemm.args.w;
  constexpr int64_t kOutputs = kStreamGroup * kRuns * kM;
  HWY_ALIGN float slots[kOutputs * kSlots];
  float dots[kOutputs];
  const int64_t step = gemm.blocks ? kScaleBlock : view.cols;
  for (int64_t k = 0; k < view.cols; k += step) {
    WeightRows<W> w{.data = {},
                    .rows = rows,
                    .stride = view.rows > 1 ? view.row_stride : 0,
                    .count = std::min(step, view.cols - k),
                    .ahead = PrefetchAhead<W>(
                        view, kRuns == 1 ? gemm_internal::kPrefetchBytes
                                         : gemm_internal::kPrefetchBytesOfTwo)};
    for (int r = 0; r < kRuns; ++r) {
      w.data[r] = view.Row<W>(runs[r].first_row + i) + k;
    }
    if (StreamDot<W, kM, kRuns>(gemm.X(m) + k, gemm.policy.pitch, w, slots)) {
      MarkNaN<W, kM, kRuns>(w, slots);
    }
    AddSlots(slots, rows * kRuns * kM, dots);
    for (int64_t output = 0; output < rows * kRuns * kM; ++output) {
      const int64_t x_row = m + output % kM;
      const StreamRun& run = runs[output / kM % kRuns];
      const int64_t row = i + output / (kM * kRuns);
      float& sum = run.sums[x_row * kMaxChunkRows + row];
      const float dot = dots[output] * StreamDecoder<W>::kDotFactor;
      if (!gemm.blocks) {
        sum = dot;
      } else {
        const float scaled =
            (dot * gemm.XScale(x_row, k)) *
            ScaleOrOne(gemm.args.w_scales, run.first_row + row, k);
        sum = (k == 0 ? 0.0f : sum) + scaled;
      }
    }
  }
}

template <class W, int kM, int kRuns>
void StreamRows(const Gemm& gemm, const StreamRun* runs, int64_t begin,
                int64_t end, int64_t m) {
  for (int64_t i = begin; i < end; i += kStreamGroup) {
    StreamGroup<W, kM, kRuns>(gemm, runs, i, std::min(kStreamGroup, end - i),
                              m);
  }
}

// Rows [m, m + kM) of x. As long as the sums of both streams fit registers,
// they go side by side: memory then serves two sequences of reads, and the
// chains of fused multiply-adds are twice as many. (Two rows side by side that
// are neighbours in memory: 25 % slower than one after the other. Zen 3, two
// cores, 576 columns, 2026-11-30: two streams read bf16 at 1.05 times, one
// stream at 0.85 times the bandwidth of a plain reading loop.)
template <class W, int kM>
void StreamPass(const Gemm& gemm, const StreamRun* runs, int64_t m) {
  int64_t both = 0;
  if constexpr (kM <= 3) {
    both = std::min(runs[0].rows, runs[1].rows);
    StreamRows<W, kM, 2>(gemm, runs, 0, both, m);
  }
  for (int64_t r = 0; r < kStreams; ++r) {
    StreamRows<W, kM, 1>(gemm, runs + r, both, runs[r].rows, m);
  }
}

// Rows of x in as few, and as equal, passes as registers allow; after the
// first the weights come from the caches.
template <class W>
void StreamChunk(const Gemm& gemm, const StreamRun* runs) {
  static constexpr std::array kPasses{StreamPass<W, 1>, StreamPass<W, 2>,
                                      StreamPass<W, 3>, StreamPass<W, 4>,
                                      StreamPass<W, 5>, StreamPass<W, 6>};
  const int64_t most = static_cast<int64_t>(kPasses.size());
  const int64_t pass_rows = CeilDiv(gemm.rows, CeilDiv(gemm.rows, most));
  for (int64_t m = 0; m < gemm.rows; m += pass_rows) {
    const int64_t count = std::min(pass_rows, gemm.rows - m);
    kPasses[static_cast<size_t>(count - 1)](gemm, runs, m);
  }
}

template <class W>
void DecodePanel(const Gemm& gemm, const Chunk& chunk,
                 float* HWY_RESTRICT panel) {
  const DF32 d;
  const int64_t cols = gemm.args.w.cols;
  const int64_t padded = RoundUp(cols, kSlots);
  const int64_t rows = RoundUp(chunk.rows(), gemm_internal::kTileCols);
  for (int64_t i = 0; i < rows; ++i) {
    float* out = panel + i * gemm.policy.pitch;
    const int64_t count = i < chunk.rows() ? cols : 0;
    if (count > 0) {
      const W* row = gemm.args.w.Row<W>(chunk.Row(i));
      ForEachVector(d, cols, [&](int64_t k, int64_t n) HWY_ATTR {
        StoreUpTo(LoadUpTo(d, row + k, n), d, out + k, n);
      });
    }
    std::fill(out + count, out + padded, 0.0f);
  }
}

WeightKernels KernelsOf(DType w_type) {
  WeightKernels kernels;
  Dispatch(WTable{}, std::array{w_type}, [&]<class W>(Types<W>) {
    kernels = {.x_factor = StreamDecoder<W>::kXFactor,
               .deinterleaved = StreamDecoder<W>::kDeinterleaved,
               .stream = StreamChunk<W>,
               .decode_panel = DecodePanel<W>};
  });
  return kernels;
}

}  // namespace HWY_NAMESPACE
}  // namespace lamina
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lamina {
HWY_EXPORT(KernelsOf);
gemm_internal::WeightKernels gemm_internal::WeightKernelsOf(DType w_type) {
  return HWY_DYNAMIC_DISPATCH(KernelsOf)(w_type);
}
}  // namespace lamina
#endif  // HWY_ONCE
