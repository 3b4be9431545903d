#pragma once

// The little of Unicode that splitting text into words needs: UTF-8, and
// whether a code point is a letter, a number or white space.

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace lamina::model_internal {

enum class CharClass : uint8_t { kOther, kLetter, kNumber, kSpace, kEnd };

// \p{L}, \p{N}, White_Space, or other (unassigned code points too).
CharClass ClassOf(char32_t code_point);

enum class Utf8Kind : uint8_t {
  kWellFormed,
  kIllFormed,   // a maximal ill-formed part, as U+FFFD replaces it
  kIncomplete,  // the text ends within what may become a character
};
struct Utf8Part {
  char32_t code_point = 0;  // of a well-formed part
  uint32_t bytes = 0;
  Utf8Kind kind = Utf8Kind::kWellFormed;
};
// The part that begins at `pos` < text.size(); see The Unicode Standard, table
// 3-7 and "U+FFFD Substitution of Maximal Subparts".
Utf8Part NextUtf8(std::string_view text, size_t pos);

// The length of the longest prefix of `text` that is well-formed.
size_t WellFormedPrefix(std::string_view text);

// A character of well-formed text with its class; kEnd and 0 bytes at the end.
struct Character {
  char32_t code_point = 0;
  uint32_t bytes = 0;
  CharClass char_class = CharClass::kEnd;
};
Character CharacterAt(std::string_view text, size_t pos);

}  // namespace lamina::model_internal
