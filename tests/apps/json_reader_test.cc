#include "lamina/model/json_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <string>

#include "lamina/model/file_error.h"

namespace lamina {
namespace {

using model_internal::IsUtf8;
using model_internal::JsonLimits;
using model_internal::ParseJson;
using model_internal::Quoted;
using ::testing::HasSubstr;

std::string Message(const std::string& text, const JsonLimits& limits = {}) {
  const auto json = ParseJson("f.json", text, limits, 100);
  EXPECT_FALSE(json.ok()) << text;
  return std::string(json.status().message());
}

TEST(ParseJson, BuildsTheValue) {
  const std::string text =
      R"( {"a": [1, -2, 3.5, "x", true, null, {}], "b": {"c": [[]]}} )";
  std::map<std::string, uint64_t, std::less<>> positions;
  const auto json = ParseJson("f.json", text, {}, 100, &positions);
  ASSERT_TRUE(json.ok()) << json.status();
  EXPECT_EQ(*json, nlohmann::json::parse(text));
  ASSERT_EQ(positions.size(), 2u);
  // The byte of the key, give or take the parser's look-ahead.
  EXPECT_NEAR(static_cast<double>(positions.at("a")), 104, 2);
}

TEST(ParseJson, RefusesWhatIsNotStrict) {
  EXPECT_THAT(Message(R"({"a":1,"a":2})"), HasSubstr("key \"a\" occurs twice"));
  EXPECT_THAT(Message(R"([{"x":{"a":1,"a":2}}])"), HasSubstr("occurs twice"));
  EXPECT_THAT(Message(R"({"a":1,"\u0061":2})"), HasSubstr("occurs twice"));
  for (const char* text :
       {"", " ", "{", "[1,]", "{\"a\":}", "{a:1}", "nul", "01", "1 2", "[NaN]",
        "\"\x01\"", "\"\xff\"", "\"\xed\xa0\x80\"", "'a'", "[1]//", "1e999"}) {
    EXPECT_THAT(Message(text), HasSubstr("f.json: byte 10")) << text;
  }
  EXPECT_THAT(Message("[1, }"), HasSubstr("not valid JSON"));
}

TEST(ParseJson, KeepsItsLimits) {
  EXPECT_THAT(Message("[[[[1]]]]", {.depth = 3}),
              HasSubstr("byte 104: nested more than 3 deep"));
  EXPECT_TRUE(ParseJson("f", "[[[1]]]", {.depth = 3}).ok());
  EXPECT_THAT(Message("[1,2,3]", {.values = 3}),
              HasSubstr("more than 3 values"));
  EXPECT_THAT(Message("[1,2,3]", {.bytes = 6}),
              HasSubstr("JSON of 7 bytes, at most 6 allowed"));
  // Deep input ends at the limit, not on the stack.
  EXPECT_THAT(Message(std::string(5'000'000, '[')), HasSubstr("32 deep"));
}

TEST(ParseJson, MessagesStayShort) {
  const std::string message =
      Message(std::string("[\"").append(1'000'000, 'x'));
  EXPECT_LT(message.size(), 300u);
}

TEST(Quoted, EscapesAndCuts) {
  EXPECT_EQ(Quoted("a\n\"b"), "\"a\\n\\\"b\"");
  EXPECT_EQ(Quoted("ž"), "\"ž\"");
  EXPECT_EQ(Quoted("\xff"), "\"\\377\"");
  EXPECT_LT(Quoted(std::string(1000, 'x')).size(), 100u);
}

TEST(IsUtf8, KnowsItsRules) {
  for (const char* good :
       {"", "a", "\xc2\x80", "\xe0\xa0\x80", "\xed\x9f\xbf", "\xee\x80\x80",
        "\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbf"}) {
    EXPECT_TRUE(IsUtf8(good));
  }
  for (const char* bad :
       {"\x80", "\xc0\x80", "\xc1\xbf", "\xe0\x9f\xbf", "\xed\xa0\x80",
        "\xf0\x8f\xbf\xbf", "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xc2",
        "\xe2\x82", "\xf0\x90\x80", "a\xffz"}) {
    EXPECT_FALSE(IsUtf8(bad));
  }
}

}  // namespace
}  // namespace lamina
