// LayerNorm on the CPU: a row is read for its mean and again, from the cache,
// for its variance and its values.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lamina/norm/layer_norm/layer_norm_cpu.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
//
#include "lamina/norm/layer_norm/layer_norm_policy.h"
#include "lamina/norm/norm_row-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lamina {
namespace HWY_NAMESPACE {
namespace {

template <class T, class W>
HWY_FLATTEN void LayerNormRow(const norm_internal::NormProblem& problem,
                              int64_t row) {
  const DF32 d;
  const T* x = problem.x.Row<T>(row);
  const CenteredRowStatistics statistics = LayerStatistics(
      d, problem.x.cols, problem.epsilon,
      [&](int64_t i, int64_t n) HWY_ATTR { return LoadUpTo(d, x + i, n); });
  StoreNormedRow<T, W>(d, problem, row, x, statistics);
}

}  // namespace

void LayerNormRows(const norm_internal::NormProblem& problem, int64_t begin,
                   int64_t end) {
  Dispatch(LayerNormTable{}, problem.types(),
           [&]<class T, class W>(Types<T, W>) {
             for (int64_t row = begin; row < end; ++row) {
               LayerNormRow<T, W>(problem, row);
             }
           });
}

}  // namespace HWY_NAMESPACE
}  // namespace lamina
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "lamina/core/parallel.h"

namespace lamina {

HWY_EXPORT(LayerNormRows);

namespace norm_internal {

void LayerNormCpu(const NormProblem& problem, const Stream& stream) {
  ParallelFor(stream, problem.x.total_rows(), problem.rows_per_thread(),
              [&](int64_t begin, int64_t end, int) {
                HWY_DYNAMIC_DISPATCH(LayerNormRows)(problem, begin, end);
              });
}

}  // namespace norm_internal
}  // namespace lamina
#endif  // HWY_ONCE
