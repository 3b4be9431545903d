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
using gemm_internal::ScaleOrOne;
using gemm_internal::WeightKernels;
using gemm_internal::WTable;

// kM rows of x (fp32, `pitch` apart, zero past `count` up to a multiple of 16,
// multiplied by the decoder's factor) times kN rows of w, columns
// [0, count). Writes the slots of kM * kN outputs, [x row][w row][slot].
#if HWY_TARGET == HWY_SCALAR
template <class W, int kM, int kN>
void StreamDot(const float* x, int64_t pitch, const W* w, int64_t w_stride,
               int64_t count, float* slots) {
  std::fill_n(slots, kM * kN * kSlots, 0.0f);
  for (int64_t n = 0; n < kN; ++n) {
    for (int64_t k = 0; k < RoundUp(count, kSlots); ++k) {
      const float weight = k < count ? ToFloat(w[n * w_stride + k]) : 0.0f;
      for (int64_t m = 0; m < kM; ++m) {
        float& slot = slots[(m * kN + n) * kSlots + k % kSlots];
        slot = std::fma(x[m * pitch + k], weight, slot);
      }
    }
  }
}
#else
template <class W, int kM, int kN>
HWY_NOINLINE void StreamDot(const float* HWY_RESTRICT x, int64_t pitch,
                            const W* HWY_RESTRICT w, int64_t w_stride,
                            int64_t count, float* HWY_RESTRICT slots) {
  const DF32 d;
  constexpr int kLanes = static_cast<int>(hn::MaxLanes(DF32()));
  VF32 sums[kM][kN][kSlotVectors];
  for (int m = 0; m < kM; ++m) {
    for (int n = 0; n < kN; ++n) {
      for (int i = 0; i < kSlotVectors; ++i) sums[m][n][i] = hn::Zero(d);
    }
  }
  const auto step = [&](int64_t k, int n, const W* p) HWY_ATTR {
    const Slots weights = StreamDecoder<W>::Decode(d, p);
    for (int m = 0; m < kM; ++m) {
      for (int i = 0; i < kSlotVectors; ++i) {
        sums[m][n][i] = FusedMulAdd(
            hn::Load(d, x + m * pitch + k + i * kLanes), weights.v[i],
            sums[m][n][i]);
      }
    }
  };
  const int64_t whole = count / kSlots * kSlots;
  // The rows that follow, at the same columns, are wanted next.
  const W* ahead = w + kN * w_stride;
  for (int64_t k = 0; k < whole; k += kSlots) {
    for (int n = 0; n < kN; ++n) {
      hwy::Prefetch(ahead + n * w_stride + k);
      step(k, n, w + n * w_stride + k);
    }
  }
  if (whole < count) {
    for (int n = 0; n < kN; ++n) {
      HWY_ALIGN W tail[kSlots];
      std::fill(std::copy_n(w + n * w_stride + whole, count - whole, tail),
                tail + kSlots, W());
      step(whole, n, tail);
    }
  }
  for (int m = 0; m < kM; ++m) {
    for (int n = 0; n < kN; ++n) {
      for (int i = 0; i < kSlotVectors; ++i) {
        hn::Store(sums[m][n][i], d,
                  slots + (m * kN + n) * kSlots + i * kLanes);
      }
    }
  }
}
#endif  // HWY_TARGET == HWY_SCALAR

// Weight rows at a time: enough sums to fill two fused multiply-adds a cycle,
// four deep, and few enough to stay in registers.
template <int kM>
inline constexpr int kStreamGroup = kM == 1 ? 4 : kM <= 3 ? 2 : 1;

template <class W, int kM, int kN>
void StreamGroup(const Gemm& gemm, const Chunk& chunk, int64_t i,
                 float* HWY_RESTRICT sums) {
  const ConstMatrixView& view = gemm.args.w;
  const int64_t first_row = chunk.Row(i);
  const W* w = view.Row<W>(first_row);
  const int64_t stride = view.rows > 1 ? view.row_stride : 0;
  HWY_ALIGN float slots[kM * kN * kSlots];
  float dots[kM * kN];
  const int64_t step = gemm.blocks ? kScaleBlock : view.cols;
  for (int64_t k = 0; k < view.cols; k += step) {
    StreamDot<W, kM, kN>(gemm.x + k, gemm.policy.pitch, w + k, stride,
                         std::min(step, view.cols - k), slots);
    AddSlots(slots, kM * kN, dots);
    for (int64_t m = 0; m < kM; ++m) {
      for (int64_t n = 0; n < kN; ++n) {
        float& sum = sums[m * kMaxChunkRows + i + n];
        const float dot = dots[m * kN + n];
        if (!gemm.blocks) {
          sum = dot;
        } else {
          const float scaled =
              (dot * gemm.XScale(m, k)) *
              ScaleOrOne(gemm.args.w_scales, first_row + n, k);
          sum = (k == 0 ? 0.0f : sum) + scaled;
        }
      }
    }
  }
}

template <class W, int kM>
void StreamChunk(const Gemm& gemm, const Chunk& chunk, float* sums) {
  constexpr int kN = kStreamGroup<kM>;
  for (int64_t run = 0; run < chunk.runs; ++run) {
    int64_t i = run * chunk.run_rows;
    const int64_t end = i + chunk.run_rows;
    for (; i + kN <= end; i += kN) {
      StreamGroup<W, kM, kN>(gemm, chunk, i, sums);
    }
    for (; i < end; ++i) StreamGroup<W, kM, 1>(gemm, chunk, i, sums);
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
    kernels = {.factor = StreamDecoder<W>::kFactor,
               .stream = {StreamChunk<W, 1>, StreamChunk<W, 2>,
                          StreamChunk<W, 3>, StreamChunk<W, 4>},
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
