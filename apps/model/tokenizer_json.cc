// Hugging Face's tokenizer.json and tokenizer_config.json -> TokenizerSpec.

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lamina/core/status.h"
#include "lamina/model/json_reader.h"
#include "lamina/model/tokenizer.h"

namespace lamina {
namespace {

using Json = nlohmann::json;

constexpr size_t kMaxTokens = size_t{1} << 22;

// The Split patterns whose splitters Lamina has, as the files write them.
struct KnownPattern {
  const char* regex;
  const char* pre_tokenizer;
};
constexpr KnownPattern kKnownPatterns[] = {
    {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     "llama-bpe"},
    {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     "qwen2"},
    {R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)",
     "gpt-2"},
};
constexpr const char* kOneNumber = R"(\p{N})";

absl::Status Invalid(const std::string& field, const std::string& given,
                     const std::string& want) {
  return InvalidArgument("tokenizer.json", field.c_str(), given, want);
}

absl::Status Unsupported(const std::string& field, const std::string& given,
                         const std::string& want) {
  return absl::UnimplementedError(absl::StrCat(
      "tokenizer.json: ", field, ": given ", given, ", want ", want));
}

const Json& Field(const Json& object, const char* name) {
  static const Json* const null = new Json;
  if (!object.is_object()) return *null;
  const auto it = object.find(name);
  return it == object.end() ? *null : *it;
}

// A value as an error shows it: on one line, and short.
std::string Shown(const Json& value) {
  if (value.is_structured()) {
    const Json& type = Field(value, "type");
    return type.is_string() ? absl::StrCat("type ", Shown(type))
                            : absl::StrCat("an ", value.type_name());
  }
  std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
  if (text.size() > 80) text = text.substr(0, 80) + "…";
  return text;
}

bool IsString(const Json& value, std::string_view text) {
  return value.is_string() &&
         value.get_ref<const std::string&>() == std::string(text);
}
bool IsTrue(const Json& value) {
  return value.is_boolean() && value.get<bool>();
}
// Absent, null, false, 0 or "": a feature that is not used.
bool IsOff(const Json& value) {
  return value.is_null() || (value.is_boolean() && !value.get<bool>()) ||
         (value.is_number() && value.get<double>() == 0) || IsString(value, "");
}

// A vocabulary of 128k tokens is 17 MB and some 600,000 values.
absl::StatusOr<Json> Parse(const char* file, std::string_view text) {
  LAMINA_ASSIGN_OR_RETURN(
      Json json,
      model_internal::ParseJson(
          file, text,
          {.bytes = uint64_t{256} << 20, .depth = 32, .values = 20'000'000}));
  if (!json.is_object()) {
    return absl::InvalidArgumentError(
        absl::StrCat(file, ": not a JSON object"));
  }
  return json;
}

absl::Status ReadId(const Json& value, const std::string& field, int32_t& id) {
  if (!value.is_number_integer() || value.get<int64_t>() < 0 ||
      value.get<int64_t>() >= static_cast<int64_t>(kMaxTokens)) {
    return Invalid(field, Shown(value),
                   absl::StrCat("an id, 0 to ", kMaxTokens - 1));
  }
  id = static_cast<int32_t>(value.get<int64_t>());
  return absl::OkStatus();
}

absl::Status SetToken(const std::string& text, int32_t id, TokenType type,
                      TokenizerSpec& spec) {
  const size_t at = static_cast<size_t>(id);
  if (at >= spec.tokens.size()) {
    spec.tokens.resize(at + 1);
    spec.types.resize(at + 1, static_cast<int32_t>(TokenType::kNormal));
  }
  if (!spec.tokens[at].empty() && spec.tokens[at] != text) {
    return Invalid("vocabulary", absl::StrCat("two tokens with id ", id),
                   "one token for each id");
  }
  spec.tokens[at] = text;
  spec.types[at] = static_cast<int32_t>(type);
  return absl::OkStatus();
}

absl::Status ReadModel(const Json& model, TokenizerSpec& spec) {
  const Json& type = Field(model, "type");
  const Json& vocab = Field(model, "vocab");
  const Json& merges = Field(model, "merges");
  if (!IsString(type, "BPE") &&
      !(type.is_null() && vocab.is_object() && merges.is_array())) {
    return Unsupported("model.type", Shown(type), "\"BPE\"");
  }
  for (const char* name : {"dropout", "continuing_subword_prefix",
                           "end_of_word_suffix", "byte_fallback"}) {
    if (!IsOff(Field(model, name))) {
      return Unsupported(absl::StrCat("model.", name),
                         Shown(Field(model, name)), "none");
    }
  }
  spec.ignore_merges = IsTrue(Field(model, "ignore_merges"));

  if (!vocab.is_object()) {
    return Invalid("model.vocab", Shown(vocab), "an object of ids by token");
  }
  if (vocab.size() > kMaxTokens) {
    return Invalid("model.vocab", absl::StrCat(vocab.size(), " tokens"),
                   absl::StrCat("at most ", kMaxTokens));
  }
  for (const auto& [token, value] : vocab.items()) {
    int32_t id = 0;
    LAMINA_RETURN_IF_ERROR(ReadId(value, "model.vocab", id));
    LAMINA_RETURN_IF_ERROR(SetToken(token, id, TokenType::kNormal, spec));
  }

  if (!merges.is_array()) {
    return Invalid("model.merges", Shown(merges), "an array");
  }
  spec.merges.reserve(merges.size());
  for (const Json& merge : merges) {
    // "left right" in older files, ["left", "right"] in newer ones.
    if (merge.is_string()) {
      spec.merges.push_back(merge.get<std::string>());
    } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() &&
               merge[1].is_string()) {
      spec.merges.push_back(absl::StrCat(merge[0].get<std::string>(), " ",
                                         merge[1].get<std::string>()));
    } else {
      return Invalid("model.merges", Shown(merge), "\"left right\" or a pair");
    }
  }
  return absl::OkStatus();
}

absl::Status ReadAddedTokens(const Json& added, TokenizerSpec& spec) {
  if (added.is_null()) return absl::OkStatus();
  if (!added.is_array()) {
    return Invalid("added_tokens", Shown(added), "an array");
  }
  for (const Json& token : added) {
    const Json& content = Field(token, "content");
    if (!content.is_string()) {
      return Invalid("added_tokens", Shown(token), "tokens with a content");
    }
    for (const char* name : {"lstrip", "rstrip", "single_word"}) {
      if (!IsOff(Field(token, name))) {
        return Unsupported("added_tokens", Shown(token),
                           absl::StrCat("tokens without ", name));
      }
    }
    int32_t id = 0;
    LAMINA_RETURN_IF_ERROR(ReadId(Field(token, "id"), "added_tokens", id));
    const TokenType type = IsTrue(Field(token, "special"))
                               ? TokenType::kControl
                               : TokenType::kUserDefined;
    LAMINA_RETURN_IF_ERROR(
        SetToken(content.get<std::string>(), id, type, spec));
  }
  return absl::OkStatus();
}

// One pre-tokeniser, or the members of a Sequence, as a list.
std::vector<const Json*> Flattened(const Json& json, const char* members) {
  std::vector<const Json*> list;
  if (IsString(Field(json, "type"), "Sequence")) {
    const Json& array = Field(json, members);
    if (array.is_array()) {
      for (const Json& member : array) list.push_back(&member);
    }
  } else if (!json.is_null()) {
    list.push_back(&json);
  }
  return list;
}

absl::Status ReadPreTokenizer(const Json& json, TokenizerSpec& spec) {
  constexpr const char* kWant =
      "ByteLevel, alone or behind one Split or Digits as in GPT-2, SmolLM, "
      "Llama-3 or Qwen2";
  bool isolate_numbers = false;
  const char* split = nullptr;
  bool byte_level = false;
  bool byte_level_splits = false;
  for (const Json* step : Flattened(json, "pretokenizers")) {
    const Json& type = Field(*step, "type");
    const auto unsupported = [&] {
      return Unsupported("pre_tokenizer", Shown(*step), kWant);
    };
    if (byte_level) return unsupported();
    if (IsString(type, "Digits")) {
      if (!IsTrue(Field(*step, "individual_digits")) || split != nullptr) {
        return unsupported();
      }
      isolate_numbers = true;
    } else if (IsString(type, "Split")) {
      const Json& regex = Field(Field(*step, "pattern"), "Regex");
      if (!IsString(Field(*step, "behavior"), "Isolated") ||
          IsTrue(Field(*step, "invert")) || split != nullptr ||
          isolate_numbers) {
        return unsupported();
      }
      if (IsString(regex, kOneNumber)) {
        isolate_numbers = true;
        continue;
      }
      for (const KnownPattern& known : kKnownPatterns) {
        if (IsString(regex, known.regex)) split = known.pre_tokenizer;
      }
      if (split == nullptr) return unsupported();
    } else if (IsString(type, "ByteLevel")) {
      if (IsTrue(Field(*step, "add_prefix_space"))) return unsupported();
      byte_level = true;
      const Json& use_regex = Field(*step, "use_regex");
      byte_level_splits = use_regex.is_null() || IsTrue(use_regex);
    } else {
      return unsupported();
    }
  }
  if (byte_level && split == nullptr && byte_level_splits) {
    spec.pre_tokenizer = isolate_numbers ? "smollm" : "gpt-2";
  } else if (byte_level && split != nullptr && !isolate_numbers &&
             !byte_level_splits) {
    spec.pre_tokenizer = split;
  } else {
    return Unsupported("pre_tokenizer", Shown(json), kWant);
  }
  return absl::OkStatus();
}

// ids of {"SpecialToken": {"id": NAME}} in a TemplateProcessing.
int32_t IdOf(const TokenizerSpec& spec, const Json& name) {
  if (!name.is_string()) return -1;
  const std::string& text = name.get_ref<const std::string&>();
  const auto it = std::find(spec.tokens.begin(), spec.tokens.end(), text);
  return it == spec.tokens.end()
             ? -1
             : static_cast<int32_t>(it - spec.tokens.begin());
}

absl::Status ReadPostProcessor(const Json& json, TokenizerSpec& spec) {
  spec.add_bos = false;
  spec.add_eos = false;
  for (const Json* step : Flattened(json, "processors")) {
    if (IsString(Field(*step, "type"), "ByteLevel")) continue;
    const auto unsupported = [&] {
      return Unsupported("post_processor", Shown(*step),
                         "ByteLevel, or a template of at most one token before "
                         "and one behind the text");
    };
    const Json& single = Field(*step, "single");
    if (!IsString(Field(*step, "type"), "TemplateProcessing") ||
        !single.is_array()) {
      return unsupported();
    }
    bool text_seen = false;
    for (const Json& piece : single) {
      if (!Field(piece, "Sequence").is_null()) {
        if (text_seen) return unsupported();
        text_seen = true;
        continue;
      }
      const int32_t id = IdOf(spec, Field(Field(piece, "SpecialToken"), "id"));
      std::optional<bool>& add = text_seen ? spec.add_eos : spec.add_bos;
      if (id < 0 || *add) return unsupported();
      add = true;
      (text_seen ? spec.eos_id : spec.bos_id) = id;
    }
    if (!text_seen) return unsupported();
  }
  return absl::OkStatus();
}

// "<|im_end|>", or {"content": "<|im_end|>", …}.
const Json& NameIn(const Json& token) {
  return token.is_object() ? Field(token, "content") : token;
}

absl::Status ReadConfig(std::string_view text, TokenizerSpec& spec) {
  LAMINA_ASSIGN_OR_RETURN(const Json config,
                          Parse("tokenizer_config.json", text));
  const std::pair<const char*, int32_t*> ids[] = {
      {"bos_token", &spec.bos_id},
      {"eos_token", &spec.eos_id},
      {"unk_token", &spec.unknown_id},
      {"pad_token", &spec.padding_id},
  };
  for (const auto& [name, id] : ids) {
    const Json& token = NameIn(Field(config, name));
    if (!token.is_string()) continue;
    const int32_t found = IdOf(spec, token);
    if (found < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("tokenizer_config.json: ", name, ": given ",
                       Shown(token), ", want a token of the vocabulary"));
    }
    *id = found;
  }
  const Json& chat = Field(config, "chat_template");
  if (chat.is_string()) {
    spec.chat_template = chat.get<std::string>();
  } else if (chat.is_array()) {
    // Several, by name.
    for (const Json& named : chat) {
      const Json& body = Field(named, "template");
      if (IsString(Field(named, "name"), "default") && body.is_string()) {
        spec.chat_template = body.get<std::string>();
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<TokenizerSpec> ReadTokenizerJson(
    std::string_view tokenizer_json, std::string_view tokenizer_config_json,
    std::string_view chat_template_jinja) {
  LAMINA_ASSIGN_OR_RETURN(const Json json,
                          Parse("tokenizer.json", tokenizer_json));
  TokenizerSpec spec;
  if (!Field(json, "normalizer").is_null()) {
    return Unsupported("normalizer", Shown(Field(json, "normalizer")), "none");
  }
  LAMINA_RETURN_IF_ERROR(ReadModel(Field(json, "model"), spec));
  LAMINA_RETURN_IF_ERROR(ReadAddedTokens(Field(json, "added_tokens"), spec));
  LAMINA_RETURN_IF_ERROR(ReadPreTokenizer(Field(json, "pre_tokenizer"), spec));
  LAMINA_RETURN_IF_ERROR(
      ReadPostProcessor(Field(json, "post_processor"), spec));
  if (!tokenizer_config_json.empty()) {
    LAMINA_RETURN_IF_ERROR(ReadConfig(tokenizer_config_json, spec));
  }
  if (!chat_template_jinja.empty()) spec.chat_template = chat_template_jinja;
  return spec;
}

}  // namespace lamina
