// From a GGUF container to a checkpoint: the keys and tensor names that
// llama.cpp's converter writes for Llama models.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "lamina/core/status.h"
#include "lamina/model/checkpoint_contents.h"
#include "lamina/model/dequantize.h"
#include "lamina/model/file_error.h"
#include "lamina/model/gguf.h"

namespace lamina::model_internal {
namespace {

absl::string_view Absl(std::string_view text) {
  return {text.data(), text.size()};
}

struct NamePair {
  std::string_view gguf;
  std::string_view canonical;
};
constexpr NamePair kNames[] = {
    {"token_embd.weight", "model.embed_tokens.weight"},
    {"output_norm.weight", "model.norm.weight"},
    {"output.weight", "lm_head.weight"},
};
constexpr NamePair kLayerNames[] = {
    {"attn_norm.weight", "input_layernorm.weight"},
    {"attn_q.weight", "self_attn.q_proj.weight"},
    {"attn_k.weight", "self_attn.k_proj.weight"},
    {"attn_v.weight", "self_attn.v_proj.weight"},
    {"attn_output.weight", "self_attn.o_proj.weight"},
    {"ffn_norm.weight", "post_attention_layernorm.weight"},
    {"ffn_gate.weight", "mlp.gate_proj.weight"},
    {"ffn_up.weight", "mlp.up_proj.weight"},
    {"ffn_down.weight", "mlp.down_proj.weight"},
};

// The name itself when a Llama model has no such tensor.
std::string CanonicalName(std::string_view name) {
  for (const NamePair& pair : kNames) {
    if (name == pair.gguf) return std::string(pair.canonical);
  }
  constexpr std::string_view kPrefix = "blk.";
  if (name.substr(0, kPrefix.size()) == kPrefix) {
    const std::string_view rest = name.substr(kPrefix.size());
    const size_t dot = rest.find('.');
    const std::string_view number = rest.substr(0, dot);
    int32_t layer = -1;
    // The number as it is written by StrCat, so that two names never meet.
    if (dot != std::string_view::npos &&
        absl::SimpleAtoi(Absl(number), &layer) && layer >= 0 &&
        absl::StrCat(layer) == Absl(number)) {
      for (const NamePair& pair : kLayerNames) {
        if (rest.substr(dot + 1) == pair.gguf) {
          return absl::StrCat("model.layers.", layer, ".",
                              Absl(pair.canonical));
        }
      }
    }
  }
  return std::string(name);
}

bool Ignorable(std::string_view name) { return name == "rope_freqs.weight"; }

// The divisor of frequency i of `pairs` under Llama-3 scaling.
double RopeDivisor(const RopeFrequencies& rope, int64_t i) {
  constexpr double kPi = 3.14159265358979323846;
  const double frequency =
      std::pow(rope.theta, -2.0 * static_cast<double>(i) /
                               static_cast<double>(rope.rotary_dim));
  const double turns = rope.original_max_position * frequency / (2 * kPi);
  if (turns > rope.high_freq_factor) return 1.0;
  if (turns < rope.low_freq_factor) return rope.factor;
  const double smooth = (turns - rope.low_freq_factor) /
                        (rope.high_freq_factor - rope.low_freq_factor);
  return 1.0 / ((1.0 - smooth) / rope.factor + smooth);
}

// GGUF has Llama-3 scaling as a tensor of divisors, without the parameters
// that made it. Those of all Llama 3 models but the factor are the same; the
// factor is the largest divisor. Checked, not assumed.
absl::Status ReadRopeFactors(const GgufFile& gguf, RopeFrequencies& rope) {
  const auto found = std::find_if(
      gguf.tensors().begin(), gguf.tensors().end(),
      [](const GgufTensor& t) { return t.name == "rope_freqs.weight"; });
  if (found == gguf.tensors().end()) return absl::OkStatus();
  const std::string& file = gguf.file().path();
  const int64_t pairs = rope.rotary_dim / 2;
  if (found->type != StorageType::kF32 || found->shape.size() != 1 ||
      found->shape[0] != pairs) {
    return BadFile(
        file, found->entry,
        absl::StrCat("tensor \"rope_freqs.weight\": ", Name(found->type), " ",
                     ShapeText(found->shape.data(), found->shape.size()),
                     ", want f32 [", pairs, "]"));
  }
  std::vector<float> divisors(static_cast<size_t>(pairs));
  for (int64_t i = 0; i < pairs; i += kDequantizeChunk) {
    DequantizeChunk(StorageType::kF32, found->data + 4 * i,
                    std::min(kDequantizeChunk, pairs - i), divisors.data() + i);
  }
  RopeFrequencies scaled = rope;
  scaled.factor = *std::max_element(divisors.begin(), divisors.end());
  scaled.low_freq_factor = 1.0;
  scaled.high_freq_factor = 4.0;
  scaled.original_max_position = 8192;
  for (int64_t i = 0; i < pairs; ++i) {
    const double want = RopeDivisor(scaled, i);
    const double given = divisors[static_cast<size_t>(i)];
    if (!(std::fabs(given - want) <= 1e-4 * want)) {
      return NotSupported(
          file, absl::StrCat("byte ", found->entry,
                             ": tensor \"rope_freqs.weight\": frequency ", i,
                             " is divided by ", given, ", Llama-3 scaling has ",
                             want));
    }
  }
  rope = scaled;
  return absl::OkStatus();
}

// Keys of one architecture: "llama." + name.
class Keys {
 public:
  Keys(const GgufFile& gguf, std::string architecture)
      : gguf_(gguf), architecture_(std::move(architecture)) {}

  std::string Key(const char* name) const {
    return absl::StrCat(architecture_, ".", name);
  }
  absl::StatusOr<std::optional<int64_t>> Integer(const char* name) const {
    return gguf_.Integer(Key(name));
  }
  absl::StatusOr<std::optional<double>> Real(const char* name) const {
    return gguf_.Real(Key(name));
  }
  absl::StatusOr<int64_t> RequiredInteger(const char* name) const {
    LAMINA_ASSIGN_OR_RETURN(const std::optional<int64_t> value, Integer(name));
    if (value) return *value;
    return Missing(name);
  }
  absl::Status Missing(const char* name) const {
    return BadFile(gguf_.file().path(),
                   absl::StrCat("key ", Quoted(Key(name)), ": missing"));
  }
  absl::Status Unsupported(const char* name, const std::string& given,
                           const char* want) const {
    return NotSupported(gguf_.file().path(),
                        absl::StrCat("key ", Quoted(Key(name)), ": given ",
                                     given, ", supported: ", want));
  }

 private:
  const GgufFile& gguf_;
  std::string architecture_;
};

absl::Status ReadRope(const GgufFile& gguf, const Keys& keys,
                      ModelConfig& config) {
  RopeFrequencies& rope = config.rope;
  LAMINA_ASSIGN_OR_RETURN(const auto theta, keys.Real("rope.freq_base"));
  rope.theta = theta.value_or(10000.0);
  LAMINA_ASSIGN_OR_RETURN(const auto dims,
                          keys.Integer("rope.dimension_count"));
  rope.rotary_dim = dims.value_or(config.head_dim);
  LAMINA_ASSIGN_OR_RETURN(const auto scaling,
                          gguf.String(keys.Key("rope.scaling.type")));
  if (scaling && *scaling != "none") {
    return keys.Unsupported("rope.scaling.type", Quoted(*scaling), "none");
  }
  for (const char* name : {"rope.scale_linear", "rope.scaling.factor"}) {
    LAMINA_ASSIGN_OR_RETURN(const auto factor, keys.Real(name));
    if (factor && *factor != 1.0) {
      return keys.Unsupported(name, absl::StrCat(*factor), "1");
    }
  }
  config.rope_pairing = RopePairing::kAdjacent;
  return absl::OkStatus();
}

absl::StatusOr<ModelConfig> ReadConfig(const GgufFile& gguf) {
  const std::string& file = gguf.file().path();
  LAMINA_ASSIGN_OR_RETURN(const auto architecture,
                          gguf.String("general.architecture"));
  if (!architecture) {
    return BadFile(file, "key \"general.architecture\": missing");
  }
  if (*architecture != "llama") {
    return NotSupported(file,
                        absl::StrCat("architecture ", Quoted(*architecture),
                                     ", supported: llama"));
  }
  LAMINA_ASSIGN_OR_RETURN(const auto splits, gguf.Integer("split.count"));
  if (splits && *splits > 1) {
    return NotSupported(
        file, absl::StrCat("one of ", *splits, " parts; merge them first"));
  }
  const Keys keys(gguf, "llama");
  LAMINA_ASSIGN_OR_RETURN(const auto experts, keys.Integer("expert_count"));
  if (experts && *experts != 0) {
    return keys.Unsupported("expert_count", absl::StrCat(*experts), "0");
  }

  ModelConfig config;
  config.architecture = "llama";
  LAMINA_ASSIGN_OR_RETURN(const auto name, gguf.String("general.name"));
  config.name = std::string(name.value_or(""));
  LAMINA_ASSIGN_OR_RETURN(config.num_layers,
                          keys.RequiredInteger("block_count"));
  LAMINA_ASSIGN_OR_RETURN(config.hidden_dim,
                          keys.RequiredInteger("embedding_length"));
  LAMINA_ASSIGN_OR_RETURN(config.ffn_dim,
                          keys.RequiredInteger("feed_forward_length"));
  LAMINA_ASSIGN_OR_RETURN(config.num_heads,
                          keys.RequiredInteger("attention.head_count"));
  LAMINA_ASSIGN_OR_RETURN(const auto kv_heads,
                          keys.Integer("attention.head_count_kv"));
  config.num_kv_heads = kv_heads.value_or(config.num_heads);
  LAMINA_ASSIGN_OR_RETURN(config.max_positions,
                          keys.RequiredInteger("context_length"));
  LAMINA_ASSIGN_OR_RETURN(const auto epsilon,
                          keys.Real("attention.layer_norm_rms_epsilon"));
  if (!epsilon) return keys.Missing("attention.layer_norm_rms_epsilon");
  config.epsilon = static_cast<float>(*epsilon);

  LAMINA_ASSIGN_OR_RETURN(const auto key_length,
                          keys.Integer("attention.key_length"));
  LAMINA_ASSIGN_OR_RETURN(const auto value_length,
                          keys.Integer("attention.value_length"));
  if (key_length) {
    config.head_dim = *key_length;
  } else if (config.num_heads > 0) {
    config.head_dim = config.hidden_dim / config.num_heads;
  }
  if (value_length && *value_length != config.head_dim) {
    return keys.Unsupported("attention.value_length",
                            absl::StrCat(*value_length), "the key length");
  }
  LAMINA_RETURN_IF_ERROR(ReadRope(gguf, keys, config));

  // The vocabulary: of the tokens where there are any.
  LAMINA_ASSIGN_OR_RETURN(const auto vocab_size, keys.Integer("vocab_size"));
  const GgufValue* tokens = gguf.Find("tokenizer.ggml.tokens");
  if (tokens != nullptr && tokens->type == GgufType::kArray) {
    config.vocab_size = static_cast<int64_t>(tokens->count);
    if (vocab_size && *vocab_size != config.vocab_size) {
      return BadFile(
          file, tokens->begin,
          absl::StrCat("key \"tokenizer.ggml.tokens\": ", config.vocab_size,
                       " tokens, want ", *vocab_size, " (llama.vocab_size)"));
    }
  } else if (vocab_size) {
    config.vocab_size = *vocab_size;
  } else {
    return keys.Missing("vocab_size");
  }
  config.tied_embeddings = std::none_of(
      gguf.tensors().begin(), gguf.tensors().end(),
      [](const GgufTensor& t) { return t.name == "output.weight"; });
  return config;
}

// A token id key, within 31 bits.
absl::StatusOr<std::optional<int32_t>> TokenId(const GgufFile& gguf,
                                               std::string_view key) {
  LAMINA_ASSIGN_OR_RETURN(const auto id, gguf.Integer(key));
  if (!id) return std::optional<int32_t>();
  // Writers store "none" as -1 or 2^32 - 1.
  if (*id == -1 || *id == std::numeric_limits<uint32_t>::max()) {
    return std::optional<int32_t>();
  }
  if (*id < 0 || *id > std::numeric_limits<int32_t>::max()) {
    return BadFile(gguf.file().path(), gguf.Find(key)->begin,
                   absl::StrCat("key ", Quoted(key), ": given ", *id,
                                ", want a token id"));
  }
  return std::optional<int32_t>(static_cast<int32_t>(*id));
}

absl::StatusOr<GgufTokenizer> ReadTokenizer(const GgufFile& gguf,
                                            const ModelConfig& config) {
  GgufTokenizer tokenizer;
  const std::string prefix = "tokenizer.ggml.";
  LAMINA_ASSIGN_OR_RETURN(const auto model, gguf.String(prefix + "model"));
  LAMINA_ASSIGN_OR_RETURN(const auto pre, gguf.String(prefix + "pre"));
  LAMINA_ASSIGN_OR_RETURN(const auto chat_template,
                          gguf.String("tokenizer.chat_template"));
  tokenizer.model = model.value_or("");
  tokenizer.pre = pre.value_or("");
  tokenizer.chat_template = chat_template.value_or("");
  LAMINA_ASSIGN_OR_RETURN(tokenizer.tokens, gguf.Strings(prefix + "tokens"));
  LAMINA_ASSIGN_OR_RETURN(tokenizer.merges, gguf.Strings(prefix + "merges"));
  LAMINA_ASSIGN_OR_RETURN(tokenizer.token_types,
                          gguf.Int32s(prefix + "token_type"));
  LAMINA_ASSIGN_OR_RETURN(tokenizer.scores, gguf.Floats(prefix + "scores"));
  const auto check_count = [&](const char* key, size_t count) {
    if (count == 0 || count == tokenizer.tokens.size()) {
      return absl::OkStatus();
    }
    return BadFile(
        gguf.file().path(), gguf.Find(prefix + key)->begin,
        absl::StrCat("key ", Quoted(prefix + key), ": ", count,
                     " entries, want ", tokenizer.tokens.size(), " (tokens)"));
  };
  LAMINA_RETURN_IF_ERROR(
      check_count("token_type", tokenizer.token_types.size()));
  LAMINA_RETURN_IF_ERROR(check_count("scores", tokenizer.scores.size()));

  struct Id {
    const char* key;
    std::optional<int32_t>* id;
  };
  for (const Id& field : {Id{"bos_token_id", &tokenizer.bos_id},
                          Id{"eos_token_id", &tokenizer.eos_id},
                          Id{"eot_token_id", &tokenizer.eot_id},
                          Id{"unknown_token_id", &tokenizer.unknown_id},
                          Id{"padding_token_id", &tokenizer.padding_id}}) {
    LAMINA_ASSIGN_OR_RETURN(*field.id, TokenId(gguf, prefix + field.key));
    if (*field.id && **field.id >= config.vocab_size) {
      return BadFile(
          gguf.file().path(), gguf.Find(prefix + field.key)->begin,
          absl::StrCat("key ", Quoted(prefix + field.key), ": given ",
                       **field.id, ", want 0 to ", config.vocab_size - 1));
    }
  }
  LAMINA_ASSIGN_OR_RETURN(tokenizer.add_bos,
                          gguf.Bool(prefix + "add_bos_token"));
  LAMINA_ASSIGN_OR_RETURN(tokenizer.add_eos,
                          gguf.Bool(prefix + "add_eos_token"));
  LAMINA_ASSIGN_OR_RETURN(tokenizer.add_space_prefix,
                          gguf.Bool(prefix + "add_space_prefix"));
  return tokenizer;
}

// The ids that end a text: eos and eot, and control tokens that end a turn or
// a document in the families that use them, since files name only one.
std::vector<int32_t> EndIds(const GgufTokenizer& tokenizer) {
  constexpr std::string_view kEnds[] = {"<|endoftext|>",   "<|im_end|>",
                                        "<|end_of_text|>", "<|eot_id|>",
                                        "<|end_of_turn|>", "<|end|>"};
  constexpr int32_t kControl = 3;
  std::vector<int32_t> ids;
  const auto add = [&](int32_t id) {
    if (std::find(ids.begin(), ids.end(), id) == ids.end()) ids.push_back(id);
  };
  if (tokenizer.eos_id) add(*tokenizer.eos_id);
  if (tokenizer.eot_id) add(*tokenizer.eot_id);
  for (size_t id = 0; id < tokenizer.token_types.size(); ++id) {
    if (tokenizer.token_types[id] == kControl &&
        std::find(std::begin(kEnds), std::end(kEnds), tokenizer.tokens[id]) !=
            std::end(kEnds)) {
      add(static_cast<int32_t>(id));
    }
  }
  return ids;
}

// "config: …" of CheckConfig, with the file in front.
absl::Status InFile(const std::string& file, const absl::Status& status) {
  if (status.ok()) return status;
  return absl::Status(status.code(),
                      absl::StrCat(file, ": ", status.message()));
}

}  // namespace

absl::StatusOr<CheckpointContents> ReadGgufCheckpoint(
    std::shared_ptr<const MappedFile> mapped) {
  LAMINA_ASSIGN_OR_RETURN(const GgufFile gguf, GgufFile::Parse(mapped));
  const std::string& file = mapped->path();
  CheckpointContents contents;
  LAMINA_ASSIGN_OR_RETURN(contents.config, ReadConfig(gguf));
  LAMINA_RETURN_IF_ERROR(InFile(file, CheckConfig(contents.config)));
  LAMINA_RETURN_IF_ERROR(ReadRopeFactors(gguf, contents.config.rope));
  LAMINA_ASSIGN_OR_RETURN(GgufTokenizer tokenizer,
                          ReadTokenizer(gguf, contents.config));
  contents.config.bos_id = tokenizer.bos_id;
  contents.config.pad_id = tokenizer.padding_id;
  contents.config.eos_ids = EndIds(tokenizer);
  contents.gguf_tokenizer = std::move(tokenizer);
  LAMINA_RETURN_IF_ERROR(InFile(file, CheckConfig(contents.config)));

  TensorSources sources;
  for (const GgufTensor& tensor : gguf.tensors()) {
    std::string name = CanonicalName(tensor.name);
    TensorSource source = {mapped.get(), tensor.entry, tensor.name};
    const bool is_new = sources.emplace(name, std::move(source)).second;
    // A file may hold both "output.weight" and "lm_head.weight".
    if (!is_new) {
      return BadFile(file, tensor.entry,
                     absl::StrCat("tensor ", Quoted(tensor.name),
                                  " occurs twice (as ", Quoted(name), ")"));
    }
    CheckpointTensor entry;
    entry.name = name;
    entry.shape = tensor.shape;
    entry.type = tensor.type;
    entry.data = tensor.data;
    entry.bytes = tensor.bytes;
    contents.tensors.emplace(std::move(name), std::move(entry));
  }
  LAMINA_RETURN_IF_ERROR(CheckTensors(contents, sources, file, &Ignorable));
  contents.file_bytes = static_cast<int64_t>(mapped->size());
  contents.files.push_back(std::move(mapped));
  return contents;
}

}  // namespace lamina::model_internal
