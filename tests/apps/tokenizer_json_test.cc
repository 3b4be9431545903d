// ReadTokenizerJson: what it takes from Hugging Face's files, and what it
// refuses.

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lamina/model/tokenizer.h"
#include "nlohmann/json.hpp"

namespace lamina {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Json = nlohmann::json;

Json SmallFile() {
  return Json::parse(R"({
    "version": "1.0", "truncation": null, "padding": null,
    "added_tokens": [
      {"id": 4, "content": "<s>", "special": true, "lstrip": false},
      {"id": 5, "content": "<tool>", "special": false}],
    "normalizer": null,
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false},
    "post_processor": {"type": "ByteLevel"},
    "decoder": {"type": "ByteLevel"},
    "model": {"type": "BPE", "dropout": null, "unk_token": null,
      "vocab": {"a": 0, "b": 1, "ab": 2, "Ġ": 3, "<s>": 4},
      "merges": ["a b"]}})");
}

std::string Failure(const Json& file, const char* config = "") {
  const auto spec = ReadTokenizerJson(file.dump(), config);
  return spec.ok() ? "" : spec.status().ToString();
}

TEST(TokenizerJson, ReadsVocabularyMergesAndAddedTokens) {
  const auto spec = ReadTokenizerJson(SmallFile().dump());
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_THAT(spec->tokens, ElementsAre("a", "b", "ab", "Ġ", "<s>", "<tool>"));
  EXPECT_THAT(spec->types, ElementsAre(1, 1, 1, 1, 3, 4));
  EXPECT_THAT(spec->merges, ElementsAre("a b"));
  EXPECT_EQ(spec->pre_tokenizer, "gpt-2");
  const auto tokenizer = Tokenizer::Create(*spec);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_THAT(tokenizer->Encode("ab a<tool>"), ElementsAre(2, 3, 0, 5));

  Json pairs = SmallFile();
  pairs["model"]["merges"] = Json::parse(R"([["a", "b"]])");
  EXPECT_THAT(ReadTokenizerJson(pairs.dump())->merges, ElementsAre("a b"));
}

TEST(TokenizerJson, PicksThePreTokenizer) {
  const auto picked = [](const char* pre_tokenizer) {
    Json file = SmallFile();
    file["pre_tokenizer"] = Json::parse(pre_tokenizer);
    const auto spec = ReadTokenizerJson(file.dump());
    return spec.ok() ? spec->pre_tokenizer : spec.status().ToString();
  };
  EXPECT_EQ(picked(R"({"type": "Sequence", "pretokenizers": [
      {"type": "Digits", "individual_digits": true},
      {"type": "ByteLevel", "add_prefix_space": false, "use_regex": true}]})"),
            "smollm");
  EXPECT_EQ(picked(R"({"type": "Sequence", "pretokenizers": [
      {"type": "Split", "pattern": {"Regex": "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"},
       "behavior": "Isolated", "invert": false},
      {"type": "ByteLevel", "add_prefix_space": false, "use_regex": false}]})"),
            "llama-bpe");
  EXPECT_EQ(picked(R"({"type": "Sequence", "pretokenizers": [
      {"type": "Split", "pattern": {"Regex": "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"},
       "behavior": "Isolated", "invert": false},
      {"type": "ByteLevel", "add_prefix_space": false, "use_regex": false}]})"),
            "qwen2");
  for (const char* refused : {
           "null",
           R"({"type": "Metaspace"})",
           R"({"type": "ByteLevel", "add_prefix_space": true})",
           R"({"type": "ByteLevel", "use_regex": false})",
           R"({"type": "Sequence", "pretokenizers": [
               {"type": "Digits", "individual_digits": false},
               {"type": "ByteLevel"}]})",
           R"({"type": "Sequence", "pretokenizers": [
               {"type": "Split", "pattern": {"Regex": "\\w+"},
                "behavior": "Isolated"},
               {"type": "ByteLevel", "use_regex": false}]})",
           R"({"type": "Sequence", "pretokenizers": [
               {"type": "ByteLevel"}, {"type": "ByteLevel"}]})",
       }) {
    EXPECT_THAT(picked(refused),
                ::testing::AllOf(HasSubstr("UNIMPLEMENTED"),
                                 HasSubstr("tokenizer.json: pre_tokenizer")))
        << refused;
  }
}

TEST(TokenizerJson, ReadsBosAndEosFromTheTemplate) {
  Json file = SmallFile();
  file["post_processor"] = Json::parse(R"({"type": "Sequence", "processors": [
      {"type": "ByteLevel"},
      {"type": "TemplateProcessing", "single": [
        {"SpecialToken": {"id": "<s>", "type_id": 0}},
        {"Sequence": {"id": "A", "type_id": 0}}]}]})");
  const auto spec = ReadTokenizerJson(file.dump());
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->bos_id, 4);
  EXPECT_EQ(spec->add_bos, true);
  EXPECT_EQ(spec->add_eos, false);
  file["post_processor"]["processors"][1]["single"][0]["SpecialToken"]["id"] =
      "<none>";
  EXPECT_THAT(Failure(file), HasSubstr("post_processor"));
  file["post_processor"] = Json::parse(R"({"type": "BertProcessing"})");
  EXPECT_THAT(Failure(file), HasSubstr("UNIMPLEMENTED"));
}

TEST(TokenizerJson, ReadsTheConfigBesideIt) {
  const std::string file = SmallFile().dump();
  const auto spec = ReadTokenizerJson(file, R"({
      "eos_token": "<s>", "bos_token": {"content": "<s>"}, "pad_token": null,
      "chat_template": "T"})");
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->eos_id, 4);
  EXPECT_EQ(spec->bos_id, 4);
  EXPECT_EQ(spec->padding_id, -1);
  EXPECT_EQ(spec->chat_template, "T");
  EXPECT_EQ(ReadTokenizerJson(file, R"({"chat_template": [
      {"name": "tool", "template": "X"}, {"name": "default", "template": "D"}
      ]})")
                ->chat_template,
            "D");
  EXPECT_EQ(
      ReadTokenizerJson(file, R"({"chat_template": "T"})", "J")->chat_template,
      "J");
  EXPECT_EQ(Failure(SmallFile(), R"({"eos_token": "<none>"})"),
            "INVALID_ARGUMENT: tokenizer_config.json: eos_token: given "
            "\"<none>\", want a token of the vocabulary");
  EXPECT_EQ(Failure(SmallFile(), "[]"),
            "INVALID_ARGUMENT: tokenizer_config.json: not a JSON object");
}

TEST(TokenizerJson, NamesWhatItDoesNotSupport) {
  const auto with = [](const char* pointer, const char* value) {
    Json file = SmallFile();
    file[Json::json_pointer(pointer)] = Json::parse(value);
    return Failure(file);
  };
  EXPECT_EQ(with("/normalizer", R"({"type": "NFC"})"),
            "UNIMPLEMENTED: tokenizer.json: normalizer: given type \"NFC\", "
            "want none");
  EXPECT_EQ(with("/model/type", "\"Unigram\""),
            "UNIMPLEMENTED: tokenizer.json: model.type: given \"Unigram\", "
            "want \"BPE\"");
  EXPECT_EQ(with("/model/byte_fallback", "true"),
            "UNIMPLEMENTED: tokenizer.json: model.byte_fallback: given true, "
            "want none");
  EXPECT_THAT(with("/model/dropout", "0.1"), HasSubstr("model.dropout"));
  EXPECT_THAT(with("/model/end_of_word_suffix", "\"</w>\""),
              HasSubstr("model.end_of_word_suffix"));
  EXPECT_THAT(with("/added_tokens/0/lstrip", "true"),
              HasSubstr("tokens without lstrip"));
}

TEST(TokenizerJson, HostileFilesGetOneClearError) {
  const auto with = [](const char* pointer, const char* value) {
    Json file = SmallFile();
    file[Json::json_pointer(pointer)] = Json::parse(value);
    const auto spec = ReadTokenizerJson(file.dump());
    return spec.ok() ? Tokenizer::Create(*spec).status().ToString()
                     : spec.status().ToString();
  };
  EXPECT_THAT(with("/model", "7"), HasSubstr("model.type"));
  EXPECT_THAT(with("/model/vocab", "[]"), HasSubstr("model.vocab"));
  EXPECT_THAT(with("/model/vocab/a", "-1"), HasSubstr("given -1, want an id"));
  EXPECT_THAT(with("/model/vocab/a", "4194304"), HasSubstr("want an id"));
  EXPECT_THAT(with("/model/vocab/a", "18446744073709551615"),
              HasSubstr("want an id"));
  EXPECT_THAT(with("/model/vocab/a", "1.5"), HasSubstr("want an id"));
  EXPECT_THAT(with("/model/vocab/a", "1"), HasSubstr("two tokens with id 1"));
  EXPECT_THAT(with("/model/vocab/a", "100"), HasSubstr("given 0 bytes"));
  EXPECT_THAT(with("/model/merges", "{}"), HasSubstr("model.merges"));
  EXPECT_THAT(with("/model/merges/0", "[\"a\"]"), HasSubstr("given an array"));
  EXPECT_THAT(with("/model/merges/0", "\"a z\""),
              HasSubstr("want a pair of tokens"));
  EXPECT_THAT(with("/added_tokens", "7"), HasSubstr("added_tokens"));
  EXPECT_THAT(with("/added_tokens/0", "[]"), HasSubstr("added_tokens"));
  EXPECT_THAT(with("/added_tokens/0/id", "null"), HasSubstr("added_tokens"));
  EXPECT_THAT(with("/post_processor", "[[[7]]]"), HasSubstr("post_processor"));

  EXPECT_EQ(ReadTokenizerJson("[]").status().message(),
            "tokenizer.json: not a JSON object");
  const std::string deep(1 << 20, '[');
  const std::string twice = R"({"model": {"type": "BPE", "type": "BPE"}})";
  for (const std::string& text :
       {std::string(), std::string("{"), std::string("{\"a\":"),
        std::string("\xFF"), twice, deep,
        "{\"pre_tokenizer\":" + deep + std::string(deep.size(), ']') + "}"}) {
    const absl::Status status = ReadTokenizerJson(text).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(status.message(), HasSubstr("tokenizer.json: "));
    EXPECT_LT(status.message().size(), 200u);
  }
}

TEST(TokenizerJson, EveryPrefixOfAFileFailsCleanly) {
  const std::string text = SmallFile().dump();
  for (size_t size = 0; size < text.size(); ++size) {
    EXPECT_FALSE(ReadTokenizerJson(text.substr(0, size)).ok());
  }
}

}  // namespace
}  // namespace lamina
