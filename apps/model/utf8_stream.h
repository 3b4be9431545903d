#pragma once

// Text from tokens as they come. A token may end within a character: such bytes
// are held back until the character is complete, so what is printed is always
// valid UTF-8. Ill-formed bytes become U+FFFD, one for each maximal ill-formed
// part; at the end, so does a character that never became complete.
//
//   Utf8Stream stream(tokenizer);
//   for (int32_t id : ids) out << stream.Push(id);
//   out << stream.Finish();

#include <cstdint>
#include <string>
#include <string_view>

#include "lamina/model/tokenizer.h"

namespace lamina {

class Utf8Stream {
 public:
  explicit Utf8Stream(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  // The text that this token completes; often one word, sometimes nothing.
  // Control tokens, and ids outside the vocabulary, add nothing.
  std::string Push(int32_t id);
  std::string PushBytes(std::string_view bytes);
  // Ends the text; the stream can then be used for another one.
  std::string Finish();

 private:
  Tokenizer tokenizer_;  // shares its tables
  std::string held_;     // a prefix of one well-formed character, < 4 bytes
};

// `bytes` with every maximal ill-formed part replaced by U+FFFD.
std::string ReplaceIllFormedUtf8(std::string_view bytes);

}  // namespace lamina
