#include "apps/lamina/tokenizer_json.h"

#include <optional>

#include "absl/strings/str_cat.h"
#include "lamina/model/tokenizer.h"
#include "nlohmann/json.hpp"

namespace lamina::cli {
namespace {

using Json = nlohmann::ordered_json;

// How tokenizer.json spells the pre-tokenisers that GGUF files name.
std::optional<Json> PreTokenizer(std::string_view name) {
  const Json byte_level = {{"type", "ByteLevel"},
                           {"add_prefix_space", false},
                           {"trim_offsets", true},
                           {"use_regex", true}};
  if (name == "gpt-2") return byte_level;
  if (name == "smollm") {
    return Json{
        {"type", "Sequence"},
        {"pretokenizers",
         {{{"type", "Digits"}, {"individual_digits", true}}, byte_level}}};
  }
  if (name == "llama-bpe" || name == "llama3") {
    Json bytes = byte_level;
    bytes["use_regex"] = false;
    return Json{
        {"type", "Sequence"},
        {"pretokenizers",
         {{{"type", "Split"},
           {"pattern",
            {{"Regex",
              R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"}}},
           {"behavior", "Isolated"},
           {"invert", false}},
          bytes}}};
  }
  return std::nullopt;
}

bool IsAdded(const GgufTokenizer& gguf, size_t id) {
  if (id >= gguf.token_types.size()) return false;
  const int32_t type = gguf.token_types[id];
  return type == static_cast<int32_t>(TokenType::kControl) ||
         type == static_cast<int32_t>(TokenType::kUserDefined);
}

}  // namespace

absl::StatusOr<TokenizerFiles> TokenizerFilesFromGguf(
    const GgufTokenizer& gguf) {
  const std::optional<Json> pre_tokenizer = PreTokenizer(gguf.pre);
  if (gguf.model != "gpt2" || !pre_tokenizer) {
    return absl::UnimplementedError(
        absl::StrCat("convert: tokenizer ", std::string(gguf.model), "/",
                     std::string(gguf.pre),
                     ": can write gpt2 with gpt-2, smollm or llama-bpe"));
  }
  Json vocab = Json::object();
  Json added = Json::array();
  for (size_t id = 0; id < gguf.tokens.size(); ++id) {
    const std::string token(gguf.tokens[id]);
    vocab[token] = id;
    if (!IsAdded(gguf, id)) continue;
    added.push_back(
        {{"id", id},
         {"content", token},
         {"single_word", false},
         {"lstrip", false},
         {"rstrip", false},
         {"normalized", false},
         {"special",
          gguf.token_types[id] == static_cast<int32_t>(TokenType::kControl)}});
  }
  Json merges = Json::array();
  for (const std::string_view merge : gguf.merges) merges.push_back(merge);
  const Json tokenizer = {{"version", "1.0"},
                          {"truncation", nullptr},
                          {"padding", nullptr},
                          {"added_tokens", added},
                          {"normalizer", nullptr},
                          {"pre_tokenizer", *pre_tokenizer},
                          {"post_processor", nullptr},
                          {"decoder",
                           {{"type", "ByteLevel"},
                            {"add_prefix_space", true},
                            {"trim_offsets", true},
                            {"use_regex", true}}},
                          {"model",
                           {{"type", "BPE"},
                            {"dropout", nullptr},
                            {"unk_token", nullptr},
                            {"continuing_subword_prefix", nullptr},
                            {"end_of_word_suffix", nullptr},
                            {"fuse_unk", false},
                            {"byte_fallback", false},
                            {"vocab", vocab},
                            {"merges", merges}}}};

  Json config = {{"tokenizer_class", "PreTrainedTokenizerFast"},
                 {"add_bos_token", gguf.add_bos.value_or(false)},
                 {"add_eos_token", gguf.add_eos.value_or(false)},
                 {"add_prefix_space", false}};
  const auto name = [&](const char* key, std::optional<int32_t> id) {
    if (id && *id >= 0 && static_cast<size_t>(*id) < gguf.tokens.size()) {
      config[key] = gguf.tokens[static_cast<size_t>(*id)];
    }
  };
  name("bos_token", gguf.bos_id);
  name("eos_token", gguf.eos_id);
  name("pad_token", gguf.padding_id);
  name("unk_token", gguf.unknown_id);
  if (!gguf.chat_template.empty()) config["chat_template"] = gguf.chat_template;
  return TokenizerFiles{tokenizer.dump(), config.dump(1)};
}

}  // namespace lamina::cli
