#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "apps/lamina/options.h"
#include "apps/lamina/support.h"
#include "apps/lamina/tokenizer_json.h"
#include "lamina/core/buffer.h"
#include "lamina/core/status.h"
#include "lamina/model/checkpoint.h"
#include "lamina/model/fp8_checkpoint_writer.h"
#include "lamina/model/tokenizer.h"
#include "lamina/reduce/reduce_rows.h"
#include "lamina/transformer/transformer.h"
#include "nlohmann/json.hpp"

namespace lamina::cli {
namespace {

constexpr const char* kInterrupted = "interrupted; nothing was written";
volatile std::sig_atomic_t interrupted = 0;
void OnInterrupt(int) { interrupted = 1; }

// Largest |input| of each projection, by the projection's tensor name.
using InputRanges = std::map<std::string, float>;

// The tensors that a stage's input is multiplied with.
std::vector<const char*> TensorsOf(BlockStage stage) {
  switch (stage) {
    case BlockStage::kQkv:
      return {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"};
    case BlockStage::kOutput:
      return {"self_attn.o_proj"};
    case BlockStage::kGateUp:
      return {"mlp.gate_proj", "mlp.up_proj"};
    case BlockStage::kDown:
      return {"mlp.down_proj"};
    default:
      return {};
  }
}

// Runs the calibration text through the model and records the inputs' ranges.
absl::StatusOr<InputRanges> Calibrate(const Checkpoint& checkpoint,
                                      const std::string& text, Stream stream) {
  constexpr int64_t kMaxTokens = 512;
  LAMINA_ASSIGN_OR_RETURN(const Tokenizer tokenizer, LoadTokenizer(checkpoint));
  const std::vector<int32_t> ids = tokenizer.Encode(text);
  if (ids.empty()) {
    return absl::InvalidArgumentError("the calibration text has no tokens");
  }
  TransformerOptions load;
  load.weight_type = DType::kBF16;
  load.max_positions = std::min(checkpoint.config().max_positions, kMaxTokens);
  load.max_tokens = load.max_positions;
  LAMINA_ASSIGN_OR_RETURN(Transformer model,
                          Transformer::Load(checkpoint, load, stream));
  InputRanges ranges;
  absl::Status observed;
  std::vector<float> row_ranges(static_cast<size_t>(load.max_tokens));
  const auto observe = [&](int64_t layer, BlockStage stage,
                           const ConstMatrixView& input) {
    if (!observed.ok()) return;
    observed = ReduceRows({.x = input,
                           .reduction = RowReduction::kAbsMax,
                           .y = Vector(row_ranges.data(), input.rows)},
                          stream);
    const float range =
        *std::max_element(row_ranges.begin(), row_ranges.begin() + input.rows);
    for (const char* tensor : TensorsOf(stage)) {
      float& known =
          ranges[absl::StrCat("model.layers.", layer, ".", tensor, ".weight")];
      known = std::max(known, range);
    }
  };
  Progress progress("calibrating");
  const int64_t count = static_cast<int64_t>(ids.size());
  for (int64_t begin = 0; begin < count; begin += load.max_tokens) {
    const int64_t rows = std::min(load.max_tokens, count - begin);
    std::vector<int32_t> positions;
    for (int64_t t = 0; t < rows; ++t) {
      positions.push_back(static_cast<int32_t>(t));
    }
    LAMINA_RETURN_IF_ERROR(model.Forward(
        {.tokens = absl::MakeConstSpan(ids).subspan(static_cast<size_t>(begin),
                                                    static_cast<size_t>(rows)),
         .positions = positions,
         .observe_input = observe},
        stream));
    LAMINA_RETURN_IF_ERROR(observed);
    progress.Update(static_cast<double>(begin + rows) /
                    static_cast<double>(count));
    if (interrupted != 0) return absl::CancelledError(kInterrupted);
  }
  return ranges;
}

// Reads one tensor as fp32, Q and K rows in Hugging Face's order.
absl::Status ReadTensor(const Checkpoint& checkpoint,
                        const ExpectedTensor& expected, MatrixView out,
                        Stream stream) {
  LAMINA_ASSIGN_OR_RETURN(const CheckpointTensor* tensor,
                          checkpoint.Tensor(expected.name));
  const bool rotated = absl::StrContains(expected.name, "self_attn.q_proj") ||
                       absl::StrContains(expected.name, "self_attn.k_proj");
  const ModelConfig& config = checkpoint.config();
  if (!rotated || config.rope_pairing == RopePairing::kHalfSplit) {
    return ReadRows(*tensor, 0, out, stream);
  }
  for (int64_t row = 0; row < out.rows; ++row) {
    const MatrixView to = Matrix(out.Row<float>(row), 1, out.cols);
    LAMINA_RETURN_IF_ERROR(
        ReadRows(*tensor, AdjacentRow(row, config.head_dim), to, stream));
  }
  return absl::OkStatus();
}

absl::Status AddTokenizer(const Checkpoint& checkpoint,
                          Fp8CheckpointWriter& writer) {
  if (const HfTokenizer* files = checkpoint.hf_tokenizer(); files != nullptr) {
    const std::pair<const char*, std::string_view> copies[] = {
        {"tokenizer.json", files->tokenizer_json},
        {"tokenizer_config.json", files->tokenizer_config_json},
        {"chat_template.jinja", files->chat_template_jinja}};
    for (const auto& [name, contents] : copies) {
      if (contents.empty()) continue;
      LAMINA_RETURN_IF_ERROR(writer.AddFile(name, contents));
    }
    return absl::OkStatus();
  }
  LAMINA_ASSIGN_OR_RETURN(const TokenizerFiles files,
                          TokenizerFilesFromGguf(*checkpoint.gguf_tokenizer()));
  LAMINA_RETURN_IF_ERROR(
      writer.AddFile("tokenizer.json", files.tokenizer_json));
  return writer.AddFile("tokenizer_config.json", files.tokenizer_config_json);
}

ActivationScheme SchemeOf(const std::string& activations) {
  if (activations == "static") return ActivationScheme::kStatic;
  if (activations == "dynamic") return ActivationScheme::kDynamic;
  return ActivationScheme::kNone;
}

}  // namespace

absl::StatusOr<int> RunConvert(const ConvertOptions& options) {
  LAMINA_ASSIGN_OR_RETURN(const Stream stream, MakeStream(options));
  LAMINA_ASSIGN_OR_RETURN(const Checkpoint checkpoint,
                          Checkpoint::Open(options.model));
  const ActivationScheme scheme = SchemeOf(options.activations);
  const bool is_static = scheme == ActivationScheme::kStatic;
  if (is_static == options.calibration_file.empty()) {
    return absl::InvalidArgumentError(
        "--activations static and --calibration-file FILE go together");
  }
  std::string text;
  if (is_static) {
    LAMINA_ASSIGN_OR_RETURN(text, ReadTextFile(options.calibration_file));
  }

  // The writer removes an unfinished folder, so an interrupt ends the loop.
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
    if (std::signal(number, OnInterrupt) == SIG_IGN) {
      std::signal(number, SIG_IGN);
    }
  }
  ModelConfig config = checkpoint.config();
  config.rope_pairing = RopePairing::kHalfSplit;
  LAMINA_ASSIGN_OR_RETURN(Fp8CheckpointWriter writer,
                          Fp8CheckpointWriter::Create(options.output, config,
                                                      {.activations = scheme}));
  InputRanges ranges;
  if (is_static) {
    LAMINA_ASSIGN_OR_RETURN(ranges, Calibrate(checkpoint, text, stream));
  }
  const std::vector<ExpectedTensor> tensors = ExpectedTensors(config);
  Progress progress("writing");
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (interrupted != 0) return absl::CancelledError(kInterrupted);
    const ExpectedTensor& tensor = tensors[i];
    const int64_t cols = tensor.shape.back();
    const int64_t rows = tensor.shape.size() > 1 ? tensor.shape[0] : 1;
    LAMINA_ASSIGN_OR_RETURN(const Buffer buffer,
                            Buffer::Allocate(stream.device(), 4 * rows * cols));
    const MatrixView values = Matrix(buffer.as<float>(), rows, cols);
    LAMINA_RETURN_IF_ERROR(ReadTensor(checkpoint, tensor, values, stream));
    std::optional<float> input_scale;
    if (const auto range = ranges.find(tensor.name); range != ranges.end()) {
      input_scale =
          DynamicScale(range->second, MaxFinite(DType::kF8E4M3Fn), HUGE_VALF);
    }
    LAMINA_RETURN_IF_ERROR(
        writer.Add(tensor.name, values, input_scale, stream));
    progress.Update(static_cast<double>(i + 1) /
                    static_cast<double>(tensors.size()));
  }
  LAMINA_RETURN_IF_ERROR(AddTokenizer(checkpoint, writer));
  LAMINA_RETURN_IF_ERROR(writer.Finish());
  if (options.json) {
    std::printf("%s\n",
                nlohmann::json({{"output", options.output}}).dump().c_str());
  } else {
    std::fprintf(stderr, "wrote %s\n", options.output.c_str());
  }
  return kDone;
}

}  // namespace lamina::cli
