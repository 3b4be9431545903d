// ReduceRows on the CPU. One thread takes whole rows; a row is read once
// (kArgMax: up to twice, the second time from the cache).

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lamina/reduce/reduce_rows/reduce_rows_cpu.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
//
#include <array>
#include <cstdint>
#include <limits>

#include "lamina/core/simd-inl.h"
#include "lamina/reduce/reduce_rows/reduce_rows_policy.h"

HWY_BEFORE_NAMESPACE();
namespace lamina {
namespace HWY_NAMESPACE {
namespace {

// NaN when a column holds NaN. `lowest` is what no column lies below after
// `transform`.
template <class T, class Transform>
float RowMax(DF32 d, const T* row, int64_t cols, float lowest,
             Transform&& transform) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  // Four chains hide the latency of Max.
  VF32 best0 = hn::Set(d, lowest);
  VF32 best1 = best0;
  VF32 best2 = best0;
  VF32 best3 = best0;
  // NOTE: not Ne(v, v), which Highway 1.0 makes false for NaN on AVX2.
  auto nan = hn::IsNaN(best0);
  int64_t i = 0;
  for (; i + 4 * lanes <= cols; i += 4 * lanes) {
    const VF32 v0 = transform(LoadF32(d, row + i));
    const VF32 v1 = transform(LoadF32(d, row + i + lanes));
    const VF32 v2 = transform(LoadF32(d, row + i + 2 * lanes));
    const VF32 v3 = transform(LoadF32(d, row + i + 3 * lanes));
    best0 = hn::Max(best0, v0);
    best1 = hn::Max(best1, v1);
    best2 = hn::Max(best2, v2);
    best3 = hn::Max(best3, v3);
    nan = hn::Or(nan, hn::Or(hn::Or(hn::IsNaN(v0), hn::IsNaN(v1)),
                             hn::Or(hn::IsNaN(v2), hn::IsNaN(v3))));
  }
  ForEachVector(d, cols - i, [&](int64_t j, int64_t n) HWY_ATTR {
    VF32 v = transform(LoadUpTo(d, row + i + j, n));
    if (n < lanes) {
      v = hn::IfThenElse(hn::FirstN(d, static_cast<size_t>(n)), v,
                         hn::Set(d, lowest));
    }
    best0 = hn::Max(best0, v);
    nan = hn::Or(nan, hn::IsNaN(v));
  });
  if (!hn::AllFalse(d, nan)) return std::bit_cast<float>(0x7fc00000u);
  const VF32 best = hn::Max(hn::Max(best0, best1), hn::Max(best2, best3));
  HWY_ALIGN float all[hn::MaxLanes(DF32())];
  hn::Store(best, d, all);
  float largest = lowest;
  for (int64_t lane = 0; lane < lanes; ++lane) {
    largest = all[lane] > largest ? all[lane] : largest;
  }
  return largest + 0.0f;  // -0 becomes +0
}

// First column for which `matches` is true; there is one.
template <class T, class Matches>
int64_t FirstColumn(DF32 d, const T* row, int64_t cols, Matches&& matches) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t i = 0; i < cols; i += lanes) {
    const int64_t n = std::min(lanes, cols - i);
    const auto mask = hn::And(matches(LoadUpTo(d, row + i, n)),
                              hn::FirstN(d, static_cast<size_t>(n)));
    const intptr_t lane = hn::FindFirstTrue(d, mask);
    if (lane >= 0) return i + lane;
  }
  return 0;
}

template <class T>
HWY_FLATTEN int64_t RowArgMax(DF32 d, const T* row, int64_t cols) {
  constexpr float kLowest = -std::numeric_limits<float>::infinity();
  const float largest =
      RowMax(d, row, cols, kLowest, [](VF32 v) HWY_ATTR { return v; });
  if (largest != largest) {
    return FirstColumn(d, row, cols,
                       [](VF32 v) HWY_ATTR { return hn::IsNaN(v); });
  }
  const VF32 target = hn::Set(d, largest);
  return FirstColumn(d, row, cols,
                     [&](VF32 v) HWY_ATTR { return hn::Eq(v, target); });
}

template <class T>
HWY_FLATTEN float ReduceRow(RowReduction reduction, const T* row,
                            int64_t cols) {
  const DF32 d;
  constexpr float kLowest = -std::numeric_limits<float>::infinity();
  const auto identity = [](VF32 v) HWY_ATTR { return v; };
  switch (reduction) {
    case RowReduction::kSum:
      return RowSum(d, row, cols, identity);
    case RowReduction::kSumOfSquares:
      return RowSum(d, row, cols,
                    [](VF32 v) HWY_ATTR { return hn::Mul(v, v); });
    case RowReduction::kMean:
      return RowSum(d, row, cols, identity) / static_cast<float>(cols);
    case RowReduction::kMax:
      return RowMax(d, row, cols, kLowest, identity);
    case RowReduction::kAbsMax:
      return RowMax(d, row, cols, 0.0f,
                    [](VF32 v) HWY_ATTR { return hn::Abs(v); });
    case RowReduction::kArgMax:
      break;  // RowArgMax
  }
  return 0.0f;
}

}  // namespace

void ReduceRowRange(const ReduceRowsArgs& args, int64_t begin, int64_t end) {
  const int64_t cols = args.x.cols;
  if (args.reduction == RowReduction::kArgMax) {
    Dispatch(ArgMaxRowsTable{}, std::array{args.x.dtype, args.y.dtype},
             [&]<class T>(Types<T, int64_t>) HWY_ATTR {
               int64_t* y = static_cast<int64_t*>(args.y.data);
               for (int64_t row = begin; row < end; ++row) {
                 y[row] = RowArgMax(DF32(), args.x.Row<T>(row), cols);
               }
             });
    return;
  }
  Dispatch(ReduceRowsTable{}, std::array{args.x.dtype, args.y.dtype},
           [&]<class T>(Types<T, float>) HWY_ATTR {
             float* y = static_cast<float*>(args.y.data);
             for (int64_t row = begin; row < end; ++row) {
               y[row] = ReduceRow(args.reduction, args.x.Row<T>(row), cols);
             }
           });
}

}  // namespace HWY_NAMESPACE
}  // namespace lamina
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <algorithm>

#include "lamina/core/math.h"
#include "lamina/core/parallel.h"

namespace lamina {

HWY_EXPORT(ReduceRowRange);

namespace reduce_internal {

// Columns that repay waking a thread.
constexpr int64_t kMinColumnsPerThread = 16384;

void ReduceRowsCpu(const ReduceRowsArgs& args, const Stream& stream) {
  const int64_t grain =
      CeilDiv(kMinColumnsPerThread, std::max<int64_t>(1, args.x.cols));
  ParallelFor(stream, args.x.total_rows(), grain,
              [&](int64_t begin, int64_t end, int) {
                HWY_DYNAMIC_DISPATCH(ReduceRowRange)(args, begin, end);
              });
}

}  // namespace reduce_internal
}  // namespace lamina
#endif  // HWY_ONCE
