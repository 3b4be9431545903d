#pragma once

// What a decoder needs to know of a Llama-type model, whichever file it comes
// from.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "lamina/attention/rope.h"
#include "lamina/core/gate.h"

namespace lamina {

struct ModelConfig {
  std::string architecture{};  // "llama" or "mistral"
  std::string name{};          // as the file calls it; may be empty
  int64_t hidden_dim = 0;
  int64_t num_layers = 0;
  int64_t num_heads = 0;
  int64_t num_kv_heads = 0;  // divides num_heads
  int64_t head_dim = 0;
  int64_t ffn_dim = 0;
  int64_t vocab_size = 0;
  int64_t max_positions = 0;
  float epsilon = 0;  // of every RMS norm
  ActivationKind activation = ActivationKind::kSilu;
  // The file has no lm_head.weight: the output matrix is the embedding.
  bool tied_embeddings = false;

  // theta, rotary_dim and, where the model has it, Llama-3 scaling.
  RopeFrequencies rope{};
  // NOTE: the rows of q_proj and k_proj stand in the order that goes with this
  // pairing (GGUF files of Llama models: adjacent, Hugging Face: half split).
  RopePairing rope_pairing = RopePairing::kHalfSplit;

  std::optional<int32_t> bos_id{};
  std::vector<int32_t> eos_ids{};  // any of them ends the text
  std::optional<int32_t> pad_id{};

  int64_t q_dim() const { return num_heads * head_dim; }
  int64_t kv_dim() const { return num_kv_heads * head_dim; }
  // Matrices, norms and embeddings, the tied one counted once.
  int64_t num_parameters() const;
};

// InvalidArgument "config: FIELD: given …, want …" unless every size is
// positive and below its bound, heads divide, epsilon and theta are finite and
// positive, rotary_dim == head_dim is even, and token ids are in the
// vocabulary.
[[nodiscard]] absl::Status CheckConfig(const ModelConfig& config);

// One tensor that a model of this configuration consists of.
struct ExpectedTensor {
  std::string name;            // canonical, see checkpoint.h
  std::vector<int64_t> shape;  // [out, in] of a matrix, [hidden] of a norm
  bool is_linear = false;      // a projection: what FP8 checkpoints quantise
};
// All of them, in the order in which a decoder uses them. The config has
// passed CheckConfig.
std::vector<ExpectedTensor> ExpectedTensors(const ModelConfig& config);

// The row of an adjacent-pair Q or K matrix that holds row `row` of the
// half-split one, heads being `head_dim` rows each. To turn GGUF's order into
// Hugging Face's: hf.row(r) = gguf.row(AdjacentRow(r, head_dim)).
constexpr int64_t AdjacentRow(int64_t row, int64_t head_dim) {
  const int64_t head = row / head_dim;
  const int64_t i = row % head_dim;
  const int64_t half = head_dim / 2;
  return head * head_dim + (i < half ? 2 * i : 2 * (i - half) + 1);
}

}  // namespace lamina
