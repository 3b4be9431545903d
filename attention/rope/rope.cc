#include "lamina/attention/rope.h"

#include <array>
#include <string>

#include "absl/strings/str_cat.h"
#include "lamina/attention/rope/rope_cpu.h"
#include "lamina/attention/rope/rope_policy.h"
#include "lamina/core/math.h"
#include "lamina/core/parallel.h"
#include "lamina/core/status.h"

namespace lamina {
namespace {

constexpr const char* kOp = "Rope";
// Elements that are worth a thread.
constexpr int64_t kGrainElements = 1 << 14;

absl::Status Validate(const RopeArgs& args) {
  const ConstMatrixView& x = args.x;
  LAMINA_RETURN_IF_ERROR(CheckMatrix(kOp, "x", x));
  if (!Dispatch(RopeTable{}, std::array{x.dtype}, [](auto) {})) {
    return absl::UnimplementedError(
        absl::StrCat(kOp, ": x.dtype: given ", Name(x.dtype),
                     ", supported: ", SupportedRows(RopeTable{})));
  }
  LAMINA_RETURN_IF_ERROR(CheckShape(kOp, "y", args.y, x.batch, x.rows, x.cols));
  LAMINA_RETURN_IF_ERROR(CheckDType(kOp, "y", args.y.dtype, x.dtype));
  LAMINA_RETURN_IF_ERROR(CheckMatrix(kOp, "table", args.table));
  LAMINA_RETURN_IF_ERROR(
      CheckDType(kOp, "table", args.table.dtype, DType::kF32));
  if (args.table.batch != 1) {
    return InvalidArgument(kOp, "table.batch", args.table.batch, "1");
  }
  if (args.table.cols % 2 != 0 || args.table.cols > x.cols) {
    return InvalidArgument(
        kOp, "table.cols", args.table.cols,
        absl::StrCat("an even rotary_dim <= ", x.cols, " (x.cols)"));
  }
  if (args.pairing != RopePairing::kHalfSplit &&
      args.pairing != RopePairing::kAdjacent) {
    return InvalidArgument(kOp, "pairing", static_cast<int64_t>(args.pairing),
                           "kHalfSplit or kAdjacent");
  }
  LAMINA_RETURN_IF_ERROR(CheckOverlap(kOp, "y", args.y, "x", x, true));
  LAMINA_RETURN_IF_ERROR(
      CheckOverlap(kOp, "y", args.y, "table", args.table, false));
  if (x.batch > 0 && args.positions == nullptr) {
    return InvalidArgument(kOp, "positions", std::string("null"),
                           "a pointer to [tokens]");
  }
  return absl::OkStatus();
}

absl::Status CheckPositions(const RopeArgs& args) {
  for (int64_t t = 0; t < args.x.batch; ++t) {
    const int64_t position = args.positions[t];
    if (position < 0 || position >= args.table.rows) {
      return InvalidArgument(
          kOp, absl::StrCat("positions[", t, "]").c_str(), position,
          absl::StrCat("in [0, ", args.table.rows, ") (table.rows)"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status Rope(const RopeArgs& args, Stream stream) {
  LAMINA_RETURN_IF_ERROR(Validate(args));
  LAMINA_RETURN_IF_ERROR(CheckCpuStream(kOp, stream));
  if (args.x.batch == 0 || args.x.rows == 0 || args.x.cols == 0) {
    return absl::OkStatus();
  }
  LAMINA_RETURN_IF_ERROR(CheckPositions(args));
  const int64_t grain = CeilDiv(kGrainElements, args.x.rows * args.x.cols);
  ParallelFor(stream, args.x.batch, grain,
              [&](int64_t begin, int64_t end, int) {
                attention_internal::RopeCpu(args, begin, end);
              });
  return absl::OkStatus();
}

}  // namespace lamina
