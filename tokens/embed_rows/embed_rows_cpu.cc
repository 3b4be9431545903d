// y[t] = round_T(table[ids[t]]): a copy of rows, with a conversion that is
// exact or rounds once. Scalar: some rows a token are nothing beside a model.

#include <array>

#include "lamina/core/float16.h"
#include "lamina/core/parallel.h"
#include "lamina/tokens/embed_rows/embed_rows_policy.h"

namespace lamina::tokens_internal {
namespace {

constexpr int64_t kGrainElements = 1 << 14;

int64_t Id(const ConstVectorView& ids, int64_t t) {
  return ids.dtype == DType::kI32 ? static_cast<const int32_t*>(ids.data)[t]
                                  : static_cast<const int64_t*>(ids.data)[t];
}

template <class From, class To>
void CopyRow(const From* from, To* to, int64_t cols) {
  for (int64_t i = 0; i < cols; ++i) to[i] = FromFloat<To>(ToFloat(from[i]));
}

}  // namespace

void EmbedRowsCpu(const EmbedRowsArgs& args, const Stream& stream) {
  const int64_t cols = args.y.cols;
  Dispatch(EmbedRowsTable{}, std::array{args.table.dtype, args.y.dtype},
           [&]<class From, class To>(Types<From, To>) {
             ParallelFor(stream, args.y.rows, 1 + kGrainElements / cols,
                         [&](int64_t begin, int64_t end, int) {
                           for (int64_t t = begin; t < end; ++t) {
                             CopyRow(args.table.Row<From>(Id(args.ids, t)),
                                     args.y.Row<To>(t), cols);
                           }
                         });
           });
}

}  // namespace lamina::tokens_internal
