#include "lamina/attention/rope_append.h"

#include "lamina/attention/kv_cache/kv_append_checks.h"
#include "lamina/attention/rope/rope_checks.h"
#include "lamina/attention/rope_append/rope_append_gpu.h"
#include "lamina/core/device/built_backends.h"
#include "lamina/core/status.h"

namespace lamina {
namespace {

using namespace attention_internal;  // NOLINT(google-build-using-namespace)

constexpr const char* kOp = "RopeAppend";

RopeArgs RopeOfQ(const RopeAppendArgs& args) {
  return {.x = args.q,
          .y = args.y,
          .table = args.table,
          .positions = args.positions,
          .pairing = args.pairing};
}
RopeArgs RopeOfK(const RopeAppendArgs& args) {
  return {.x = args.k,
          .y = args.k,
          .table = args.table,
          .positions = args.positions,
          .pairing = args.pairing};
}
KvAppendArgs AppendOf(const RopeAppendArgs& args) {
  return {.k = args.k,
          .v = args.v,
          .cache = args.cache,
          .sequence_ids = args.sequence_ids,
          .positions = args.positions};
}

absl::Status Check(const RopeAppendArgs& args) {
  LAMINA_RETURN_IF_ERROR(
      CheckRope(RopeOfQ(args), {.op = kOp, .x = "q", .y = "y"}));
  LAMINA_RETURN_IF_ERROR(
      CheckRope(RopeOfK(args), {.op = kOp, .x = "k", .y = "k"}));
  LAMINA_RETURN_IF_ERROR(CheckKvAppend(AppendOf(args), kOp));
  LAMINA_RETURN_IF_ERROR(CheckShape(kOp, "k", args.k, args.q.batch,
                                    args.cache.kv_heads, args.q.cols));
  LAMINA_RETURN_IF_ERROR(CheckDType(kOp, "k", args.k.dtype, args.q.dtype));
  LAMINA_RETURN_IF_ERROR(CheckOverlap(kOp, "k", args.k, "q", args.q, false));
  LAMINA_RETURN_IF_ERROR(CheckOverlap(kOp, "k", args.k, "y", args.y, false));
  LAMINA_RETURN_IF_ERROR(CheckOverlap(kOp, "k", args.k, "v", args.v, false));
  return CheckOverlap(kOp, "y", args.y, "v", args.v, false);
}

}  // namespace

absl::Status RopeAppend(const RopeAppendArgs& args, Stream stream) {
  LAMINA_RETURN_IF_ERROR(Check(args));
  LAMINA_RETURN_IF_ERROR(CheckStream(kOp, stream));
  if (args.q.batch == 0) return absl::OkStatus();
  if (stream.device().backend != Backend::kCpu) {
    if constexpr (kHasGpu) return RopeAppendGpu(args, stream);
  }
  LAMINA_RETURN_IF_ERROR(CheckRopePositions(RopeOfQ(args), kOp));
  LAMINA_RETURN_IF_ERROR(CheckKvAppendTokens(AppendOf(args), kOp));
  if (args.q.rows > 0) RopeCpu(RopeOfQ(args), stream);
  RopeCpu(RopeOfK(args), stream);
  KvAppendCpu(AppendOf(args), stream);
  return absl::OkStatus();
}

}  // namespace lamina
