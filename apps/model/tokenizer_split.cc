#include "lamina/model/tokenizer_split.h"

#include "lamina/model/unicode.h"

namespace lamina::model_internal {
namespace {

constexpr bool IsNewline(const Character& c) {
  return c.code_point == '\r' || c.code_point == '\n';
}

// The end of the run of characters of one class that begins at `pos`.
size_t RunEnd(std::string_view text, size_t pos, CharClass char_class) {
  for (;;) {
    const Character c = CharacterAt(text, pos);
    if (c.char_class != char_class) return pos;
    pos += c.bytes;
  }
}

// 's 't 'm 'd 're 've 'll at `pos`: their length, or 0.
size_t ContractionBytes(std::string_view text, size_t pos, bool any_case) {
  const auto at = [&](size_t i) -> char {
    if (pos + i >= text.size()) return 0;
    const char c = text[pos + i];
    return any_case && c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  };
  if (at(0) != '\'') return 0;
  const char a = at(1);
  if (a == 's' || a == 't' || a == 'm' || a == 'd') return 2;
  const char b = at(2);
  const bool two = (a == 'r' && b == 'e') || (a == 'v' && b == 'e') ||
                   (a == 'l' && b == 'l');
  return two ? 3 : 0;
}

struct SpaceRun {
  size_t end = 0;
  size_t last = 0;           // where its last character begins
  size_t after_newline = 0;  // behind its last CR or LF; 0: none
};
SpaceRun SpaceRunAt(std::string_view text, size_t pos) {
  SpaceRun run{.end = pos, .last = pos};
  for (;;) {
    const Character c = CharacterAt(text, run.end);
    if (c.char_class != CharClass::kSpace) return run;
    run.last = run.end;
    run.end += c.bytes;
    if (IsNewline(c)) run.after_newline = run.end;
  }
}

// \s+(?!\S)|\s+ : all of the run where the text ends; elsewhere all but its
// last character, which the next word may take.
size_t SpaceWordEnd(size_t pos, const SpaceRun& run, bool text_ends) {
  return text_ends || run.last == pos ? run.end : run.last;
}

// With `isolate_numbers`, a number is a word of its own, and the text on either
// side of it ends there.
size_t Gpt2WordEnd(std::string_view text, size_t pos, bool isolate_numbers) {
  if (const size_t bytes = ContractionBytes(text, pos, false)) {
    return pos + bytes;
  }
  const size_t start = pos + (text[pos] == ' ');
  const Character first = CharacterAt(text, start);
  if (isolate_numbers && first.char_class == CharClass::kNumber) {
    return start == pos ? pos + first.bytes : start;
  }
  if (first.char_class != CharClass::kSpace &&
      first.char_class != CharClass::kEnd) {
    return RunEnd(text, start, first.char_class);
  }
  const SpaceRun run = SpaceRunAt(text, pos);
  const CharClass next = CharacterAt(text, run.end).char_class;
  return SpaceWordEnd(pos, run,
                      next == CharClass::kEnd ||
                          (isolate_numbers && next == CharClass::kNumber));
}

size_t Llama3WordEnd(std::string_view text, size_t pos, int max_digits) {
  if (const size_t bytes = ContractionBytes(text, pos, true)) {
    return pos + bytes;
  }
  const Character c = CharacterAt(text, pos);
  if (c.char_class == CharClass::kLetter) {
    return RunEnd(text, pos, CharClass::kLetter);
  }
  if (c.char_class == CharClass::kNumber) {
    for (int i = 0; i < max_digits; ++i) {
      const Character digit = CharacterAt(text, pos);
      if (digit.char_class != CharClass::kNumber) break;
      pos += digit.bytes;
    }
    return pos;
  }
  const size_t second = pos + c.bytes;
  if (!IsNewline(c) &&
      CharacterAt(text, second).char_class == CharClass::kLetter) {
    return RunEnd(text, second, CharClass::kLetter);
  }
  const size_t start = pos + (text[pos] == ' ');
  if (CharacterAt(text, start).char_class == CharClass::kOther) {
    size_t end = RunEnd(text, start, CharClass::kOther);
    while (end < text.size() && (text[end] == '\r' || text[end] == '\n')) ++end;
    return end;
  }
  const SpaceRun run = SpaceRunAt(text, pos);
  if (run.after_newline != 0) return run.after_newline;
  return SpaceWordEnd(pos, run, run.end == text.size());
}

}  // namespace

std::optional<PreTokenizer> PreTokenizerFromName(std::string_view name) {
  if (name == "gpt-2") return PreTokenizer::kGpt2;
  if (name == "smollm") return PreTokenizer::kSmollm;
  if (name == "llama-bpe" || name == "llama3") return PreTokenizer::kLlama3;
  if (name == "qwen2") return PreTokenizer::kQwen2;
  return std::nullopt;
}

size_t WordEnd(PreTokenizer pre_tokenizer, std::string_view text, size_t pos) {
  switch (pre_tokenizer) {
    case PreTokenizer::kGpt2:
      return Gpt2WordEnd(text, pos, false);
    case PreTokenizer::kSmollm:
      return Gpt2WordEnd(text, pos, true);
    case PreTokenizer::kLlama3:
      return Llama3WordEnd(text, pos, 3);
    case PreTokenizer::kQwen2:
      return Llama3WordEnd(text, pos, 1);
  }
  return text.size();
}

}  // namespace lamina::model_internal
