#pragma once

// Decodes some sequences at once, their tokens, positions and logits staying on
// the device: on a GPU a step, from the embedding of the last tokens to the
// choice of the next, is one launch of a recorded graph.
//
//   LAMINA_ASSIGN_OR_RETURN(DecodeLoop loop,
//                           DecodeLoop::Create(model, {.batch = 1}, stream));
//   LAMINA_RETURN_IF_ERROR(loop.Prefill(0, prompt));
//   LAMINA_RETURN_IF_ERROR(loop.Start());
//   for (int64_t step = 0; step < 100; ++step) {
//     LAMINA_RETURN_IF_ERROR(loop.Step());  // enqueued: runs ahead
//     LAMINA_RETURN_IF_ERROR(loop.ReadTokens(step, absl::MakeSpan(tokens)));
//   }
//
// Choice 0 is Start's, from the logits of the prompt; choice i + 1 is made by
// the i-th Step. The device chooses as DecodeLoopOptions::sampling says
// (SampleTokens; at temperature 0 ReduceRows' kArgMax, which is the same): the
// sequence's number is its place in the batch, the position that of the token
// before the one that is chosen. Or it leaves that to the caller: ReadLogits,
// then Choose, before every Step.
//
// The tokens of a sequence depend neither on the others nor on their number,
// but on matrix units: there a batch of another band (SkinnyGemm: up to 8, 16,
// 32, 64 rows) adds in another order, so that logits differ by some 2^-18 of
// their size and a near-tie may go the other way. Repeated, a run gives the
// same bits.
//
// The recording holds for positions below a bound, some way ahead; the first
// step past it runs unrecorded, and the next ones of a new recording. Results
// do not depend on that. The model, whose caches are used, must outlive the
// loop and serve nothing else meanwhile.

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "lamina/core/buffer.h"
#include "lamina/core/event.h"
#include "lamina/core/graph.h"
#include "lamina/core/stream.h"
#include "lamina/core/views.h"
#include "lamina/tokens/sample_tokens.h"
#include "lamina/transformer/transformer.h"

namespace lamina {

struct DecodeLoopOptions {
  int64_t batch = 1;   // sequences 0 … batch - 1 of the model's caches
  bool choose = true;  // the device does; else the caller
  Sampling sampling = {};
  // On a GPU: record steps. Not on the vendor's default stream.
  bool record = true;
  bool overlap = true;  // on a GPU: kernels start early (Stream::WithOverlap)
  // All blocks of a step as one kernel (PersistentChain); Unimplemented where
  // there is none. Results have the same bits.
  bool persistent = false;
};

// One past the positions that a recording for `position` serves, at most
// `capacity`: the next multiple of a quarter of its power of two, of 1024 at
// least: recordings are few, and grids not much too large.
int64_t PositionBound(int64_t position, int64_t capacity);

class DecodeLoop {
 public:
  // How many choices back ReadTokens can read.
  static constexpr int64_t kHistory = 64;

  // InvalidArgument when the model's caches, tokens or logits do not hold
  // `batch`.
  static absl::StatusOr<DecodeLoop> Create(Transformer& model,
                                           const DecodeLoopOptions& options,
                                           Stream stream);

  // Appends tokens to a sequence, Transformer::max_tokens() at a time, and
  // computes the logits of the last one. Before Start; lengths may differ.
  // `observe`, if any, is called after each part with its events.
  absl::Status Prefill(int64_t sequence, absl::Span<const int32_t> tokens,
                       absl::Span<Event> events = {},
                       const std::function<absl::Status()>& observe = {});

  // For benchmarks, instead: the sequence has `length` tokens, whose keys and
  // values are what is in the cache, and logits of 0.
  absl::Status Assume(int64_t sequence, int64_t length);

  // Every sequence has its prompt. Enqueues choice 0, where the device chooses.
  absl::Status Start();
  // Enqueues one step. OutOfRange when a sequence is full.
  absl::Status Step(absl::Span<Event> events = {});
  // Whether there is room for another step.
  bool has_room() const { return furthest_ < model_->max_positions(); }

  // Choices made so far.
  int64_t choices() const { return choices_; }
  // Choice `index` of every sequence; waits until it is made, not for steps
  // behind it.
  absl::Status ReadTokens(int64_t index, absl::Span<int32_t> tokens);

  // The logits [batch, vocab_size] of the last step or of the prompts, on the
  // device; and a copy on the host, when they are there.
  MatrixView logits() const;
  absl::Status ReadLogits(absl::Span<float> logits);
  // The caller's choice, where the device does not choose.
  absl::Status Choose(absl::Span<const int32_t> tokens);

  // Whether the last step was a launch of a recording.
  bool recorded() const { return recorded_; }

 private:
  DecodeLoop(Transformer& model, const DecodeLoopOptions& options,
             Stream stream)
      : model_(&model), options_(options), stream_(stream) {}

  absl::Status Allocate();
  ForwardOnDeviceArgs ForwardArgs(absl::Span<Event> events) const;
  absl::Status EnqueueForward(const Stream& stream, absl::Span<Event> events);
  absl::Status EnqueueAdvance(const Stream& stream);
  absl::Status EnqueueChoice(const Stream& stream);
  absl::Status EnqueueStep(const Stream& stream, absl::Span<Event> events);
  // What every choice ends with.
  absl::Status NoteChoice();

  template <class T>
  T* At(int64_t offset) const {
    return reinterpret_cast<T*>(memory_.as<uint8_t>() + offset);
  }
  VectorView ids() const {
    return Vector(At<int64_t>(ids_offset_), options_.batch);
  }

  Transformer* model_;
  DecodeLoopOptions options_;
  Stream stream_;
  std::optional<OwnedStream> reader_;  // copies choices meanwhile
  Buffer memory_;
  int64_t ids_offset_ = 0, positions_offset_ = 0, step_offset_ = 0;
  int64_t history_offset_ = 0, logits_offset_ = 0;
  std::array<Event, kHistory> chosen_;  // by choice
  std::optional<Graph> graph_;
  std::optional<PersistentChain> blocks_;
  int64_t bound_ = 0;  // of the positions that graph_ and blocks_ serve
  bool recorded_ = false;
  std::vector<int32_t> lengths_;  // of the prompts
  int64_t furthest_ = 0;          // the next position of the longest sequence
  int64_t choices_ = 0;
  bool ready_ = false;  // the tokens of the next step are chosen
};

}  // namespace lamina
