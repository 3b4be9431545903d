#include "lamina/model/hf_config.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <iterator>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lamina/core/status.h"
#include "lamina/model/file_error.h"
#include "lamina/model/json_reader.h"

namespace lamina::model_internal {
namespace {

using Json = nlohmann::json;

absl::StatusOr<Json> ParseObject(std::string_view file, std::string_view text) {
  LAMINA_ASSIGN_OR_RETURN(Json json, ParseJson(file, text, JsonLimits{}));
  if (!json.is_object()) return BadFile(file, "not a JSON object");
  return json;
}

absl::StatusOr<std::vector<int32_t>> TokenIds(const JsonFields& fields,
                                              const char* field) {
  LAMINA_ASSIGN_OR_RETURN(const std::vector<int64_t> ids,
                          fields.Integers(field));
  std::vector<int32_t> result;
  for (const int64_t id : ids) {
    if (id < 0 || id > std::numeric_limits<int32_t>::max()) {
      return fields.Error(field, "token ids");
    }
    result.push_back(static_cast<int32_t>(id));
  }
  return result;
}

absl::StatusOr<std::optional<int32_t>> TokenId(const JsonFields& fields,
                                               const char* field) {
  LAMINA_ASSIGN_OR_RETURN(const std::vector<int32_t> ids,
                          TokenIds(fields, field));
  if (ids.empty()) return std::optional<int32_t>();
  return std::optional<int32_t>(ids.front());
}

struct ActivationName {
  const char* name;
  ActivationKind kind;
};
constexpr ActivationName kActivations[] = {
    {"silu", ActivationKind::kSilu},
    {"swish", ActivationKind::kSilu},
    {"gelu", ActivationKind::kGelu},
    {"gelu_pytorch_tanh", ActivationKind::kGeluTanh},
    {"relu", ActivationKind::kRelu},
};

// Older files have rope_theta and rope_scaling side by side, newer ones
// (transformers 5) both in rope_parameters.
absl::Status ReadRope(std::string_view file, const JsonFields& fields,
                      ModelConfig& config) {
  RopeFrequencies& rope = config.rope;
  rope.rotary_dim = config.head_dim;
  LAMINA_ASSIGN_OR_RETURN(const auto theta, fields.Real("rope_theta"));
  rope.theta = theta.value_or(10000.0);
  LAMINA_ASSIGN_OR_RETURN(const auto partial,
                          fields.Real("partial_rotary_factor"));
  if (partial && *partial != 1.0) {
    return NotSupported(file, absl::StrCat("partial_rotary_factor: given ",
                                           *partial, ", supported: 1"));
  }

  for (const char* section : {"rope_parameters", "rope_scaling"}) {
    LAMINA_ASSIGN_OR_RETURN(const Json* object, fields.Object(section));
    if (object == nullptr) continue;
    const JsonFields scaling(file, *object, absl::StrCat(section, "."));
    LAMINA_ASSIGN_OR_RETURN(const auto inner_theta, scaling.Real("rope_theta"));
    if (inner_theta) rope.theta = *inner_theta;
    LAMINA_ASSIGN_OR_RETURN(auto type, scaling.String("rope_type"));
    if (!type) {
      LAMINA_ASSIGN_OR_RETURN(type, scaling.String("type"));
    }
    if (!type || *type == "default") continue;
    if (*type != "llama3") {
      return NotSupported(
          file, absl::StrCat(section, ".rope_type: given ", Quoted(*type),
                             ", supported: default, llama3"));
    }
    struct Field {
      const char* name;
      double* value;
    };
    for (const Field& field :
         {Field{"factor", &rope.factor},
          Field{"low_freq_factor", &rope.low_freq_factor},
          Field{"high_freq_factor", &rope.high_freq_factor},
          Field{"original_max_position_embeddings",
                &rope.original_max_position}}) {
      LAMINA_ASSIGN_OR_RETURN(const auto value, scaling.Real(field.name));
      if (!value) return scaling.Error(field.name, "a number");
      *field.value = *value;
    }
  }
  return absl::OkStatus();
}

// One group of compressed-tensors: 8-bit symmetric weights.
absl::Status ReadGroup(std::string_view file, const JsonFields& group,
                       HfConfig& config) {
  LAMINA_ASSIGN_OR_RETURN(const Json* weights, group.Object("weights"));
  if (weights == nullptr) return group.Error("weights", "an object");
  const JsonFields weight_fields(file, *weights, "weights.");
  LAMINA_ASSIGN_OR_RETURN(const auto bits, weight_fields.Integer("num_bits"));
  LAMINA_ASSIGN_OR_RETURN(const auto type, weight_fields.String("type"));
  LAMINA_ASSIGN_OR_RETURN(const auto strategy,
                          weight_fields.String("strategy"));
  LAMINA_ASSIGN_OR_RETURN(const auto symmetric,
                          weight_fields.Bool("symmetric"));
  const std::string strategy_name = strategy.value_or("tensor");
  if (bits.value_or(8) != 8 || !symmetric.value_or(true) ||
      (type && *type != "float" && *type != "int") ||
      (strategy_name != "tensor" && strategy_name != "channel" &&
       strategy_name != "block")) {
    return NotSupported(
        file, absl::StrCat("quantization_config: weights of ", bits.value_or(8),
                           " bits, strategy ", Quoted(strategy_name),
                           "; supported: 8-bit symmetric float or int, "
                           "strategy tensor, channel or block"));
  }
  if (strategy_name == "block") {
    LAMINA_ASSIGN_OR_RETURN(const auto block,
                            weight_fields.Integers("block_structure"));
    if (block.size() != 2) {
      return weight_fields.Error("block_structure", "two integers");
    }
    config.tile_rows = block[0];
    config.tile_cols = block[1];
  }
  LAMINA_ASSIGN_OR_RETURN(const Json* inputs,
                          group.Object("input_activations"));
  if (inputs == nullptr) {
    config.quantization.activations = ActivationScheme::kNone;
    return absl::OkStatus();
  }
  const JsonFields input_fields(file, *inputs, "input_activations.");
  LAMINA_ASSIGN_OR_RETURN(const auto dynamic, input_fields.Bool("dynamic"));
  config.quantization.activations = dynamic.value_or(false)
                                        ? ActivationScheme::kDynamic
                                        : ActivationScheme::kStatic;
  return absl::OkStatus();
}

absl::Status ReadCompressedTensors(std::string_view file,
                                   const JsonFields& fields, HfConfig& config) {
  LAMINA_ASSIGN_OR_RETURN(const auto format, fields.String("format"));
  if (format && *format != "float-quantized" && *format != "int-quantized" &&
      *format != "naive-quantized") {
    return NotSupported(
        file,
        absl::StrCat("quantization_config.format: given ", Quoted(*format),
                     ", supported: float-quantized, int-quantized, "
                     "naive-quantized"));
  }
  LAMINA_ASSIGN_OR_RETURN(const Json* groups, fields.Object("config_groups"));
  if (groups == nullptr || groups->empty()) {
    return fields.Error("config_groups", "an object with a group");
  }
  std::optional<HfConfig> first;
  for (const auto& [name, group] : groups->items()) {
    if (!group.is_object()) {
      return fields.Error("config_groups", "objects in it");
    }
    HfConfig read = config;
    LAMINA_RETURN_IF_ERROR(ReadGroup(file, JsonFields(file, group), read));
    if (first &&
        (first->quantization.activations != read.quantization.activations ||
         first->tile_rows != read.tile_rows ||
         first->tile_cols != read.tile_cols)) {
      return NotSupported(
          file, "quantization_config.config_groups: groups that differ");
    }
    first = std::move(read);
  }
  config = *std::move(first);
  return absl::OkStatus();
}

absl::Status ReadFp8(const JsonFields& fields, HfConfig& config) {
  LAMINA_ASSIGN_OR_RETURN(const auto scheme,
                          fields.String("activation_scheme"));
  const std::string name = scheme.value_or("dynamic");
  if (name != "static" && name != "dynamic") {
    return fields.Error("activation_scheme", "static or dynamic");
  }
  config.quantization.activations =
      name == "static" ? ActivationScheme::kStatic : ActivationScheme::kDynamic;
  LAMINA_ASSIGN_OR_RETURN(const auto block,
                          fields.Integers("weight_block_size"));
  if (!block.empty()) {
    if (block.size() != 2) {
      return fields.Error("weight_block_size", "two integers");
    }
    config.tile_rows = block[0];
    config.tile_cols = block[1];
  }
  return absl::OkStatus();
}

absl::Status ReadQuantization(std::string_view file, const JsonFields& fields,
                              HfConfig& config) {
  LAMINA_ASSIGN_OR_RETURN(const Json* object,
                          fields.Object("quantization_config"));
  if (object == nullptr) {
    // The older name, of compressed-tensors.
    LAMINA_ASSIGN_OR_RETURN(object, fields.Object("compression_config"));
  }
  if (object == nullptr) return absl::OkStatus();
  const JsonFields quantization(file, *object, "quantization_config.");
  LAMINA_ASSIGN_OR_RETURN(const auto method,
                          quantization.String("quant_method"));
  config.quantization.method = method.value_or("");
  if (config.quantization.method == "compressed-tensors") {
    LAMINA_RETURN_IF_ERROR(ReadCompressedTensors(file, quantization, config));
  } else if (config.quantization.method == "fp8") {
    LAMINA_RETURN_IF_ERROR(ReadFp8(quantization, config));
  } else {
    return NotSupported(file,
                        absl::StrCat("quantization_config.quant_method: given ",
                                     Quoted(config.quantization.method),
                                     ", supported: compressed-tensors, fp8"));
  }
  const bool tiles = config.tile_rows != 0 || config.tile_cols != 0;
  if (tiles && (config.tile_rows != 128 || config.tile_cols != 128)) {
    return NotSupported(
        file, absl::StrCat("quantization_config: tiles of ", config.tile_rows,
                           " x ", config.tile_cols, ", supported: 128 x 128"));
  }
  return absl::OkStatus();
}

absl::Status RejectTrue(std::string_view file, const JsonFields& fields,
                        const char* field) {
  LAMINA_ASSIGN_OR_RETURN(const auto value, fields.Bool(field));
  if (!value.value_or(false)) return absl::OkStatus();
  return NotSupported(file,
                      absl::StrCat(field, ": given true, supported: false"));
}

absl::Status ReadSizes(const JsonFields& fields, ModelConfig& config) {
  struct Size {
    const char* name;
    int64_t* value;
  };
  for (const Size& size :
       {Size{"hidden_size", &config.hidden_dim},
        Size{"num_hidden_layers", &config.num_layers},
        Size{"num_attention_heads", &config.num_heads},
        Size{"intermediate_size", &config.ffn_dim},
        Size{"vocab_size", &config.vocab_size},
        Size{"max_position_embeddings", &config.max_positions}}) {
    LAMINA_ASSIGN_OR_RETURN(*size.value, fields.RequiredInteger(size.name));
  }
  LAMINA_ASSIGN_OR_RETURN(const auto kv_heads,
                          fields.Integer("num_key_value_heads"));
  config.num_kv_heads = kv_heads.value_or(config.num_heads);
  LAMINA_ASSIGN_OR_RETURN(const auto head_dim, fields.Integer("head_dim"));
  if (head_dim) {
    config.head_dim = *head_dim;
  } else if (config.num_heads > 0) {
    if (config.hidden_dim % config.num_heads != 0) {
      return fields.Error(
          "hidden_size",
          absl::StrCat("a multiple of ", config.num_heads, " (heads)"));
    }
    config.head_dim = config.hidden_dim / config.num_heads;
  }
  // Within its window, windowed attention is full attention.
  LAMINA_ASSIGN_OR_RETURN(const auto window, fields.Integer("sliding_window"));
  if (window) config.max_positions = std::min(config.max_positions, *window);

  LAMINA_ASSIGN_OR_RETURN(const auto epsilon, fields.Real("rms_norm_eps"));
  if (!epsilon) return fields.Error("rms_norm_eps", "a number");
  config.epsilon = static_cast<float>(*epsilon);
  LAMINA_ASSIGN_OR_RETURN(const auto tied, fields.Bool("tie_word_embeddings"));
  config.tied_embeddings = tied.value_or(false);
  return absl::OkStatus();
}

// The double that prints as the float does: 1e-05, not 9.99999974e-06.
double ShortestDouble(float value) {
  char text[32];
  const auto end = std::to_chars(text, text + sizeof(text), value).ptr;
  double wide = value;
  std::from_chars(text, end, wide);
  return wide;
}

}  // namespace

absl::StatusOr<HfConfig> ParseHfConfig(std::string_view file,
                                       std::string_view text) {
  LAMINA_ASSIGN_OR_RETURN(const Json json, ParseObject(file, text));
  const JsonFields fields(file, json);
  HfConfig config;
  ModelConfig& model = config.model;

  LAMINA_ASSIGN_OR_RETURN(const auto model_type, fields.String("model_type"));
  if (!model_type) return fields.Error("model_type", "a string");
  if (*model_type != "llama" && *model_type != "mistral") {
    return NotSupported(file,
                        absl::StrCat("model_type: given ", Quoted(*model_type),
                                     ", supported: llama, mistral"));
  }
  model.architecture = *model_type;
  LAMINA_ASSIGN_OR_RETURN(const auto name, fields.String("_name_or_path"));
  model.name = name.value_or("");
  LAMINA_RETURN_IF_ERROR(RejectTrue(file, fields, "attention_bias"));
  LAMINA_RETURN_IF_ERROR(RejectTrue(file, fields, "mlp_bias"));
  LAMINA_RETURN_IF_ERROR(ReadSizes(fields, model));

  LAMINA_ASSIGN_OR_RETURN(const auto activation, fields.String("hidden_act"));
  const std::string activation_name = activation.value_or("silu");
  const auto* found = std::find_if(
      std::begin(kActivations), std::end(kActivations),
      [&](const ActivationName& row) { return row.name == activation_name; });
  if (found == std::end(kActivations)) {
    return NotSupported(
        file, absl::StrCat("hidden_act: given ", Quoted(activation_name),
                           ", supported: silu, gelu, gelu_pytorch_tanh, relu"));
  }
  model.activation = found->kind;
  LAMINA_RETURN_IF_ERROR(ReadRope(file, fields, model));
  model.rope_pairing = RopePairing::kHalfSplit;
  LAMINA_ASSIGN_OR_RETURN(model.bos_id, TokenId(fields, "bos_token_id"));
  LAMINA_ASSIGN_OR_RETURN(model.eos_ids, TokenIds(fields, "eos_token_id"));
  // Some files say -1 for "none".
  const Json* pad = fields.Find("pad_token_id");
  if (pad != nullptr && *pad != -1) {
    LAMINA_ASSIGN_OR_RETURN(model.pad_id, TokenId(fields, "pad_token_id"));
  }
  LAMINA_RETURN_IF_ERROR(ReadQuantization(file, fields, config));

  const absl::Status valid = CheckConfig(model);
  if (!valid.ok()) return BadFile(file, std::string(valid.message()));
  return config;
}

absl::StatusOr<std::vector<int32_t>> ParseHfGenerationEosIds(
    std::string_view file, std::string_view text) {
  LAMINA_ASSIGN_OR_RETURN(const Json json, ParseObject(file, text));
  return TokenIds(JsonFields(file, json), "eos_token_id");
}

std::string Fp8HfConfigText(const ModelConfig& config,
                            ActivationScheme activations) {
  const bool is_static = activations == ActivationScheme::kStatic;
  const auto number_of_8_bits = [](const char* strategy, bool dynamic) {
    return Json{{"num_bits", 8},
                {"type", "float"},
                {"strategy", strategy},
                {"symmetric", true},
                {"dynamic", dynamic},
                {"group_size", nullptr},
                {"block_structure", nullptr},
                {"actorder", nullptr},
                {"observer", dynamic ? Json(nullptr) : Json("minmax")},
                {"observer_kwargs", Json::object()}};
  };
  Json inputs = nullptr;
  if (activations != ActivationScheme::kNone) {
    inputs = number_of_8_bits(is_static ? "tensor" : "token", !is_static);
  }
  const Json group = {{"targets", {"Linear"}},
                      {"weights", number_of_8_bits("channel", false)},
                      {"input_activations", inputs},
                      {"output_activations", nullptr}};
  const char* activation = "silu";
  for (const ActivationName& row : kActivations) {
    if (row.kind == config.activation) {
      activation = row.name;
      break;
    }
  }
  Json json = {
      {"architectures",
       {config.architecture == "mistral" ? "MistralForCausalLM"
                                         : "LlamaForCausalLM"}},
      {"model_type", config.architecture},
      {"hidden_size", config.hidden_dim},
      {"num_hidden_layers", config.num_layers},
      {"num_attention_heads", config.num_heads},
      {"num_key_value_heads", config.num_kv_heads},
      {"head_dim", config.head_dim},
      {"intermediate_size", config.ffn_dim},
      {"vocab_size", config.vocab_size},
      {"max_position_embeddings", config.max_positions},
      {"rms_norm_eps", ShortestDouble(config.epsilon)},
      {"hidden_act", activation},
      {"rope_theta", config.rope.theta},
      {"rope_scaling", nullptr},
      {"attention_bias", false},
      {"mlp_bias", false},
      {"tie_word_embeddings", config.tied_embeddings},
      {"torch_dtype", "bfloat16"},
      {"use_cache", true},
      {"quantization_config",
       {{"quant_method", "compressed-tensors"},
        {"format", "float-quantized"},
        {"quantization_status", "compressed"},
        {"kv_cache_scheme", nullptr},
        {"global_compression_ratio", nullptr},
        {"ignore", {"lm_head"}},
        {"config_groups", {{"group_0", group}}}}},
  };
  if (config.rope.factor != 1.0) {
    json["rope_scaling"] = {
        {"rope_type", "llama3"},
        {"factor", config.rope.factor},
        {"low_freq_factor", config.rope.low_freq_factor},
        {"high_freq_factor", config.rope.high_freq_factor},
        {"original_max_position_embeddings",
         static_cast<int64_t>(config.rope.original_max_position)}};
  }
  if (config.bos_id) json["bos_token_id"] = *config.bos_id;
  if (config.pad_id) json["pad_token_id"] = *config.pad_id;
  if (config.eos_ids.size() == 1) {
    json["eos_token_id"] = config.eos_ids.front();
  } else if (!config.eos_ids.empty()) {
    json["eos_token_id"] = config.eos_ids;
  }
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace lamina::model_internal
