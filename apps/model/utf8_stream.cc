#include "lamina/model/utf8_stream.h"

#include "lamina/model/unicode.h"

namespace lamina {
namespace {

using model_internal::NextUtf8;
using model_internal::Utf8Kind;
using model_internal::Utf8Part;

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

// Appends the text of `bytes` and returns how many of them were used: all but
// an incomplete character at the end.
size_t AppendWellFormed(std::string_view bytes, std::string& out) {
  size_t pos = 0;
  while (pos < bytes.size()) {
    const Utf8Part part = NextUtf8(bytes, pos);
    if (part.kind == Utf8Kind::kIncomplete) break;
    if (part.kind == Utf8Kind::kWellFormed) {
      out.append(bytes.substr(pos, part.bytes));
    } else {
      out.append(kReplacement);
    }
    pos += part.bytes;
  }
  return pos;
}

}  // namespace

std::string Utf8Stream::Push(int32_t id) {
  if (!tokenizer_.IsValid(id) || tokenizer_.IsControl(id)) return {};
  return PushBytes(tokenizer_.TokenBytes(id));
}

std::string Utf8Stream::PushBytes(std::string_view bytes) {
  held_.append(bytes);
  std::string text;
  held_.erase(0, AppendWellFormed(held_, text));
  return text;
}

std::string Utf8Stream::Finish() {
  std::string text;
  if (!held_.empty()) text = kReplacement;
  held_.clear();
  return text;
}

std::string ReplaceIllFormedUtf8(std::string_view bytes) {
  std::string text;
  text.reserve(bytes.size());
  if (AppendWellFormed(bytes, text) < bytes.size()) text.append(kReplacement);
  return text;
}

}  // namespace lamina
