// AddRmsNorm on the CPU: the first pass over a row writes z, the second reads
// it from the cache.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lamina/norm/add_rms_norm/add_rms_norm_cpu.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
//
#include "lamina/norm/add_rms_norm/add_rms_norm_policy.h"
#include "lamina/norm/norm_row-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lamina {
namespace HWY_NAMESPACE {
namespace {

template <class T, class W>
HWY_FLATTEN void AddRmsNormRow(const norm_internal::AddRmsNormProblem& problem,
                               int64_t row) {
  const DF32 d;
  const T* x = problem.norm.x.Row<T>(row);
  const T* residual = problem.residual.Row<T>(row);
  T* z = problem.residual_out.Row<T>(row);
  // z is stored and read back rounded, in the pass that squares it.
  const float rstd = RmsStatistics(
      d, problem.norm.x.cols, problem.norm.epsilon,
      [&](int64_t i, int64_t n) HWY_ATTR {
        StoreUpTo(hn::Add(LoadUpTo(d, x + i, n), LoadUpTo(d, residual + i, n)),
                  d, z + i, n);
        return LoadUpTo(d, z + i, n);
      });
  StoreNormedRow<T, W>(d, problem.norm, row, z, RowStatistics{.rstd = rstd});
}

}  // namespace

void AddRmsNormRows(const norm_internal::AddRmsNormProblem& problem,
                    int64_t begin, int64_t end) {
  Dispatch(AddRmsNormTable{}, problem.norm.types(),
           [&]<class T, class W>(Types<T, W>) {
             for (int64_t row = begin; row < end; ++row) {
               AddRmsNormRow<T, W>(problem, row);
             }
           });
}

}  // namespace HWY_NAMESPACE
}  // namespace lamina
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "lamina/core/parallel.h"

namespace lamina {

HWY_EXPORT(AddRmsNormRows);

namespace norm_internal {

void AddRmsNormCpu(const AddRmsNormProblem& problem, const Stream& stream) {
  ParallelFor(stream, problem.norm.x.total_rows(),
              problem.norm.rows_per_thread(),
              [&](int64_t begin, int64_t end, int) {
                HWY_DYNAMIC_DISPATCH(AddRmsNormRows)(problem, begin, end);
              });
}

}  // namespace norm_internal
}  // namespace lamina
#endif  // HWY_ONCE
