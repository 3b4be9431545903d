#include "lamina/model/tokenizer.h"

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lamina/model/tokenizer_split.h"
#include "lamina/model/unicode.h"
#include "lamina/model/utf8_stream.h"

namespace lamina {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int32_t kControl = static_cast<int32_t>(TokenType::kControl);
constexpr int32_t kUserDefined = static_cast<int32_t>(TokenType::kUserDefined);

// ids: a 0, b 1, c 2, space 3, "ab" 4, "bc" 5, "abc" 6, " a" 7, <|end|> 8,
// <tool> 9, <tool_x> 10, the three bytes of U+FFFD 11 12 13.
TokenizerSpec SmallSpec() {
  TokenizerSpec spec;
  spec.pre_tokenizer = "gpt-2";
  spec.tokens = {"a",        "b",      "c",       "\u0120",  "ab",
                 "bc",       "abc",    "\u0120a", "<|end|>", "<tool>",
                 "<tool_x>", "\u00EF", "\u00BF",  "\u00BD"};
  spec.types.assign(spec.tokens.size(), 1);
  spec.types[8] = kControl;
  spec.types[9] = kUserDefined;
  spec.types[10] = kUserDefined;
  spec.merges = {"b c", "a b", "a bc", "\u0120 a"};
  return spec;
}
Tokenizer Small() { return *Tokenizer::Create(SmallSpec()); }

std::vector<std::string> Words(const char* name, std::string_view text) {
  const auto pre = *model_internal::PreTokenizerFromName(name);
  std::vector<std::string> words;
  for (size_t pos = 0; pos < text.size();) {
    const size_t end = model_internal::WordEnd(pre, text, pos);
    words.emplace_back(text.substr(pos, end - pos));
    pos = end;
  }
  return words;
}

TEST(Tokenizer, MergesTheLowestRankFirst) {
  const Tokenizer tokenizer = Small();
  // "b c" comes before "a b", so "abc" is a + bc, and then abc.
  EXPECT_THAT(tokenizer.Encode("abc"), ElementsAre(6));
  EXPECT_THAT(tokenizer.Encode("ab"), ElementsAre(4));
  EXPECT_THAT(tokenizer.Encode("abab"), ElementsAre(4, 4));
  EXPECT_THAT(tokenizer.Encode("cba"), ElementsAre(2, 1, 0));
  // " a" comes last: it loses its "a" to "ab" and "abc".
  EXPECT_THAT(tokenizer.Encode("a ab abc a"), ElementsAre(0, 3, 4, 3, 6, 7));
  EXPECT_THAT(tokenizer.Encode(""), IsEmpty());
}

TEST(Tokenizer, MergesTheLeftmostOfEquals) {
  TokenizerSpec spec;
  spec.pre_tokenizer = "gpt-2";
  spec.tokens = {"a", "aa"};
  spec.merges = {"a a"};
  const Tokenizer tokenizer = *Tokenizer::Create(spec);
  EXPECT_THAT(tokenizer.Encode("aaaaa"), ElementsAre(1, 1, 0));
}

TEST(Tokenizer, DropsBytesWithoutTokenAndMergesNothingAcrossThem) {
  const Tokenizer tokenizer = Small();
  EXPECT_THAT(tokenizer.Encode("axb"), ElementsAre(0, 1));
  EXPECT_THAT(tokenizer.Encode("xyz"), IsEmpty());
  EXPECT_THAT(tokenizer.Encode("xab"), ElementsAre(4));
}

TEST(Tokenizer, IllFormedUtf8BecomesTheReplacementCharacter) {
  const Tokenizer tokenizer = Small();
  const std::vector<int32_t> fffd = {0, 11, 12, 13, 1};
  for (const char* bytes :
       {"\xFF", "\x80", "\xE2\x82", "\xF0\x9F\x98", "\xC3"}) {
    EXPECT_EQ(tokenizer.Encode(std::string("a") + bytes + "b"), fffd);
  }
  EXPECT_THAT(tokenizer.Encode("\xC0\xAF"),  // overlong: two parts
              ElementsAre(11, 12, 13, 11, 12, 13));
  EXPECT_THAT(tokenizer.Encode("ab\xE2\x82"), ElementsAre(4, 11, 12, 13));
}

TEST(Tokenizer, ControlTokensInTextStayText) {
  TokenizerSpec spec = SmallSpec();
  spec.tokens[8] = "<|a|>";
  const Tokenizer tokenizer = *Tokenizer::Create(spec);
  EXPECT_THAT(tokenizer.Encode("<|a|>"), ElementsAre(0));
  EXPECT_THAT(tokenizer.Encode("b<|a|>b", {.parse_special = true}),
              ElementsAre(1, 8, 1));
  EXPECT_THAT(tokenizer.Encode("<|a|", {.parse_special = true}),
              ElementsAre(0));
}

TEST(Tokenizer, UserDefinedTokensAreFoundLongestFirst) {
  const Tokenizer tokenizer = Small();
  EXPECT_THAT(tokenizer.Encode("a<tool>b<tool_x>"), ElementsAre(0, 9, 1, 10));
  EXPECT_EQ(tokenizer.SpecialId("<tool>"), 9);
  EXPECT_EQ(tokenizer.SpecialId("<|end|>"), 8);
  EXPECT_EQ(tokenizer.SpecialId("abc"), -1);
}

TEST(Tokenizer, DecodesBytesAndSkipsControlTokens) {
  const Tokenizer tokenizer = Small();
  const std::vector<int32_t> ids = {6, 8, 7, 9, 11};
  EXPECT_EQ(*tokenizer.Decode(ids), "abc a<tool>\xEF");
  EXPECT_EQ(*tokenizer.Decode(ids, {.skip_control = false}),
            "abc<|end|> a<tool>\xEF");
  for (const int32_t id : {-1, 14, 1 << 30}) {
    const auto bad = tokenizer.Decode({id});
    EXPECT_EQ(bad.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(bad.status().message(), HasSubstr("want 0 to 13"));
  }
}

TEST(Tokenizer, AddsBosAndEosWhenTheFileSaysSo) {
  TokenizerSpec spec = SmallSpec();
  spec.bos_id = 8;
  spec.eos_id = 8;
  EXPECT_THAT(Tokenizer::Create(spec)->Encode("a"), ElementsAre(0));
  spec.add_bos = true;
  spec.add_eos = true;
  EXPECT_THAT(Tokenizer::Create(spec)->Encode("a"), ElementsAre(8, 0, 8));
  EXPECT_THAT(Tokenizer::Create(spec)->Encode("a", {.add_special = false}),
              ElementsAre(0));
  // Llama-3 files leave it out.
  spec.pre_tokenizer = "llama-bpe";
  spec.add_bos.reset();
  spec.add_eos.reset();
  EXPECT_THAT(Tokenizer::Create(spec)->Encode("a"), ElementsAre(8, 0));
}

TEST(Tokenizer, LlamaTakesWholeWordsWithoutMerging) {
  TokenizerSpec spec = SmallSpec();
  spec.tokens.push_back("bca");
  spec.types.push_back(1);
  EXPECT_THAT(Tokenizer::Create(spec)->Encode("bca"), ElementsAre(5, 0));
  spec.pre_tokenizer = "llama-bpe";
  EXPECT_THAT(Tokenizer::Create(spec)->Encode("bca"), ElementsAre(14));
  spec.ignore_merges = false;
  EXPECT_THAT(Tokenizer::Create(spec)->Encode("bca"), ElementsAre(5, 0));
}

TEST(Tokenizer, StopIds) {
  TokenizerSpec spec = SmallSpec();
  EXPECT_THAT(Tokenizer::Create(spec)->stop_ids(), IsEmpty());
  spec.tokens[8] = "<|im_end|>";
  spec.eos_id = 2;
  spec.eot_id = 1;
  spec.stop_ids = {1, 0};
  const Tokenizer tokenizer = *Tokenizer::Create(spec);
  EXPECT_THAT(tokenizer.stop_ids(), ElementsAre(0, 1, 2, 8));
  EXPECT_TRUE(tokenizer.IsStop(8));
  EXPECT_FALSE(tokenizer.IsStop(3));
  EXPECT_EQ(tokenizer.eos_id(), 2);
  EXPECT_EQ(tokenizer.bos_id(), -1);
}

TEST(Tokenizer, ALongWordTakesAboutASecondAtMost) {
  TokenizerSpec spec;
  spec.pre_tokenizer = "gpt-2";
  std::string run = "a";
  spec.tokens = {run};
  while (run.size() < 64) {
    spec.merges.push_back(run + " " + run);
    run += run;
    spec.tokens.push_back(run);
  }
  const Tokenizer tokenizer = *Tokenizer::Create(spec);
  const auto begin = std::chrono::steady_clock::now();
  const auto ids = tokenizer.Encode(std::string(1 << 20, 'a'));
  const std::chrono::duration<double> took =
      std::chrono::steady_clock::now() - begin;
  EXPECT_EQ(ids.size(), (1u << 20) / 64);
  EXPECT_LT(took.count(), 10.0);  // quadratic work would take hours
}

TEST(Tokenizer, LongTextOfEveryKindIsLinear) {
  for (const char* pre : {"gpt-2", "smollm", "llama-bpe", "qwen2"}) {
    TokenizerSpec spec = SmallSpec();
    spec.pre_tokenizer = pre;
    const Tokenizer each = *Tokenizer::Create(spec);
    for (const char* unit : {" ", "\n", "\n ", " \n", "1", " 1", "!", "'",
                             "\u00a0", "<tool", "<", "\xF0"}) {
      std::string text;
      while (text.size() < (1 << 18)) text += unit;
      (void)each.Encode(text);
    }
  }
}

TEST(Tokenizer, ThreadsShareOne) {
  const Tokenizer tokenizer = Small();
  std::vector<std::thread> threads;
  std::vector<std::vector<int32_t>> ids(4);
  for (size_t i = 0; i < ids.size(); ++i) {
    threads.emplace_back([&, i] {
      for (int repeat = 0; repeat < 100; ++repeat) {
        ids[i] = tokenizer.Encode("abc <tool>ab a\xFF");
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& each : ids) EXPECT_EQ(each, ids[0]);
}

struct BadSpec {
  const char* name;
  void (*change)(TokenizerSpec&);
  absl::StatusCode code;
  const char* message;
};
class HostileSpec : public ::testing::TestWithParam<BadSpec> {};

TEST_P(HostileSpec, GetsOneClearError) {
  TokenizerSpec spec = SmallSpec();
  GetParam().change(spec);
  const auto tokenizer = Tokenizer::Create(spec);
  ASSERT_FALSE(tokenizer.ok());
  EXPECT_EQ(tokenizer.status().code(), GetParam().code);
  EXPECT_EQ(tokenizer.status().message(), GetParam().message);
}

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
constexpr auto kUnimplemented = absl::StatusCode::kUnimplemented;

const BadSpec kBadSpecs[] = {
    {"no_tokens",
     [](TokenizerSpec& s) {
       s.tokens.clear();
       s.types.clear();
     },
     kInvalid, "Tokenizer: tokens: given 0, want 1 to 4194304"},
    {"too_many_tokens",
     [](TokenizerSpec& s) { s.tokens.resize((1 << 22) + 1, "x"); }, kInvalid,
     "Tokenizer: tokens: given 4194305, want 1 to 4194304"},
    {"too_many_merges",
     [](TokenizerSpec& s) { s.merges.resize((1 << 22) + 1, "a b"); }, kInvalid,
     "Tokenizer: merges: given 4194305, want at most 4194304"},
    {"empty_token", [](TokenizerSpec& s) { s.tokens[2].clear(); }, kInvalid,
     "Tokenizer: token 2: given 0 bytes, want 1 to 65536"},
    {"huge_token", [](TokenizerSpec& s) { s.tokens[2].assign(65537, 'x'); },
     kInvalid, "Tokenizer: token 2: given 65537 bytes, want 1 to 65536"},
    {"duplicate_token", [](TokenizerSpec& s) { s.tokens[5] = "ab"; }, kInvalid,
     "Tokenizer: token 5: given \"ab\", which is token 4, want tokens that "
     "differ"},
    {"type_count", [](TokenizerSpec& s) { s.types.pop_back(); }, kInvalid,
     "Tokenizer: token types: given 13, want 14 (one for each token)"},
    {"type_range", [](TokenizerSpec& s) { s.types[3] = 7; }, kInvalid,
     "Tokenizer: type of token 3: given 7, want 0 to 6"},
    {"merge_without_space", [](TokenizerSpec& s) { s.merges[1] = "ab"; },
     kInvalid, "Tokenizer: merge 1: given \"ab\", want \"left right\""},
    {"merge_of_three", [](TokenizerSpec& s) { s.merges[1] = "a b c"; },
     kInvalid, "Tokenizer: merge 1: given \"a b c\", want \"left right\""},
    {"empty_merge", [](TokenizerSpec& s) { s.merges[1].clear(); }, kInvalid,
     "Tokenizer: merge 1: given \"\", want \"left right\""},
    {"merge_half", [](TokenizerSpec& s) { s.merges[1] = "a "; }, kInvalid,
     "Tokenizer: merge 1: given \"a \", want \"left right\""},
    {"unknown_part", [](TokenizerSpec& s) { s.merges[1] = "a z\n"; }, kInvalid,
     "Tokenizer: merge 1: given \"a z\\n\", want a pair of tokens"},
    {"unknown_result", [](TokenizerSpec& s) { s.merges[1] = "b a"; }, kInvalid,
     "Tokenizer: merge 1: given \"b a\", want a pair that makes a token"},
    {"duplicate_merge", [](TokenizerSpec& s) { s.merges[3] = "b c"; }, kInvalid,
     "Tokenizer: merge 3: given \"b c\", want merges that differ"},
    {"bos_range", [](TokenizerSpec& s) { s.bos_id = 14; }, kInvalid,
     "Tokenizer: bos id: given 14, want a token, 0 to 13, or -1"},
    {"eos_range", [](TokenizerSpec& s) { s.eos_id = -2; }, kInvalid,
     "Tokenizer: eos id: given -2, want a token, 0 to 13, or -1"},
    {"stop_range", [](TokenizerSpec& s) { s.stop_ids = {-1}; }, kInvalid,
     "Tokenizer: stop id: given -1, want a token, 0 to 13"},
    {"no_bos", [](TokenizerSpec& s) { s.add_bos = true; }, kInvalid,
     "Tokenizer: bos id: given none, want a token, since add_bos is set"},
    {"no_eos", [](TokenizerSpec& s) { s.add_eos = true; }, kInvalid,
     "Tokenizer: eos id: given none, want a token, since add_eos is set"},
    {"sentencepiece", [](TokenizerSpec& s) { s.model = "llama"; },
     kUnimplemented,
     "Tokenizer: model: given \"llama\", want \"gpt2\" (byte-level BPE)"},
    {"space_prefix", [](TokenizerSpec& s) { s.add_space_prefix = true; },
     kUnimplemented, "Tokenizer: add_space_prefix: given true, want false"},
    {"pre_tokenizer", [](TokenizerSpec& s) { s.pre_tokenizer = "tekken"; },
     kUnimplemented,
     "Tokenizer: pre-tokenizer: given \"tekken\", want one of gpt-2, smollm, "
     "llama-bpe, llama3, qwen2"},
};
INSTANTIATE_TEST_SUITE_P(Create, HostileSpec, ::testing::ValuesIn(kBadSpecs),
                         [](const auto& test) { return test.param.name; });

TEST(WordEnd, Gpt2) {
  EXPECT_THAT(
      Words("gpt-2", "I'm 42  years!!\n\n ok"),
      ElementsAre("I", "'m", " 42", " ", " years", "!!", "\n\n", " ok"));
  EXPECT_THAT(Words("gpt-2", "a  "), ElementsAre("a", "  "));
  EXPECT_THAT(Words("gpt-2", "'S'll"), ElementsAre("'", "S", "'ll"));
}

TEST(WordEnd, SmollmIsolatesNumbers) {
  EXPECT_THAT(Words("smollm", "x²  12 ½ⅷ"),
              ElementsAre("x", "²", "  ", "1", "2", " ", "½", "ⅷ"));
}

TEST(WordEnd, LlamaAndQwen) {
  EXPECT_THAT(Words("llama-bpe", "It'S 12345\t\tok!\n\n \nx"),
              ElementsAre("It", "'S", " ", "123", "45", "\t", "\tok", "!\n\n",
                          " \n", "x"));
  EXPECT_THAT(Words("qwen2", "(ab) 12"),
              ElementsAre("(ab", ")", " ", "1", "2"));
}

TEST(Unicode, Classes) {
  using model_internal::CharClass;
  using model_internal::ClassOf;
  for (const char32_t c :
       {U'a', U'Z', U'é', U'日', U'ع', U'ª', U'\U00020000', U'\U0002A6D6'}) {
    EXPECT_EQ(ClassOf(c), CharClass::kLetter) << uint32_t{c};
  }
  for (const char32_t c :
       {U'0', U'9', U'²', U'½', U'ⅷ', U'①', U'٣', U'\U0001D7CE'}) {
    EXPECT_EQ(ClassOf(c), CharClass::kNumber) << uint32_t{c};
  }
  for (const char32_t c : {U' ', U'\t', U'\n', U'\v', U'\f', U'\r', U'\x85',
                           U'\xA0', U'\u1680', U'\u2000', U'\u200A', U'\u2028',
                           U'\u2029', U'\u202F', U'\u205F', U'\u3000'}) {
    EXPECT_EQ(ClassOf(c), CharClass::kSpace) << uint32_t{c};
  }
  for (const char32_t c :
       {U'!', U'_', U'\0', U'\x7F', U'\u0301', U'\u200B', U'\uFEFF', U'\u2027',
        U'😀', U'\U0010FFFF', U'\u0378'}) {
    EXPECT_EQ(ClassOf(c), CharClass::kOther) << uint32_t{c};
  }
  // How many there are in Unicode 16.
  int letters = 0, numbers = 0, spaces = 0;
  for (char32_t c = 0; c <= 0x10FFFF; ++c) {
    letters += ClassOf(c) == CharClass::kLetter;
    numbers += ClassOf(c) == CharClass::kNumber;
    spaces += ClassOf(c) == CharClass::kSpace;
  }
  EXPECT_EQ(letters, 141028);
  EXPECT_EQ(numbers, 1911);
  EXPECT_EQ(spaces, 25);
}

TEST(Utf8, ReplacesMaximalIllFormedParts) {
  const std::string r = "\xEF\xBF\xBD";
  EXPECT_EQ(ReplaceIllFormedUtf8("aé日😀"), "aé日😀");
  EXPECT_EQ(ReplaceIllFormedUtf8("\xC3("), r + "(");
  EXPECT_EQ(ReplaceIllFormedUtf8("\xE2\x82"), r);
  EXPECT_EQ(ReplaceIllFormedUtf8("\xE2\x82 \xE2"), r + " " + r);
  EXPECT_EQ(ReplaceIllFormedUtf8("\xF0\x9F\x98"), r);
  EXPECT_EQ(ReplaceIllFormedUtf8("\xED\xA0\x80"), r + r + r);  // surrogate
  EXPECT_EQ(ReplaceIllFormedUtf8("\xF4\x90\x80\x80"), r + r + r + r);
  EXPECT_EQ(ReplaceIllFormedUtf8("\xC0\x80\xFF"), r + r + r);
  EXPECT_EQ(ReplaceIllFormedUtf8("\xE0\x80\xAF"), r + r + r);  // overlong
  EXPECT_EQ(ReplaceIllFormedUtf8("\xF0\x80\x80\x80"), r + r + r + r);
  EXPECT_EQ(ReplaceIllFormedUtf8(std::string("\0x", 2)), std::string("\0x", 2));
}

TEST(Utf8Stream, HoldsBackWhatIsNotComplete) {
  Utf8Stream stream(Small());
  EXPECT_EQ(stream.PushBytes("a\xF0"), "a");
  EXPECT_EQ(stream.PushBytes("\x9F\x98"), "");
  EXPECT_EQ(stream.PushBytes("\x80!"), "😀!");
  EXPECT_EQ(stream.PushBytes("\xE2\x82"), "");
  EXPECT_EQ(stream.PushBytes("x"), "\xEF\xBF\xBDx");
  EXPECT_EQ(stream.PushBytes("\xE2\x82"), "");
  EXPECT_EQ(stream.Finish(), "\xEF\xBF\xBD");
  EXPECT_EQ(stream.Finish(), "");
  EXPECT_EQ(stream.PushBytes("\xAC"), "\xEF\xBF\xBD");  // nothing was kept
}

TEST(Utf8Stream, EverySplitGivesTheSameText) {
  const std::string bytes = "aé\xE2\x82日\xF0\x9F😀\xFFz\xED\xA0\x80\xC3";
  const std::string want = ReplaceIllFormedUtf8(bytes);
  for (size_t i = 0; i <= bytes.size(); ++i) {
    for (size_t j = i; j <= bytes.size(); ++j) {
      Utf8Stream stream(Small());
      std::string text = stream.PushBytes(bytes.substr(0, i));
      text += stream.PushBytes(bytes.substr(i, j - i));
      text += stream.PushBytes(bytes.substr(j));
      text += stream.Finish();
      EXPECT_EQ(text, want) << i << " " << j;
    }
  }
}

TEST(Utf8Stream, SkipsControlTokensAndStrangeIds) {
  Utf8Stream stream(Small());
  EXPECT_EQ(stream.Push(6), "abc");
  EXPECT_EQ(stream.Push(8), "");
  EXPECT_EQ(stream.Push(-1), "");
  EXPECT_EQ(stream.Push(14), "");
  EXPECT_EQ(stream.Push(9), "<tool>");
  EXPECT_EQ(stream.Push(11), "");
  EXPECT_EQ(stream.Push(8), "");
  EXPECT_EQ(stream.Push(12), "");
  EXPECT_EQ(stream.Push(13), "\xEF\xBF\xBD");
}

}  // namespace
}  // namespace lamina
