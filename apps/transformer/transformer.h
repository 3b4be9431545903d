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
//
// On a GPU weights, caches and logits are the device's memory: logits come from
// a Buffer, and what the host wants of them is copied (core/copy.h). To decode
// with one graph launch a token: decode_loop.h.

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
#include "lamina/persistent/persistent_chain.h"
#include "lamina/transformer/weights.h"

namespace lamina {

struct TransformerOptions {
  // Of the projections and the output matrix: kBF16 or kF8E4M3Fn (a scale an
  // output channel). Absent: FP8 for an FP8 checkpoint, else bf16. The
  // embedding, which is only looked up, is bf16.
  std::optional<DType> weight_type = std::nullopt;
  // FP8 weights of an FP8 checkpoint: quantise the projections' inputs as the
  // checkpoint says. Weights made FP8 here leave the inputs as they are.
  bool honour_input_quantization = true;
  // Between the stages. Absent: f32 on the CPU, bf16 on a GPU, whose tensor
  // cores want it.
  std::optional<DType> activation_type = std::nullopt;
  BlockFusion fusion = {};
  DType kv_type = DType::kBF16;  // kBF16, kF8E4M3Fn, …
  int64_t sequences = 1;
  int64_t max_positions = 0;  // capacity of each sequence; 0: the model's
  int64_t max_tokens = 512;   // most rows of one Forward
  int64_t max_logits = 1;     // most rows of logits of one Forward
  // For SkinnyGemm on a GPU, both optional: a library for prompts, whose bits
  // then depend on how they are cut, and measured plans. They outlive the
  // model.
  PrefillGemm* prefill = nullptr;
  const GemmTuning* tuning = nullptr;
  // Called with the fraction done while the weights are read.
  std::function<void(double)> progress = {};
};

// Bytes on the device.
struct TransformerMemory {
  int64_t weights = 0;
  int64_t kv = 0;
  int64_t workspace = 0;
  int64_t total() const { return weights + kv + workspace; }
};

struct ForwardArgs {
  absl::Span<const int32_t> tokens;
  // Which sequence each token belongs to; empty: all to sequence 0.
  absl::Span<const int32_t> sequence_ids = {};
  absl::Span<const int32_t> positions;
  // [n, vocab_size] f32, the device's: the logits of the last n tokens;
  // optional.
  MatrixView logits = {};
  // Empty, or Transformer::num_events() events.
  absl::Span<Event> events = {};
  // For calibration: DecoderBlockArgs::observe_input, with the layer.
  std::function<void(int64_t, BlockStage, const ConstMatrixView&)>
      observe_input = {};
};

// The same with the tokens on the device, where nobody checks their values:
// what a recorded step runs.
struct ForwardOnDeviceArgs {
  int64_t tokens = 0;
  const int64_t* ids = nullptr;           // [tokens]
  const int32_t* sequence_ids = nullptr;  // [tokens]; null: token t, sequence t
  const int32_t* positions = nullptr;     // [tokens]
  int64_t max_position = 0;               // no position is larger
  MatrixView logits = {};
  // MakeChain's for the same arguments: it runs the blocks, without events.
  const PersistentChain* blocks = nullptr;
  absl::Span<Event> events = {};
  std::function<void(int64_t, BlockStage, const ConstMatrixView&)>
      observe_input = {};
};

class Transformer {
 public:
  // ResourceExhausted, before anything is read, when the device has less memory
  // free than weights, caches and workspace need.
  static absl::StatusOr<Transformer> Load(const Checkpoint& checkpoint,
                                          const TransformerOptions& options,
                                          Stream stream);
  // A model of random weights, for benchmarks. `inputs`: as quantised inputs
  // would be by a checkpoint.
  static absl::StatusOr<Transformer> Random(const ModelConfig& config,
                                            const TransformerOptions& options,
                                            InputQuantization inputs,
                                            uint64_t seed, Stream stream);

  // Appends the tokens to the caches and computes logits. InvalidArgument for
  // ids outside the vocabulary, positions outside the capacity, too many rows.
  [[nodiscard]] absl::Status Forward(const ForwardArgs& args, Stream stream);
  [[nodiscard]] absl::Status ForwardOnDevice(const ForwardOnDeviceArgs& args,
                                             Stream stream);

  // All blocks as one kernel, with the bits of ForwardOnDevice. Unimplemented
  // where PersistentChain does not take them.
  absl::StatusOr<PersistentChain> MakeChain(const ForwardOnDeviceArgs& args,
                                            Stream stream);

  const ModelConfig& config() const { return config_; }
  const DecoderBlock& block() const { return *block_; }
  TransformerMemory memory() const { return memory_; }
  int64_t max_positions() const { return max_positions_; }
  int64_t max_tokens() const { return max_tokens_; }
  int64_t max_logits() const { return max_logits_; }
  int64_t sequences() const { return cache_view_.num_pages; }

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
    return weights_.layers[static_cast<size_t>(index)];
  }
  KvCacheView layer_cache(int64_t index) const;
  ConstMatrixView rope_table() const { return rope_table_view_; }

 private:
  Transformer() = default;
  // Everything but the weights: plans, checks the memory, then `make_weights`,
  // then the rest is allocated.
  static absl::StatusOr<Transformer> Make(
      const ModelConfig& config, const TransformerOptions& options,
      InputQuantization inputs, DType weight_type,
      const std::function<absl::StatusOr<transformer_internal::ModelWeights>(
          const transformer_internal::WeightsPlan&)>& make_weights,
      Stream stream);
  absl::Status PlanState(const TransformerOptions& options, DType weight_type,
                         const Stream& stream);
  absl::Status CheckMemory(Device device) const;
  absl::Status AllocateState(const Stream& stream);
  absl::Status CheckSizes(int64_t tokens, const MatrixView& logits,
                          absl::Span<Event> events) const;
  absl::Status CheckForward(const ForwardArgs& args) const;
  absl::Status RunBlocks(const ForwardOnDeviceArgs& args, MatrixView residual,
                         MatrixView delta, const Stream& stream);
  absl::Status ComputeLogits(MatrixView residual, MatrixView delta,
                             MatrixView logits, const Stream& stream);
  MatrixView State(int64_t offset, int64_t rows) const;

  ModelConfig config_;
  std::optional<DecoderBlock> block_;
  transformer_internal::ModelWeights weights_;
  Buffer cache_, rope_table_, state_;
  ConstMatrixView rope_table_view_;
  KvCacheView cache_view_;  // layer 0's
  int64_t cache_layer_bytes_ = 0;
  // Offsets into state_.
  int64_t residual_offset_ = 0, delta_offset_ = 0, normed_offset_ = 0;
  int64_t block_workspace_offset_ = 0, output_workspace_offset_ = 0;
  int64_t ids_offset_ = 0, sequence_ids_offset_ = 0, positions_offset_ = 0;
  int64_t state_bytes_ = 0, output_workspace_bytes_ = 0;
  int64_t max_positions_ = 0, max_tokens_ = 0, max_logits_ = 0;
  TransformerMemory memory_;
  PrefillGemm* prefill_ = nullptr;
  const GemmTuning* tuning_ = nullptr;
};

}  // namespace lamina
