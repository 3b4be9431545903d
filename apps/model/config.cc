#include "lamina/model/config.h"

#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lamina/core/status.h"

namespace lamina {
namespace {

// Far above any model, far below what overflows: the product of three sizes
// fits 63 bits.
constexpr int64_t kMaxDim = int64_t{1} << 20;
constexpr int64_t kMaxLayers = 4096;
constexpr int64_t kMaxVocab = int64_t{1} << 24;
constexpr int64_t kMaxPositions = int64_t{1} << 28;

absl::Status Given(const char* field, const std::string& given,
                   const std::string& want) {
  return InvalidArgument("config", field, given, want);
}

absl::Status CheckSize(const char* field, int64_t given, int64_t max) {
  if (given >= 1 && given <= max) return absl::OkStatus();
  return Given(field, absl::StrCat(given), absl::StrCat("1 to ", max));
}

absl::Status CheckPositive(const char* field, double given) {
  if (std::isfinite(given) && given > 0) return absl::OkStatus();
  return Given(field, absl::StrCat(given), "a finite number above 0");
}

absl::Status CheckToken(const char* field, int32_t given, int64_t vocab) {
  if (given >= 0 && given < vocab) return absl::OkStatus();
  return Given(field, absl::StrCat(given),
               absl::StrCat("0 to ", vocab - 1, " (vocab_size)"));
}

}  // namespace

int64_t ModelConfig::num_parameters() const {
  int64_t count = 0;
  for (const ExpectedTensor& tensor : ExpectedTensors(*this)) {
    int64_t size = 1;
    for (const int64_t dim : tensor.shape) size *= dim;
    count += size;
  }
  return count;
}

absl::Status CheckConfig(const ModelConfig& config) {
  LAMINA_RETURN_IF_ERROR(CheckSize("hidden_dim", config.hidden_dim, kMaxDim));
  LAMINA_RETURN_IF_ERROR(
      CheckSize("num_layers", config.num_layers, kMaxLayers));
  LAMINA_RETURN_IF_ERROR(CheckSize("num_heads", config.num_heads, kMaxDim));
  LAMINA_RETURN_IF_ERROR(
      CheckSize("num_kv_heads", config.num_kv_heads, config.num_heads));
  if (config.num_heads % config.num_kv_heads != 0) {
    return Given(
        "num_kv_heads", absl::StrCat(config.num_kv_heads),
        absl::StrCat("a divisor of ", config.num_heads, " (num_heads)"));
  }
  LAMINA_RETURN_IF_ERROR(CheckSize("head_dim", config.head_dim, kMaxDim));
  LAMINA_RETURN_IF_ERROR(
      CheckSize("num_heads * head_dim", config.q_dim(), kMaxDim));
  LAMINA_RETURN_IF_ERROR(CheckSize("ffn_dim", config.ffn_dim, kMaxDim));
  LAMINA_RETURN_IF_ERROR(CheckSize("vocab_size", config.vocab_size, kMaxVocab));
  LAMINA_RETURN_IF_ERROR(
      CheckSize("max_positions", config.max_positions, kMaxPositions));
  LAMINA_RETURN_IF_ERROR(CheckPositive("epsilon", config.epsilon));

  const RopeFrequencies& rope = config.rope;
  if (rope.rotary_dim != config.head_dim || rope.rotary_dim % 2 != 0) {
    return Given("rope.rotary_dim", absl::StrCat(rope.rotary_dim),
                 absl::StrCat("even, and ", config.head_dim, " (head_dim)"));
  }
  LAMINA_RETURN_IF_ERROR(CheckPositive("rope.theta", rope.theta));
  LAMINA_RETURN_IF_ERROR(CheckPositive("rope.factor", rope.factor));
  if (rope.factor != 1.0) {
    LAMINA_RETURN_IF_ERROR(
        CheckPositive("rope.low_freq_factor", rope.low_freq_factor));
    LAMINA_RETURN_IF_ERROR(
        CheckPositive("rope.high_freq_factor", rope.high_freq_factor));
    LAMINA_RETURN_IF_ERROR(CheckPositive("rope.original_max_position",
                                         rope.original_max_position));
    if (rope.high_freq_factor <= rope.low_freq_factor) {
      return Given(
          "rope.high_freq_factor", absl::StrCat(rope.high_freq_factor),
          absl::StrCat("above ", rope.low_freq_factor, " (low_freq_factor)"));
    }
  }

  if (config.bos_id) {
    LAMINA_RETURN_IF_ERROR(
        CheckToken("bos_id", *config.bos_id, config.vocab_size));
  }
  for (const int32_t id : config.eos_ids) {
    LAMINA_RETURN_IF_ERROR(CheckToken("eos_ids", id, config.vocab_size));
  }
  if (config.pad_id) {
    LAMINA_RETURN_IF_ERROR(
        CheckToken("pad_id", *config.pad_id, config.vocab_size));
  }
  return absl::OkStatus();
}

std::vector<ExpectedTensor> ExpectedTensors(const ModelConfig& config) {
  const int64_t hidden = config.hidden_dim;
  std::vector<ExpectedTensor> tensors;
  const auto add = [&](std::string name, std::vector<int64_t> shape,
                       bool is_linear) {
    tensors.push_back({std::move(name), std::move(shape), is_linear});
  };
  add("model.embed_tokens.weight", {config.vocab_size, hidden}, false);
  for (int64_t layer = 0; layer < config.num_layers; ++layer) {
    const std::string prefix = absl::StrCat("model.layers.", layer, ".");
    const auto linear = [&](const char* name, int64_t out, int64_t in) {
      add(absl::StrCat(prefix, name, ".weight"), {out, in}, true);
    };
    add(absl::StrCat(prefix, "input_layernorm.weight"), {hidden}, false);
    linear("self_attn.q_proj", config.q_dim(), hidden);
    linear("self_attn.k_proj", config.kv_dim(), hidden);
    linear("self_attn.v_proj", config.kv_dim(), hidden);
    linear("self_attn.o_proj", hidden, config.q_dim());
    add(absl::StrCat(prefix, "post_attention_layernorm.weight"), {hidden},
        false);
    linear("mlp.gate_proj", config.ffn_dim, hidden);
    linear("mlp.up_proj", config.ffn_dim, hidden);
    linear("mlp.down_proj", hidden, config.ffn_dim);
  }
  add("model.norm.weight", {hidden}, false);
  if (!config.tied_embeddings) {
    add("lm_head.weight", {config.vocab_size, hidden}, false);
  }
  return tensors;
}

}  // namespace lamina
