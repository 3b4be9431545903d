#include "lamina/tokens/embed_rows.h"

#include <array>
#include <string>

#include "absl/strings/str_cat.h"
#include "lamina/core/device/built_backends.h"
#include "lamina/core/device/runtime.h"
#include "lamina/core/math.h"
#include "lamina/core/octet_access.h"
#include "lamina/core/status.h"
#include "lamina/tokens/embed_rows/embed_rows_args.h"
#include "lamina/tokens/embed_rows/embed_rows_policy.h"

namespace lamina {
namespace {

constexpr char kOp[] = "EmbedRows";

absl::Status Validate(const EmbedRowsArgs& args) {
  const ConstMatrixView& table = args.table;
  LAMINA_RETURN_IF_ERROR(CheckMatrix(kOp, "table", table));
  const std::array types{table.dtype, args.y.dtype};
  if (!Dispatch(EmbedRowsTable{}, types, [](auto) {})) {
    return absl::UnimplementedError(
        absl::StrCat(kOp, ": table -> y: given ", KeyName(types),
                     ", supported ", SupportedRows(EmbedRowsTable{})));
  }
  if (table.batch != 1) {
    return InvalidArgument(kOp, "table.batch", table.batch, "1");
  }
  if (args.ids.dtype != DType::kI32 && args.ids.dtype != DType::kI64) {
    return InvalidArgument(kOp, "ids.dtype", std::string(Name(args.ids.dtype)),
                           "i32 or i64");
  }
  LAMINA_RETURN_IF_ERROR(
      CheckShape(kOp, "y", args.y, 1, args.ids.size, table.cols));
  LAMINA_RETURN_IF_ERROR(CheckVector(kOp, "ids", args.ids, args.y.rows));
  LAMINA_RETURN_IF_ERROR(
      CheckOverlap(kOp, "y", args.y, "table", table, /*in_place_ok=*/false));
  const ConstMatrixView ids{.data = args.ids.data,
                            .dtype = args.ids.dtype,
                            .rows = 1,
                            .cols = args.ids.size,
                            .row_stride = args.ids.size};
  return CheckOverlap(kOp, "y", args.y, "ids", ids, /*in_place_ok=*/false);
}

absl::Status CheckIds(const EmbedRowsArgs& args) {
  for (int64_t t = 0; t < args.ids.size; ++t) {
    const int64_t id = args.ids.dtype == DType::kI32
                           ? static_cast<const int32_t*>(args.ids.data)[t]
                           : static_cast<const int64_t*>(args.ids.data)[t];
    if (id < 0 || id >= args.table.rows) {
      return InvalidArgument(
          kOp, absl::StrCat("ids[", t, "]").c_str(), id,
          absl::StrCat("in [0, ", args.table.rows, ") (table.rows)"));
    }
  }
  return absl::OkStatus();
}

absl::Status EmbedRowsGpu(const EmbedRowsArgs& args, const Stream& stream) {
  using namespace tokens_internal;
  constexpr int64_t kBlockColumns = 8 * kEmbedRowsLanes;
  return ToStatus(
      kOp, LaunchEmbedRows({.table = args.table,
                            .ids = args.ids,
                            .y = args.y,
                            .octets = gpu::MovesOctets(args.table) &&
                                      gpu::MovesOctets(args.y),
                            .row_blocks = CeilDiv(args.y.cols, kBlockColumns)},
                           TargetOf(stream)));
}

}  // namespace

absl::Status EmbedRows(const EmbedRowsArgs& args, Stream stream) {
  LAMINA_RETURN_IF_ERROR(Validate(args));
  LAMINA_RETURN_IF_ERROR(CheckStream(kOp, stream));
  if (args.y.rows == 0 || args.y.cols == 0) return absl::OkStatus();
  if (stream.device().backend != Backend::kCpu) {
    if constexpr (kHasGpu) return EmbedRowsGpu(args, stream);
  }
  LAMINA_RETURN_IF_ERROR(CheckIds(args));
  tokens_internal::EmbedRowsCpu(args, stream);
  return absl::OkStatus();
}

}  // namespace lamina
