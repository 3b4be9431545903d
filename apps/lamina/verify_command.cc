#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "apps/lamina/options.h"
#include "apps/lamina/support.h"
#include "apps/lamina/verify_operators.h"
#include "lamina/core/buffer.h"
#include "lamina/core/status.h"
#include "lamina/model/checkpoint.h"
#include "lamina/model/tokenizer.h"
#include "lamina/transformer/transformer.h"
#include "nlohmann/json.hpp"

namespace lamina::cli {
namespace {

// Tokens of context at most; a longer text is cut into windows.
constexpr int64_t kWindow = 2000;
constexpr int64_t kRows = 250;  // logits at once

struct Likelihood {
  double mean_nll = 0;
  int64_t tokens = 0;
  std::vector<double> nll;  // of each predicted token
};

// -log p(target) of one row of logits, in double.
double NegativeLogLikelihood(const float* logits, int64_t vocab,
                             int32_t target) {
  const float most = *std::max_element(logits, logits + vocab);
  double sum = 0;
  for (int64_t i = 0; i < vocab; ++i) sum += std::exp(double{logits[i]} - most);
  return std::log(sum) + most - double{logits[target]};
}

absl::StatusOr<Likelihood> Measure(const Checkpoint& checkpoint,
                                   const std::vector<int32_t>& ids,
                                   DType weight_type, Stream stream) {
  TransformerOptions load;
  load.weight_type = weight_type;
  load.max_positions = std::min(kWindow, checkpoint.config().max_positions);
  load.max_tokens = load.max_logits = kRows;
  LAMINA_ASSIGN_OR_RETURN(Transformer model,
                          Transformer::Load(checkpoint, load, stream));
  const int64_t vocab = checkpoint.config().vocab_size;
  LAMINA_ASSIGN_OR_RETURN(const Buffer logits,
                          Buffer::Allocate(stream.device(), 4 * kRows * vocab));
  Likelihood result;
  Progress progress(Name(weight_type));
  const int64_t count = static_cast<int64_t>(ids.size());
  for (int64_t start = 0; start < count; start += load.max_positions) {
    const int64_t end = std::min(count, start + load.max_positions);
    for (int64_t begin = start; begin < end; begin += kRows) {
      const int64_t rows = std::min(kRows, end - begin);
      std::vector<int32_t> positions;
      for (int64_t t = 0; t < rows; ++t) {
        positions.push_back(static_cast<int32_t>(begin - start + t));
      }
      LAMINA_RETURN_IF_ERROR(model.Forward(
          {.tokens = absl::MakeConstSpan(ids).subspan(
               static_cast<size_t>(begin), static_cast<size_t>(rows)),
           .positions = positions,
           .logits = Matrix(logits.as<float>(), rows, vocab)},
          stream));
      for (int64_t t = 0; t < rows && begin + t + 1 < end; ++t) {
        result.nll.push_back(
            NegativeLogLikelihood(logits.as<float>() + t * vocab, vocab,
                                  ids[static_cast<size_t>(begin + t + 1)]));
      }
      progress.Update(static_cast<double>(begin + rows) /
                      static_cast<double>(count));
    }
  }
  for (const double nll : result.nll) result.mean_nll += nll;
  result.tokens = static_cast<int64_t>(result.nll.size());
  result.mean_nll /= static_cast<double>(result.tokens);
  return result;
}

absl::StatusOr<int> VerifyModel(const VerifyOptions& options, Stream stream) {
  constexpr double kAllowedChange = 0.01;
  LAMINA_ASSIGN_OR_RETURN(const std::string text,
                          ReadTextFile(options.text_file));
  LAMINA_ASSIGN_OR_RETURN(const Checkpoint checkpoint,
                          Checkpoint::Open(options.model));
  LAMINA_ASSIGN_OR_RETURN(const Tokenizer tokenizer, LoadTokenizer(checkpoint));
  const std::vector<int32_t> ids = tokenizer.Encode(text);
  if (ids.size() < 2) {
    return absl::InvalidArgumentError(
        absl::StrCat(options.text_file, ": want a text of two tokens or more"));
  }
  LAMINA_ASSIGN_OR_RETURN(const Likelihood bf16,
                          Measure(checkpoint, ids, DType::kBF16, stream));
  LAMINA_ASSIGN_OR_RETURN(const Likelihood fp8,
                          Measure(checkpoint, ids, DType::kF8E4M3Fn, stream));
  const double change = fp8.mean_nll / bf16.mean_nll - 1;
  const bool ok = std::abs(change) < kAllowedChange;
  if (options.json) {
    std::printf("%s\n", nlohmann::json({{"tokens", bf16.tokens},
                                        {"window", kWindow},
                                        {"bf16_mean_nll", bf16.mean_nll},
                                        {"fp8_mean_nll", fp8.mean_nll},
                                        {"relative_change", change},
                                        {"allowed", kAllowedChange},
                                        {"bf16_nll", bf16.nll},
                                        {"ok", ok}})
                            .dump(1)
                            .c_str());
  } else {
    absl::PrintF(
        "mean negative log-likelihood of %d tokens, windows of %d\n"
        "  bf16 weights  %.5f\n"
        "  fp8 weights   %.5f   %+.3f %%  (allowed: %.1f %%)  %s\n",
        bf16.tokens, kWindow, bf16.mean_nll, fp8.mean_nll, 100 * change,
        100 * kAllowedChange, ok ? "ok" : "FAILED");
  }
  return ok ? kDone : kCheckFailed;
}

void PrintResult(const VerifyResult& result) {
  absl::PrintF("%-17s %-24s %7d", result.op, result.types, result.count);
  for (const int64_t count : result.histogram) absl::PrintF(" %7d", count);
  absl::PrintF("  %9.3f %9.3f  %s\n", result.worst_ulp, result.allowed_ulp,
               result.ok() ? "ok" : "FAILED");
  if (!result.ok()) {
    absl::PrintF("    worst at %d: got %.9g, want %.17g\n", result.worst_index,
                 result.worst_got, result.worst_want);
  }
}

}  // namespace

absl::StatusOr<int> RunVerify(const VerifyOptions& options) {
  LAMINA_ASSIGN_OR_RETURN(const Stream stream, MakeStream(options));
  if (!options.text_file.empty()) {
    if (options.model.empty()) {
      return absl::InvalidArgumentError("--text-file needs --model");
    }
    return VerifyModel(options, stream);
  }
  LAMINA_ASSIGN_OR_RETURN(const std::vector<VerifyResult> results,
                          VerifyOperators(options.op, options.seed, stream));
  bool ok = true;
  nlohmann::json list = nlohmann::json::array();
  if (!options.json) {
    absl::PrintF("%-17s %-24s %7s", "operator", "types", "values");
    for (const double bound : kUlpBounds) {
      absl::PrintF(" %7s", absl::StrCat("<=", bound));
    }
    absl::PrintF(" %7s  %9s %9s\n", "more", "worst ULP", "allowed");
  }
  for (const VerifyResult& result : results) {
    ok = ok && result.ok();
    if (!options.json) {
      PrintResult(result);
      continue;
    }
    list.push_back({{"op", result.op},
                    {"types", result.types},
                    {"count", result.count},
                    {"ulp_bounds", kUlpBounds},
                    {"histogram", result.histogram},
                    {"worst_ulp", result.worst_ulp},
                    {"worst_index", result.worst_index},
                    {"worst_got", result.worst_got},
                    {"worst_want", result.worst_want},
                    {"allowed_ulp", result.allowed_ulp},
                    {"ok", result.ok()}});
  }
  if (options.json) {
    std::printf("%s\n", nlohmann::json({{"kernels", CpuTargetName()},
                                        {"results", list},
                                        {"ok", ok}})
                            .dump(2)
                            .c_str());
  }
  return ok ? kDone : kCheckFailed;
}

}  // namespace lamina::cli
