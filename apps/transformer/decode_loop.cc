#include "lamina/transformer/decode_loop.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lamina/core/copy.h"
#include "lamina/core/math.h"
#include "lamina/core/profile_range.h"
#include "lamina/core/status.h"
#include "lamina/reduce/reduce_rows.h"
#include "lamina/tokens/advance_tokens.h"

namespace lamina {
namespace {

constexpr char kOp[] = "DecodeLoop";
constexpr int64_t kAlignment = 256;
constexpr int64_t kLeastBound = 1024;

}  // namespace

int64_t PositionBound(int64_t position, int64_t capacity) {
  int64_t step = kLeastBound;
  while (step * 8 <= position) step *= 2;
  return std::min(capacity, (position / step + 1) * step);
}

absl::StatusOr<DecodeLoop> DecodeLoop::Create(Transformer& model,
                                              const DecodeLoopOptions& options,
                                              Stream stream) {
  const int64_t most =
      std::min({model.sequences(), model.max_tokens(), model.max_logits()});
  if (options.batch < 1 || options.batch > most) {
    return InvalidArgument(
        kOp, "batch", options.batch,
        absl::StrCat("in [1, ", most,
                     "] (the model's sequences, max_tokens, max_logits)"));
  }
  DecodeLoop loop(model, options, stream);
  LAMINA_RETURN_IF_ERROR(loop.Allocate());
  return loop;
}

absl::Status DecodeLoop::Allocate() {
  const Device device = stream_.device();
  // The vendor's default stream cannot be recorded; host SIMT's is one.
  options_.record = options_.record && stream_.handle() != nullptr;
  if (device.backend != Backend::kCpu) {
    LAMINA_ASSIGN_OR_RETURN(reader_, OwnedStream::Create(device));
  }
  int64_t end = 0;
  const auto reserve = [&end](int64_t& offset, int64_t bytes) {
    offset = end;
    end += RoundUp(bytes, kAlignment);
  };
  const int64_t batch = options_.batch;
  reserve(ids_offset_, 8 * batch);
  reserve(positions_offset_, 4 * batch);
  reserve(step_offset_, 8);
  reserve(history_offset_, 8 * kHistory * batch);
  reserve(logits_offset_, 4 * batch * model_->config().vocab_size);
  LAMINA_ASSIGN_OR_RETURN(memory_, Buffer::Allocate(device, end));
  lengths_.resize(static_cast<size_t>(batch), 0);
  return absl::OkStatus();
}

MatrixView DecodeLoop::logits() const {
  return Matrix(At<float>(logits_offset_), options_.batch,
                model_->config().vocab_size);
}

absl::Status DecodeLoop::Prefill(int64_t sequence,
                                 absl::Span<const int32_t> tokens,
                                 absl::Span<Event> events,
                                 const std::function<absl::Status()>& observe) {
  if (sequence < 0 || sequence >= options_.batch) {
    return InvalidArgument(kOp, "sequence", sequence,
                           absl::StrCat("in [0, ", options_.batch, ")"));
  }
  if (furthest_ > 0) {
    return absl::FailedPreconditionError("DecodeLoop: Prefill after Start");
  }
  int32_t& length = lengths_[static_cast<size_t>(sequence)];
  const size_t step = static_cast<size_t>(model_->max_tokens());
  for (size_t begin = 0; begin < tokens.size(); begin += step) {
    const absl::Span<const int32_t> part = tokens.subspan(begin, step);
    std::vector<int32_t> positions;
    for (size_t i = 0; i < part.size(); ++i) {
      positions.push_back(length + static_cast<int32_t>(i));
    }
    const std::vector<int32_t> sequences(part.size(),
                                         static_cast<int32_t>(sequence));
    MatrixView row = logits();
    row.data = row.Row<float>(sequence);
    row.rows = begin + step >= tokens.size() ? 1 : 0;
    const ProfileRange range(stream_, "prefill");
    LAMINA_RETURN_IF_ERROR(
        model_->Forward({.tokens = part,
                         .sequence_ids = sequences,
                         .positions = positions,
                         .logits = row,
                         .events = events},
                        stream_.WithOverlap(options_.overlap)));
    // NOTE: not before: what fails has written nothing to go on from.
    length += static_cast<int32_t>(part.size());
    if (observe) LAMINA_RETURN_IF_ERROR(observe());
  }
  return absl::OkStatus();
}

absl::Status DecodeLoop::Assume(int64_t sequence, int64_t length) {
  if (sequence < 0 || sequence >= options_.batch || length < 1 ||
      length > model_->max_positions()) {
    return absl::InvalidArgumentError(
        "DecodeLoop: Assume: no such sequence or length");
  }
  if (furthest_ > 0) {
    return absl::FailedPreconditionError("DecodeLoop: Assume after Start");
  }
  lengths_[static_cast<size_t>(sequence)] = static_cast<int32_t>(length);
  return EnqueueFill(logits().Row<float>(sequence), 0,
                     4 * model_->config().vocab_size, stream_);
}

absl::Status DecodeLoop::Start() {
  std::vector<int32_t> positions;
  for (size_t s = 0; s < lengths_.size(); ++s) {
    if (lengths_[s] == 0) {
      return absl::FailedPreconditionError(
          absl::StrCat("DecodeLoop: sequence ", s, " has no prompt"));
    }
    // The choice moves them on to the place of the next token.
    positions.push_back(lengths_[s] - 1);
  }
  if (furthest_ > 0) {
    return absl::FailedPreconditionError("DecodeLoop: started twice");
  }
  furthest_ = *std::max_element(lengths_.begin(), lengths_.end());
  const int64_t step = 0;
  LAMINA_RETURN_IF_ERROR(
      Copy(At<int64_t>(step_offset_), &step, sizeof(step), stream_));
  LAMINA_RETURN_IF_ERROR(Copy(At<int32_t>(positions_offset_), positions.data(),
                              4 * options_.batch, stream_));
  if (!options_.choose) return absl::OkStatus();
  LAMINA_RETURN_IF_ERROR(EnqueueChoice(stream_));
  return NoteChoice();
}

ForwardOnDeviceArgs DecodeLoop::ForwardArgs(absl::Span<Event> events) const {
  return {.tokens = options_.batch,
          .ids = At<int64_t>(ids_offset_),
          .positions = At<int32_t>(positions_offset_),
          .max_position = bound_ - 1,
          .logits = logits(),
          .events = events};
}

absl::Status DecodeLoop::EnqueueForward(const Stream& stream,
                                        absl::Span<Event> events) {
  ForwardOnDeviceArgs args = ForwardArgs(events);
  if (options_.persistent && events.empty()) {
    if (!blocks_.has_value()) {
      LAMINA_ASSIGN_OR_RETURN(blocks_, model_->MakeChain(args, stream_));
    }
    args.blocks = &*blocks_;
  }
  return model_->ForwardOnDevice(args, stream);
}

absl::Status DecodeLoop::EnqueueAdvance(const Stream& stream) {
  return AdvanceTokens(
      {.ids = ids(),
       .positions = Vector(At<int32_t>(positions_offset_), options_.batch),
       .last_position = model_->max_positions() - 1,
       .history =
           Matrix(At<int64_t>(history_offset_), kHistory, options_.batch),
       .step = At<int64_t>(step_offset_)},
      stream);
}

absl::Status DecodeLoop::EnqueueChoice(const Stream& stream) {
  const ProfileRange range(stream, "choice");
  if (options_.sampling.temperature == 0) {
    LAMINA_RETURN_IF_ERROR(ReduceRows(
        {.x = logits(), .reduction = RowReduction::kArgMax, .y = ids()},
        stream));
  } else {
    LAMINA_RETURN_IF_ERROR(SampleTokens(
        {.logits = logits(),
         .positions =
             Vector(At<const int32_t>(positions_offset_), options_.batch),
         .sampling = options_.sampling,
         .tokens = ids()},
        stream));
  }
  return EnqueueAdvance(stream);
}

absl::Status DecodeLoop::EnqueueStep(const Stream& stream,
                                     absl::Span<Event> events) {
  LAMINA_RETURN_IF_ERROR(EnqueueForward(stream, events));
  return options_.choose ? EnqueueChoice(stream) : absl::OkStatus();
}

absl::Status DecodeLoop::NoteChoice() {
  Event& chosen = chosen_[static_cast<size_t>(choices_ % kHistory)];
  ++choices_;
  ready_ = true;
  return chosen.Record(stream_);
}

absl::Status DecodeLoop::Step(absl::Span<Event> events) {
  if (!ready_) {
    return absl::FailedPreconditionError("DecodeLoop: Step before a choice");
  }
  if (!has_room()) {
    return absl::OutOfRangeError(
        absl::StrCat("DecodeLoop: a sequence has all of its ",
                     model_->max_positions(), " positions"));
  }
  const ProfileRange range(stream_, "decoding step");
  const Stream stream = stream_.WithOverlap(options_.overlap);
  recorded_ = false;
  if (furthest_ >= bound_) {
    bound_ = PositionBound(furthest_, model_->max_positions());
    graph_.reset();
    blocks_.reset();
  } else if (options_.record && events.empty() && !graph_.has_value()) {
    // NOTE: only now: the step before ran these very kernels, so that none is
    // loaded while the stream is recorded.
    absl::StatusOr<Graph> graph = Graph::Capture(
        stream, [&] { return EnqueueStep(stream, /*events=*/{}); });
    if (!graph.ok()) return graph.status();
    graph_ = *std::move(graph);
  }
  if (graph_.has_value() && events.empty()) {
    LAMINA_RETURN_IF_ERROR(graph_->Launch(stream_));
    recorded_ = true;
  } else {
    LAMINA_RETURN_IF_ERROR(EnqueueStep(stream, events));
  }
  ++furthest_;
  ready_ = false;
  return options_.choose ? NoteChoice() : absl::OkStatus();
}

absl::Status DecodeLoop::ReadTokens(int64_t index, absl::Span<int32_t> tokens) {
  if (index < 0 || index >= choices_ || index < choices_ - kHistory) {
    return InvalidArgument(
        kOp, "index", index,
        absl::StrCat("in [", std::max<int64_t>(0, choices_ - kHistory), ", ",
                     choices_, ")"));
  }
  if (static_cast<int64_t>(tokens.size()) != options_.batch) {
    return InvalidArgument(kOp, "tokens", static_cast<int64_t>(tokens.size()),
                           absl::StrCat(options_.batch, " (batch)"));
  }
  const int64_t slot = index % kHistory;
  LAMINA_RETURN_IF_ERROR(chosen_[static_cast<size_t>(slot)].Wait());
  std::vector<int64_t> row(tokens.size());
  LAMINA_RETURN_IF_ERROR(
      Copy(row.data(), At<int64_t>(history_offset_) + slot * options_.batch,
           8 * options_.batch, reader_ ? reader_->stream() : stream_));
  std::transform(row.begin(), row.end(), tokens.begin(),
                 [](int64_t id) { return static_cast<int32_t>(id); });
  return absl::OkStatus();
}

absl::Status DecodeLoop::ReadLogits(absl::Span<float> logits) {
  const int64_t count = options_.batch * model_->config().vocab_size;
  if (static_cast<int64_t>(logits.size()) != count) {
    return InvalidArgument(kOp, "logits", static_cast<int64_t>(logits.size()),
                           absl::StrCat(count, " (batch, vocab_size)"));
  }
  return Copy(logits.data(), this->logits().data, 4 * count, stream_);
}

absl::Status DecodeLoop::Choose(absl::Span<const int32_t> tokens) {
  if (options_.choose) {
    return absl::FailedPreconditionError("DecodeLoop: the device chooses");
  }
  if (static_cast<int64_t>(tokens.size()) != options_.batch) {
    return InvalidArgument(kOp, "tokens", static_cast<int64_t>(tokens.size()),
                           absl::StrCat(options_.batch, " (batch)"));
  }
  for (const int32_t token : tokens) {
    if (token < 0 || token >= model_->config().vocab_size) {
      return InvalidArgument(
          kOp, "tokens", int64_t{token},
          absl::StrCat("in [0, ", model_->config().vocab_size, ")"));
    }
  }
  if (furthest_ == 0 || ready_) {
    return absl::FailedPreconditionError(
        "DecodeLoop: Choose before Start, or twice");
  }
  const std::vector<int64_t> wide(tokens.begin(), tokens.end());
  LAMINA_RETURN_IF_ERROR(
      Copy(At<int64_t>(ids_offset_), wide.data(), 8 * options_.batch, stream_));
  LAMINA_RETURN_IF_ERROR(EnqueueAdvance(stream_));
  return NoteChoice();
}

}  // namespace lamina
