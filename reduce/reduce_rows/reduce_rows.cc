#include "lamina/reduce/reduce_rows.h"

#include <array>
#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "lamina/core/device/built_backends.h"
#include "lamina/core/device/runtime.h"
#include "lamina/core/octet_access.h"
#include "lamina/core/status.h"
#include "lamina/reduce/reduce_rows/reduce_rows_args.h"
#include "lamina/reduce/reduce_rows/reduce_rows_policy.h"

namespace lamina {
namespace {

constexpr char kOp[] = "ReduceRows";

absl::Status CheckArgs(const ReduceRowsArgs& args) {
  const ConstMatrixView& x = args.x;
  if (args.reduction > RowReduction::kArgMax) {
    return InvalidArgument(kOp, "reduction",
                           static_cast<int64_t>(args.reduction),
                           "a RowReduction");
  }
  LAMINA_RETURN_IF_ERROR(CheckMatrix(kOp, "x", x));
  const bool arg_max = args.reduction == RowReduction::kArgMax;
  const DType result = arg_max ? DType::kI64 : DType::kF32;
  const std::array types{x.dtype, result};
  const auto nothing = [](auto) {};
  if (!(arg_max ? Dispatch(ArgMaxRowsTable{}, types, nothing)
                : Dispatch(ReduceRowsTable{}, types, nothing))) {
    return absl::UnimplementedError(
        absl::StrCat(kOp, ": x -> y: given ", KeyName(types), ", supported ",
                     arg_max ? SupportedRows(ArgMaxRowsTable{})
                             : SupportedRows(ReduceRowsTable{})));
  }
  const bool is_sum = args.reduction == RowReduction::kSum ||
                      args.reduction == RowReduction::kSumOfSquares;
  if (x.cols == 0 && !is_sum) {
    return InvalidArgument(
        kOp, "x.cols", x.cols,
        absl::StrCat(">= 1 (", Name(args.reduction), " of nothing)"));
  }
  LAMINA_RETURN_IF_ERROR(CheckDType(kOp, "y", args.y.dtype, result));
  LAMINA_RETURN_IF_ERROR(CheckVector(kOp, "y", args.y, x.total_rows()));
  const ConstMatrixView y{.data = args.y.data,
                          .dtype = args.y.dtype,
                          .rows = 1,
                          .cols = args.y.size,
                          .row_stride = args.y.size};
  return CheckOverlap(kOp, "y", y, "x", x, /*in_place_ok=*/false);
}

absl::Status ReduceRowsGpu(const ReduceRowsArgs& args, const Stream& stream) {
  using namespace reduce_internal;
  const ReduceRowsPlan plan = SelectReduceRowsPlan(
      args.x.total_rows(), args.x.cols, gpu::MovesOctets(args.x),
      gpu::RowArchOf(GetDeviceInfo(stream.device())));
  return ToStatus(
      kOp,
      LaunchReduceRows({.x = args.x, .reduction = args.reduction, .y = args.y},
                       plan, TargetOf(stream)));
}

}  // namespace

absl::Status ReduceRows(const ReduceRowsArgs& args, Stream stream) {
  LAMINA_RETURN_IF_ERROR(CheckArgs(args));
  LAMINA_RETURN_IF_ERROR(CheckStream(kOp, stream));
  if (args.x.total_rows() == 0) return absl::OkStatus();
  if (stream.device().backend != Backend::kCpu) {
    if constexpr (kHasGpu) return ReduceRowsGpu(args, stream);
  }
  reduce_internal::ReduceRowsCpu(args, stream);
  return absl::OkStatus();
}

}  // namespace lamina
