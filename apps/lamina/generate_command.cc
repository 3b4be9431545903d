#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "apps/lamina/options.h"
#include "apps/lamina/support.h"
#include "apps/lamina/trace.h"
#include "lamina/core/status.h"
#include "lamina/model/chat_template.h"
#include "lamina/model/checkpoint.h"
#include "lamina/model/tokenizer.h"
#include "lamina/model/utf8_stream.h"
#include "lamina/transformer/decode_loop.h"
#include "lamina/transformer/transformer.h"
#include "nlohmann/json.hpp"

namespace lamina::cli {
namespace {

constexpr int64_t kPrefillTokens = 512;

std::atomic<bool> interrupted = false;
void OnInterrupt(int) { interrupted = true; }

double SecondsSince(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start)
      .count();
}

absl::StatusOr<std::vector<int32_t>> PromptIds(const GenerateOptions& options,
                                               const Tokenizer& tokenizer) {
  std::string prompt = options.prompt;
  if (!options.prompt_file.empty()) {
    LAMINA_ASSIGN_OR_RETURN(prompt, ReadTextFile(options.prompt_file));
  }
  if (prompt.empty()) {
    return absl::InvalidArgumentError(
        "no prompt: give --prompt TEXT or --prompt-file FILE");
  }
  if (options.raw) {
    std::vector<int32_t> ids = tokenizer.Encode(prompt);
    if (ids.empty()) {
      return absl::InvalidArgumentError("the prompt has no tokens");
    }
    return ids;
  }
  LAMINA_ASSIGN_OR_RETURN(const ChatTemplate chat,
                          ChatTemplate::For(tokenizer));
  std::vector<ChatMessage> messages;
  if (options.has_system) messages.push_back({"system", options.system});
  messages.push_back({"user", prompt});
  return chat.Encode(tokenizer, messages);
}

// One run: the model's state, what was generated, and how long it took.
class Generation {
 public:
  Generation(const GenerateOptions& options, const Tokenizer& tokenizer,
             Transformer& model, Stream stream)
      : options_(options),
        tokenizer_(tokenizer),
        model_(model),
        stream_(stream),
        text_stream_(tokenizer),
        ids_(static_cast<size_t>(options.batch)),
        done_(static_cast<size_t>(options.batch), false) {}

  absl::Status Run(const std::vector<int32_t>& prompt) {
    prompt_ = prompt;
    if (!options_.trace.empty()) {
      Event origin;
      LAMINA_RETURN_IF_ERROR(origin.Record(stream_));
      trace_.emplace(std::move(origin));
      events_.resize(static_cast<size_t>(model_.num_events()));
    }
    LAMINA_ASSIGN_OR_RETURN(
        DecodeLoop loop,
        DecodeLoop::Create(
            model_,
            {.batch = options_.batch,
             .sampling = {.temperature =
                              static_cast<float>(options_.temperature),
                          .top_k = options_.top_k,
                          .top_p = static_cast<float>(options_.top_p),
                          .min_p = static_cast<float>(options_.min_p),
                          .seed = options_.seed},
             .persistent = options_.persistent},
            stream_));
    LAMINA_RETURN_IF_ERROR(Prefill(loop));
    std::signal(SIGINT, OnInterrupt);
    const absl::Status decoded = Decode(loop);
    std::signal(SIGINT, SIG_DFL);
    // NOTE: before the loop's memory goes: a step may still be running.
    LAMINA_RETURN_IF_ERROR(Synchronize(stream_));
    LAMINA_RETURN_IF_ERROR(decoded);
    Emit(text_stream_.Finish());
    if (trace_) return trace_->Write(options_.trace);
    return absl::OkStatus();
  }

  // What happened, in DESIGN's field names.
  nlohmann::json Report() const {
    const TransformerMemory memory = model_.memory();
    return {{"prompt_ids", prompt_},
            {"ids", ids_[0]},
            {"text", text_},
            {"finish_reason", finish_reason_},
            {"prefill_tokens_per_s", PrefillRate()},
            {"decode_tokens_per_s", DecodeRate()},
            {"decode_gb_per_s", DecodeBandwidth() * 1e-9},
            {"time_to_first_token_ms", first_token_seconds_ * 1e3},
            {"memory",
             {{"weights", memory.weights},
              {"kv", memory.kv},
              {"workspace", memory.workspace}}},
            {"device", GetDeviceInfo(stream_.device()).name},
            {"kernels", KernelsName(stream_.device())},
            {"threads", stream_.num_threads()},
            {"batch", options_.batch}};
  }

  void PrintSummary() const {
    const TransformerMemory memory = model_.memory();
    std::fprintf(stderr,
                 "\n%zu prompt tokens, %zu new (%s)\n"
                 "prefill  %8.1f tokens/s   time to first token %.1f ms\n"
                 "decode   %8.1f tokens/s   %.1f GB/s\n"
                 "memory   weights %s, KV cache %s, workspace %s\n"
                 "device   %s, %s kernels, %d threads\n",
                 prompt_.size(), ids_[0].size(), finish_reason_.c_str(),
                 PrefillRate(), first_token_seconds_ * 1e3, DecodeRate(),
                 DecodeBandwidth() * 1e-9, HumanBytes(memory.weights).c_str(),
                 HumanBytes(memory.kv).c_str(),
                 HumanBytes(memory.workspace).c_str(),
                 GetDeviceInfo(stream_.device()).name.c_str(),
                 KernelsName(stream_.device()).c_str(), stream_.num_threads());
  }

 private:
  // Adds the spans of the step that was enqueued last.
  absl::Status TraceStep(const char* what) {
    if (!trace_) return absl::OkStatus();
    constexpr int kStep = kNumBlockStages + 1;
    for (int64_t layer = 0; layer < model_.config().num_layers; ++layer) {
      const Event* events = &events_[static_cast<size_t>(layer * kStep)];
      for (int i = 0; i < kNumBlockStages; ++i) {
        LAMINA_RETURN_IF_ERROR(trace_->Add(Name(static_cast<BlockStage>(i)),
                                           absl::StrCat(what, ",layer ", layer),
                                           events[i], events[i + 1]));
      }
    }
    const Event* last = &events_[events_.size() - 2];
    return trace_->Add("output_projection", what, last[0], last[1]);
  }

  // Up to the first token of every sequence.
  absl::Status Prefill(DecodeLoop& loop) {
    const auto start = std::chrono::steady_clock::now();
    for (int64_t s = 0; s < options_.batch; ++s) {
      LAMINA_RETURN_IF_ERROR(
          loop.Prefill(s, prompt_, absl::MakeSpan(events_),
                       [this] { return TraceStep("prefill"); }));
    }
    LAMINA_RETURN_IF_ERROR(Synchronize(stream_));
    prefill_seconds_ = SecondsSince(start);
    LAMINA_RETURN_IF_ERROR(loop.Start());
    LAMINA_RETURN_IF_ERROR(Take(loop, 0));
    first_token_seconds_ = SecondsSince(start);
    return absl::OkStatus();
  }

  // Notes the choice `index` of every sequence.
  absl::Status Take(DecodeLoop& loop, int64_t index) {
    std::vector<int32_t> chosen(ids_.size());
    LAMINA_RETURN_IF_ERROR(loop.ReadTokens(index, absl::MakeSpan(chosen)));
    for (size_t s = 0; s < ids_.size(); ++s) {
      if (done_[s]) continue;
      const int32_t id = chosen[s];
      ids_[s].push_back(id);
      const bool stop = tokenizer_.IsValid(id) && tokenizer_.IsStop(id) &&
                        !options_.ignore_eos;
      if (stop) done_[s] = true;
      if (s == 0) {
        if (stop) finish_reason_ = "stop";
        Emit(text_stream_.Push(id));
      }
    }
    return absl::OkStatus();
  }

  bool AllDone() const {
    for (const bool done : done_) {
      if (!done) return false;
    }
    return true;
  }

  absl::Status EnqueueStep(DecodeLoop& loop) {
    LAMINA_RETURN_IF_ERROR(loop.Step(absl::MakeSpan(events_)));
    return TraceStep("decode");
  }

  absl::Status Decode(DecodeLoop& loop) {
    const auto start = std::chrono::steady_clock::now();
    // A GPU already has its next step when its last tokens are looked at. The
    // last step is then for nothing.
    const bool on_gpu = stream_.device().backend != Backend::kCpu;
    const int64_t ahead = on_gpu && !trace_ ? 1 : 0;
    const int64_t prompt = static_cast<int64_t>(prompt_.size());
    for (int64_t made = 1; made < options_.max_tokens && !AllDone(); ++made) {
      if (interrupted) {
        finish_reason_ = "interrupted";
        break;
      }
      while (loop.choices() <=
                 std::min(made + ahead, options_.max_tokens - 1) &&
             loop.has_room()) {
        LAMINA_RETURN_IF_ERROR(EnqueueStep(loop));
      }
      if (loop.choices() <= made) break;  // the model's context is full
      LAMINA_RETURN_IF_ERROR(Take(loop, made));
      ++steps_;
      context_sum_ += prompt + made;
    }
    decode_seconds_ = SecondsSince(start);
    return absl::OkStatus();
  }

  void Emit(const std::string& piece) {
    text_ += piece;
    if (options_.json || piece.empty()) return;
    std::fwrite(piece.data(), 1, piece.size(), stdout);
    std::fflush(stdout);
  }

  double PrefillRate() const {
    return static_cast<double>(options_.batch) *
           static_cast<double>(prompt_.size()) / prefill_seconds_;
  }
  double DecodeRate() const {
    return steps_ == 0
               ? 0
               : static_cast<double>(options_.batch * steps_) / decode_seconds_;
  }
  double DecodeBandwidth() const {
    if (steps_ == 0) return 0;
    const int64_t bytes =
        model_.DecodeBytes(options_.batch, context_sum_ / steps_);
    return static_cast<double>(bytes * steps_) / decode_seconds_;
  }

  const GenerateOptions& options_;
  const Tokenizer& tokenizer_;
  Transformer& model_;
  const Stream stream_;
  Utf8Stream text_stream_;
  std::vector<int32_t> prompt_;
  std::vector<std::vector<int32_t>> ids_;  // generated, by sequence
  std::vector<bool> done_;
  std::string text_;
  std::string finish_reason_ = "length";
  std::optional<Trace> trace_;
  std::vector<Event> events_;
  double prefill_seconds_ = 0, decode_seconds_ = 0, first_token_seconds_ = 0;
  int64_t steps_ = 0, context_sum_ = 0;
};

}  // namespace

absl::StatusOr<int> RunGenerate(const GenerateOptions& options) {
  LAMINA_ASSIGN_OR_RETURN(const ChosenStream chosen, ChooseStream(options));
  const Stream stream = chosen.stream;
  LAMINA_RETURN_IF_ERROR(CheckCanWrite(options.trace));
  LAMINA_RETURN_IF_ERROR(CheckPersistent(options.persistent, stream.device()));
  LAMINA_ASSIGN_OR_RETURN(const Checkpoint checkpoint,
                          Checkpoint::Open(options.model));
  LAMINA_ASSIGN_OR_RETURN(const Tokenizer tokenizer, LoadTokenizer(checkpoint));
  LAMINA_ASSIGN_OR_RETURN(const std::vector<int32_t> prompt,
                          PromptIds(options, tokenizer));
  const int64_t limit = checkpoint.config().max_positions;
  if (static_cast<int64_t>(prompt.size()) >= limit) {
    return absl::InvalidArgumentError(
        absl::StrCat("the prompt has ", prompt.size(),
                     " tokens; the model's context holds ", limit));
  }

  TransformerOptions load;
  if (!options.weights.empty()) load.weight_type = WeightType(options.weights);
  if (!options.activation_type.empty()) {
    load.activation_type = WeightType(options.activation_type);
  }
  load.fusion = FusionOf(options.fuse);
  const GemmTuning tuning = TuningOf(options.tuning, stream.device());
  load.tuning = &tuning;
  std::unique_ptr<PrefillGemm> library;
  if (options.cublaslt) {
    LAMINA_ASSIGN_OR_RETURN(library, LoadCublasLt(stream.device()));
    load.prefill = library.get();
  }
  load.kv_type = WeightType(options.kv);
  load.sequences = options.batch;
  load.max_positions =
      std::min(limit, static_cast<int64_t>(prompt.size()) + options.max_tokens);
  load.max_tokens =
      std::max(options.batch,
               std::min(kPrefillTokens, static_cast<int64_t>(prompt.size())));
  load.max_logits = options.batch;
  auto progress = std::make_unique<Progress>("loading");
  load.progress = [&](double fraction) { progress->Update(fraction); };
  LAMINA_ASSIGN_OR_RETURN(Transformer model,
                          Transformer::Load(checkpoint, load, stream));
  progress.reset();

  Generation generation(options, tokenizer, model, stream);
  LAMINA_RETURN_IF_ERROR(generation.Run(prompt));
  if (options.json) {
    std::printf("%s\n", generation.Report().dump(2).c_str());
  } else {
    std::printf("\n");
    std::fflush(stdout);
    generation.PrintSummary();
  }
  return kDone;
}

}  // namespace lamina::cli
