#include "lamina/attention/rope.h"

#include <array>
#include <string>

#include "absl/strings/str_cat.h"
#include "lamina/attention/rope/rope_checks.h"
#include "lamina/attention/rope/rope_cpu.h"
#include "lamina/attention/rope/rope_policy.h"
#include "lamina/attention/rope_append/rope_append_gpu.h"
#include "lamina/core/device/built_backends.h"
#include "lamina/core/math.h"
#include "lamina/core/parallel.h"
#include "lamina/core/status.h"

namespace lamina {
namespace attention_internal {

// Elements that are worth a thread.
constexpr int64_t kGrainElements = 1 << 14;

absl::Status CheckRope(const RopeArgs& args, const RopeNames& names) {
  const ConstMatrixView& x = args.x;
  const char* const op = names.op;
  LAMINA_RETURN_IF_ERROR(CheckMatrix(op, names.x, x));
  if (!Dispatch(RopeTable{}, std::array{x.dtype}, [](auto) {})) {
    return absl::UnimplementedError(
        absl::StrCat(op, ": ", names.x, ".dtype: given ", Name(x.dtype),
                     ", supported: ", SupportedRows(RopeTable{})));
  }
  LAMINA_RETURN_IF_ERROR(
      CheckShape(op, names.y, args.y, x.batch, x.rows, x.cols));
  LAMINA_RETURN_IF_ERROR(CheckDType(op, names.y, args.y.dtype, x.dtype));
  LAMINA_RETURN_IF_ERROR(CheckMatrix(op, "table", args.table));
  LAMINA_RETURN_IF_ERROR(
      CheckDType(op, "table", args.table.dtype, DType::kF32));
  if (args.table.batch != 1) {
    return InvalidArgument(op, "table.batch", args.table.batch, "1");
  }
  if (args.table.cols % 2 != 0 || args.table.cols > x.cols) {
    return InvalidArgument(op, "table.cols", args.table.cols,
                           absl::StrCat("an even rotary_dim <= ", x.cols, " (",
                                        names.x, ".cols)"));
  }
  if (args.pairing != RopePairing::kHalfSplit &&
      args.pairing != RopePairing::kAdjacent) {
    return InvalidArgument(op, "pairing", static_cast<int64_t>(args.pairing),
                           "kHalfSplit or kAdjacent");
  }
  LAMINA_RETURN_IF_ERROR(CheckOverlap(op, names.y, args.y, names.x, x, true));
  LAMINA_RETURN_IF_ERROR(
      CheckOverlap(op, names.y, args.y, "table", args.table, false));
  if (x.batch > 0 && args.positions == nullptr) {
    return InvalidArgument(op, "positions", std::string("null"),
                           "a pointer to [tokens]");
  }
  return absl::OkStatus();
}

absl::Status CheckRopePositions(const RopeArgs& args, const char* op) {
  for (int64_t t = 0; t < args.x.batch; ++t) {
    const int64_t position = args.positions[t];
    if (position < 0 || position >= args.table.rows) {
      return InvalidArgument(
          op, absl::StrCat("positions[", t, "]").c_str(), position,
          absl::StrCat("in [0, ", args.table.rows, ") (table.rows)"));
    }
  }
  return absl::OkStatus();
}

void RopeCpu(const RopeArgs& args, const Stream& stream) {
  const int64_t grain = CeilDiv(kGrainElements, args.x.rows * args.x.cols);
  ParallelFor(
      stream, args.x.batch, grain,
      [&](int64_t begin, int64_t end, int) { RopeCpu(args, begin, end); });
}

}  // namespace attention_internal

absl::Status Rope(const RopeArgs& args, Stream stream) {
  constexpr attention_internal::RopeNames kNames{.op = "Rope"};
  LAMINA_RETURN_IF_ERROR(attention_internal::CheckRope(args, kNames));
  LAMINA_RETURN_IF_ERROR(CheckStream(kNames.op, stream));
  if (args.x.batch == 0 || args.x.rows == 0 || args.x.cols == 0) {
    return absl::OkStatus();
  }
  if (stream.device().backend != Backend::kCpu) {
    if constexpr (kHasGpu) return attention_internal::RopeGpu(args, stream);
  }
  LAMINA_RETURN_IF_ERROR(
      attention_internal::CheckRopePositions(args, kNames.op));
  attention_internal::RopeCpu(args, stream);
  return absl::OkStatus();
}

}  // namespace lamina
