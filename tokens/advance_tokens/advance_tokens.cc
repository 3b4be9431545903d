#include "lamina/tokens/advance_tokens.h"

#include <iterator>
#include <limits>
#include <string>

#include "lamina/core/device/built_backends.h"
#include "lamina/core/device/runtime.h"
#include "lamina/core/status.h"
#include "lamina/tokens/advance_tokens/advance_tokens_args.h"

namespace lamina {
namespace {

constexpr char kOp[] = "AdvanceTokens";

absl::Status Validate(const AdvanceTokensArgs& args) {
  const int64_t sequences = args.ids.size;
  LAMINA_RETURN_IF_ERROR(CheckDType(kOp, "ids", args.ids.dtype, DType::kI64));
  LAMINA_RETURN_IF_ERROR(CheckVector(kOp, "ids", args.ids, sequences));
  LAMINA_RETURN_IF_ERROR(
      CheckDType(kOp, "positions", args.positions.dtype, DType::kI32));
  LAMINA_RETURN_IF_ERROR(
      CheckVector(kOp, "positions", args.positions, sequences));
  LAMINA_RETURN_IF_ERROR(
      CheckDType(kOp, "history", args.history.dtype, DType::kI64));
  LAMINA_RETURN_IF_ERROR(CheckShape(kOp, "history", args.history, 1,
                                    args.history.rows, sequences));
  if (args.history.rows < 1) {
    return InvalidArgument(kOp, "history.rows", args.history.rows, ">= 1");
  }
  if (args.last_position < 0 ||
      args.last_position > std::numeric_limits<int32_t>::max()) {
    return InvalidArgument(kOp, "last_position", args.last_position,
                           "in [0, 2^31)");
  }
  if (args.step == nullptr) {
    return InvalidArgument(kOp, "step", std::string("null"), "a pointer");
  }
  struct Bytes {
    const char* name;
    const void* data;
    int64_t bytes;
  };
  const Bytes all[] = {
      {"ids", args.ids.data, 8 * sequences},
      {"positions", args.positions.data, 4 * sequences},
      {"history", args.history.data,
       8 * ((args.history.rows - 1) * args.history.row_stride + sequences)},
      {"step", args.step, 8}};
  for (const Bytes& a : all) {
    for (const Bytes* b = &a + 1; b < std::end(all); ++b) {
      LAMINA_RETURN_IF_ERROR(CheckNoByteOverlap(kOp, a.name, a.data, a.bytes,
                                                b->name, b->data, b->bytes));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status AdvanceTokens(const AdvanceTokensArgs& args, Stream stream) {
  LAMINA_RETURN_IF_ERROR(Validate(args));
  LAMINA_RETURN_IF_ERROR(CheckStream(kOp, stream));
  const tokens_internal::AdvanceTokensKernelArgs plain{
      .ids = static_cast<const int64_t*>(args.ids.data),
      .positions = static_cast<int32_t*>(args.positions.data),
      .sequences = args.ids.size,
      .last_position = static_cast<int32_t>(args.last_position),
      .history = args.history,
      .step = args.step};
  if (stream.device().backend != Backend::kCpu) {
    if constexpr (kHasGpu) {
      return ToStatus(
          kOp, tokens_internal::LaunchAdvanceTokens(plain, TargetOf(stream)));
    }
  }
  const int64_t slot = *args.step % args.history.rows;
  for (int64_t t = 0; t < plain.sequences; ++t) {
    tokens_internal::AdvanceSequence(plain, slot, t);
  }
  ++*args.step;
  return absl::OkStatus();
}

}  // namespace lamina
