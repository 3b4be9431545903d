// RmsNorm on the CPU: a row is read for its statistics and again, from the
// cache, for its values.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lamina/norm/rms_norm/rms_norm_cpu.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
//
#include "lamina/norm/norm_row-inl.h"
#include "lamina/norm/rms_norm/rms_norm_policy.h"

HWY_BEFORE_NAMESPACE();
namespace lamina {
namespace HWY_NAMESPACE {
namespace {

template <class T, class W>
HWY_FLATTEN void RmsNormRow(const norm_internal::NormProblem& problem,
                            int64_t row) {
  const DF32 d;
  const T* x = problem.x.Row<T>(row);
  const float rstd = RmsStatistics(
      d, problem.x.cols, problem.epsilon,
      [&](int64_t i, int64_t n) HWY_ATTR { return LoadUpTo(d, x + i, n); });
  StoreNormedRow<T, W>(d, problem, row, x, RowStatistics{.rstd = rstd});
}

}  // namespace

void RmsNormRows(const norm_internal::NormProblem& problem, int64_t begin,
                 int64_t end) {
  Dispatch(RmsNormTable{}, problem.types(), [&]<class T, class W>(Types<T, W>) {
    for (int64_t row = begin; row < end; ++row) {
      RmsNormRow<T, W>(problem, row);
    }
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace lamina
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "lamina/core/parallel.h"

namespace lamina {

HWY_EXPORT(RmsNormRows);

namespace norm_internal {

void RmsNormCpu(const NormProblem& problem, const Stream& stream) {
  ParallelFor(stream, problem.x.total_rows(), problem.rows_per_thread(),
              [&](int64_t begin, int64_t end, int) {
                HWY_DYNAMIC_DISPATCH(RmsNormRows)(problem, begin, end);
              });
}

}  // namespace norm_internal
}  // namespace lamina
#endif  // HWY_ONCE
