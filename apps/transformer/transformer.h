#pragma once

// A whole Llama-type model on a device: embedding, decoder blocks, final norm,
// output projection; with a KV cache of fixed capacity for some sequences.
//
//   LAMINA_ASSIGN_OR_RETURN(Checkpoint file, Checkpoint::Open(path));
//   LAMINA_ASSIGN_OR_RETURN(Transformer model,
//                           Transformer::Load(file, options, stream));
//   absl::Status status = model.Forward(
//       {.tokens = ids,
//        .positions = positions,
//        .logits = Matrix(logits.data(), 1, model.config().vocab_size)},
//       stream);

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "lamina/core/buffer.h"
#include "lamina/decoder_block/decoder_block.h"
#include "lamina/model/checkpoint.h"

namespace lamina {

struct TransformerOptions {
  // Of the projections and the output matrix: kBF16 or kF8E4M3Fn (a scale an
  // output channel). Absent: FP8 for an FP8 checkpoint, else bf16. The
  // embedding, which is only looked up, is bf16.
  std::optional<DType> weight_type = std::nullopt;
  // FP8 weights of an FP8 checkpoint: quantise the projections' inputs as the
  // checkpoint says. Weights made FP8 here leave the inputs as they are.
  bool honour_input_quantization = true;
  DType kv_type = DType::kBF16;  // kBF16, kF8E4M3Fn, …
  int64_t sequences = 1;
  int64_t max_positions = 0;  // capacity of each sequence; 0: the model's
  int64_t max_tokens = 512;   // most rows of one Forward
  int64_t max_logits = 1;     // most rows of logits of one Forward
  // Called with the fraction done while the weights are read.
  std::function<void(double)> progress = {};
};

// Bytes on the device.
struct TransformerMemory {
  int64_t weights = 0;
  int64_t kv = 0;
  int64_t workspace = 0;
};

struct ForwardArgs {
  absl::Span<const int32_t> tokens;
  // Which sequence each token belongs to; empty: all to sequence 0.
  absl::Span<const int32_t> sequence_ids = {};
  absl::Span<const int32_t> positions;
  // [n, vocab_size] f32: the logits of the last n tokens; optional.
  MatrixView logits = {};
  // Empty, or Transformer::num_events() events.
  absl::Span<Event> events = {};
  // For calibration: DecoderBlockArgs::observe_input, with the layer.
  std::function<void(int64_t, BlockStage, const ConstMatrixView&)>
      observe_input = {};
};

class Transformer {
 public:
  static absl::StatusOr<Transformer> Load(const Checkpoint& checkpoint,
                                          const TransformerOptions& options,
                                          Stream stream);

  // Appends the tokens to the caches and computes logits. InvalidArgument for
  // ids outside the vocabulary, positions outside the capacity, too many rows.
  [[nodiscard]] absl::Status Forward(const ForwardArgs& args, Stream stream);

  const ModelConfig& config() const { return config_; }
  const DecoderBlock& block() const { return *block_; }
  TransformerMemory memory() const { return memory_; }
  int64_t max_positions() const { return max_positions_; }
  int64_t max_tokens() const { return max_tokens_; }

  // Events of layer l start at l * (kNumBlockStages + 1); the last two are
  // around the final norm and output projection.
  int64_t num_events() const {
    return config_.num_layers * (kNumBlockStages + 1) + 2;
  }
  // Bytes that one Forward of `tokens` decoded tokens must at least read:
  // every weight once and the caches.
  int64_t DecodeBytes(int64_t tokens, int64_t context) const;

  // The weights and cache of one layer, for benchmarks.
  const DecoderBlockWeights& layer(int64_t index) const {
    return layers_[static_cast<size_t>(index)];
  }
  KvCacheView layer_cache(int64_t index) const;
  ConstMatrixView rope_table() const { return rope_table_view_; }

 private:
  class Loader;

  Transformer() = default;
  absl::Status AllocateState(const TransformerOptions& options, Stream stream);
  absl::Status CheckForward(const ForwardArgs& args) const;
  void Embed(absl::Span<const int32_t> tokens, MatrixView out,
             const Stream& stream) const;

  ModelConfig config_;
  std::optional<DecoderBlock> block_;
  std::vector<DecoderBlockWeights> layers_;
  ConstMatrixView embedding_;
  ConstVectorView final_norm_;
  LinearWeights output_;
  Buffer weights_, cache_, rope_table_, state_;
  ConstMatrixView rope_table_view_;
  KvCacheView cache_view_;  // layer 0's
  int64_t cache_layer_bytes_ = 0;
  // Offsets into state_.
  int64_t residual_offset_ = 0, delta_offset_ = 0, normed_offset_ = 0;
  int64_t block_workspace_offset_ = 0, output_workspace_offset_ = 0;
  int64_t output_workspace_bytes_ = 0;
  int64_t max_positions_ = 0, max_tokens_ = 0, max_logits_ = 0;
  TransformerMemory memory_;
};

}  // namespace lamina
