#include "lamina/tokens/sample_tokens.h"

#include <array>
#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"
#include "lamina/core/device/built_backends.h"
#include "lamina/core/device/runtime.h"
#include "lamina/core/octet_access.h"
#include "lamina/core/status.h"
#include "lamina/tokens/sample_tokens/sample_tokens_policy.h"
#include "lamina/tokens/sample_tokens/sample_tokens_rule.h"

namespace lamina {
namespace {

constexpr char kOp[] = "SampleTokens";

absl::Status CheckSampling(const Sampling& sampling) {
  const auto bad = [](const char* name, float value, const char* want) {
    return InvalidArgument(kOp, name, absl::StrCat(value), want);
  };
  if (!(sampling.temperature >= 0) || std::isinf(sampling.temperature)) {
    return bad("temperature", sampling.temperature, "finite, >= 0");
  }
  if (sampling.top_k < 0) {
    return InvalidArgument(kOp, "top_k", sampling.top_k, ">= 0 (0: all)");
  }
  if (!(sampling.top_p >= 0 && sampling.top_p <= 1)) {
    return bad("top_p", sampling.top_p, "in [0, 1]");
  }
  if (!(sampling.min_p >= 0 && sampling.min_p <= 1)) {
    return bad("min_p", sampling.min_p, "in [0, 1]");
  }
  return absl::OkStatus();
}

absl::Status CheckRows(const SampleTokensArgs& args) {
  const int64_t rows = args.logits.rows;
  LAMINA_RETURN_IF_ERROR(
      CheckDType(kOp, "positions", args.positions.dtype, DType::kI32));
  LAMINA_RETURN_IF_ERROR(CheckVector(kOp, "positions", args.positions, rows));
  if (args.sequence_ids.has_value()) {
    LAMINA_RETURN_IF_ERROR(
        CheckDType(kOp, "sequence_ids", args.sequence_ids.dtype, DType::kI32));
    LAMINA_RETURN_IF_ERROR(
        CheckVector(kOp, "sequence_ids", args.sequence_ids, rows));
  }
  LAMINA_RETURN_IF_ERROR(
      CheckDType(kOp, "tokens", args.tokens.dtype, DType::kI64));
  LAMINA_RETURN_IF_ERROR(CheckVector(kOp, "tokens", args.tokens, rows));
  const ConstMatrixView tokens{.data = args.tokens.data,
                               .dtype = args.tokens.dtype,
                               .rows = 1,
                               .cols = rows,
                               .row_stride = rows};
  LAMINA_RETURN_IF_ERROR(CheckOverlap(kOp, "tokens", tokens, "logits",
                                      args.logits, /*in_place_ok=*/false));
  LAMINA_RETURN_IF_ERROR(CheckNoByteOverlap(kOp, "tokens", args.tokens.data,
                                            8 * rows, "positions",
                                            args.positions.data, 4 * rows));
  if (!args.sequence_ids.has_value()) return absl::OkStatus();
  return CheckNoByteOverlap(kOp, "tokens", args.tokens.data, 8 * rows,
                            "sequence_ids", args.sequence_ids.data, 4 * rows);
}

absl::Status Validate(const SampleTokensArgs& args) {
  const ConstMatrixView& logits = args.logits;
  LAMINA_RETURN_IF_ERROR(CheckMatrix(kOp, "logits", logits));
  const std::array types{logits.dtype};
  if (!Dispatch(SampleTokensTable{}, types, [](auto) {})) {
    return absl::UnimplementedError(
        absl::StrCat(kOp, ": logits: given ", KeyName(types), ", supported ",
                     SupportedRows(SampleTokensTable{})));
  }
  if (logits.batch != 1) {
    return InvalidArgument(kOp, "logits.batch", logits.batch, "1");
  }
  if (logits.cols < 1 || logits.cols > tokens_internal::kMostTokens) {
    return InvalidArgument(
        kOp, "logits.cols", logits.cols,
        absl::StrCat("in [1, ", tokens_internal::kMostTokens, "]"));
  }
  LAMINA_RETURN_IF_ERROR(CheckSampling(args.sampling));
  return CheckRows(args);
}

}  // namespace

absl::Status SampleTokens(const SampleTokensArgs& args, Stream stream) {
  LAMINA_RETURN_IF_ERROR(Validate(args));
  LAMINA_RETURN_IF_ERROR(CheckStream(kOp, stream));
  if (args.logits.rows == 0) return absl::OkStatus();
  const Sampling& sampling = args.sampling;
  const tokens_internal::SampleTokensKernelArgs plain{
      .logits = args.logits,
      .positions = static_cast<const int32_t*>(args.positions.data),
      .sequence_ids = static_cast<const int32_t*>(args.sequence_ids.data),
      .tokens = static_cast<int64_t*>(args.tokens.data),
      .greedy = sampling.temperature == 0,
      .temperature = sampling.temperature,
      .inverse_temperature = 1.0f / sampling.temperature,
      .top_k = sampling.top_k,
      .portion = static_cast<uint64_t>(
          std::nearbyint(double{sampling.top_p} * 0x1p32)),
      .least_weight =
          static_cast<uint64_t>(std::ceil(double{sampling.min_p} * 0x1p40)),
      .seed = sampling.seed,
      .octets =
          RowsAreAligned(args.logits, gpu::OctetAlignment(args.logits.dtype))};
  if (stream.device().backend != Backend::kCpu) {
    if constexpr (kHasGpu) {
      const DeviceInfo& info = GetDeviceInfo(stream.device());
      return ToStatus(kOp, tokens_internal::LaunchSampleTokens(
                               plain,
                               tokens_internal::SelectSampleTokensPlan(
                                   args.logits.rows, args.logits.cols,
                                   info.num_units, info.max_cluster_blocks),
                               TargetOf(stream)));
    }
  }
  tokens_internal::SampleTokensCpu(plain, stream);
  return absl::OkStatus();
}

}  // namespace lamina
