#include "lamina/model/unicode.h"

#include <algorithm>
#include <array>
#include <iterator>

namespace lamina::model_internal {
namespace {

// (first code point << 2 | class), sorted; an entry holds up to the next one.
constexpr uint32_t kClassRanges[] = {
#include "lamina/model/unicode_tables.inc"
};

constexpr uint8_t Byte(std::string_view text, size_t pos) {
  return static_cast<uint8_t>(text[pos]);
}

CharClass LookUp(char32_t code_point) {
  const uint32_t last_key = (static_cast<uint32_t>(code_point) << 2) | 3;
  const uint32_t* after = std::upper_bound(std::begin(kClassRanges),
                                           std::end(kClassRanges), last_key);
  return static_cast<CharClass>(*(after - 1) & 3);
}

std::array<CharClass, 128> AsciiClasses() {
  std::array<CharClass, 128> classes{};
  for (uint32_t c = 0; c < classes.size(); ++c) classes[c] = LookUp(c);
  return classes;
}

}  // namespace

CharClass ClassOf(char32_t code_point) {
  static const std::array<CharClass, 128> ascii = AsciiClasses();
  return code_point < ascii.size() ? ascii[code_point] : LookUp(code_point);
}

Utf8Part NextUtf8(std::string_view text, size_t pos) {
  const uint8_t lead = Byte(text, pos);
  if (lead < 0x80) return {.code_point = lead, .bytes = 1};

  // How many bytes follow, and between which bounds the first of them lies:
  // the bounds shut out overlong forms, surrogates and values past U+10FFFF.
  uint32_t following = 0;
  uint8_t low = 0x80;
  uint8_t high = 0xBF;
  char32_t value = 0;
  if (lead >= 0xC2 && lead <= 0xDF) {
    following = 1;
    value = lead & 0x1F;
  } else if (lead >= 0xE0 && lead <= 0xEF) {
    following = 2;
    value = lead & 0x0F;
    if (lead == 0xE0) low = 0xA0;
    if (lead == 0xED) high = 0x9F;
  } else if (lead >= 0xF0 && lead <= 0xF4) {
    following = 3;
    value = lead & 0x07;
    if (lead == 0xF0) low = 0x90;
    if (lead == 0xF4) high = 0x8F;
  } else {
    return {.bytes = 1, .kind = Utf8Kind::kIllFormed};
  }
  for (uint32_t i = 1; i <= following; ++i) {
    if (pos + i == text.size()) {
      return {.bytes = i, .kind = Utf8Kind::kIncomplete};
    }
    const uint8_t next = Byte(text, pos + i);
    if (next < low || next > high) {
      return {.bytes = i, .kind = Utf8Kind::kIllFormed};
    }
    value = (value << 6) | (next & 0x3F);
    low = 0x80;
    high = 0xBF;
  }
  return {.code_point = value, .bytes = following + 1};
}

size_t WellFormedPrefix(std::string_view text) {
  size_t pos = 0;
  while (pos < text.size()) {
    const Utf8Part part = NextUtf8(text, pos);
    if (part.kind != Utf8Kind::kWellFormed) break;
    pos += part.bytes;
  }
  return pos;
}

Character CharacterAt(std::string_view text, size_t pos) {
  if (pos >= text.size()) return {};
  const Utf8Part part = NextUtf8(text, pos);
  return {.code_point = part.code_point,
          .bytes = part.bytes,
          .char_class = ClassOf(part.code_point)};
}

}  // namespace lamina::model_internal
