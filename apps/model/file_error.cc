#include "lamina/model/file_error.h"

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"

namespace lamina::model_internal {
namespace {

absl::string_view Absl(std::string_view text) {
  return {text.data(), text.size()};
}

}  // namespace

absl::Status BadFile(std::string_view file, uint64_t byte,
                     std::string_view message) {
  return absl::InvalidArgumentError(
      absl::StrCat(Absl(file), ": byte ", byte, ": ", Absl(message)));
}

absl::Status BadFile(std::string_view file, std::string_view message) {
  return absl::InvalidArgumentError(
      absl::StrCat(Absl(file), ": ", Absl(message)));
}

absl::Status NotSupported(std::string_view file, std::string_view message) {
  return absl::UnimplementedError(
      absl::StrCat(Absl(file), ": ", Absl(message)));
}

std::string Quoted(std::string_view name) {
  constexpr size_t kMax = 80;
  const bool cut = name.size() > kMax;
  const std::string_view shown = name.substr(0, kMax);
  const std::string text = IsUtf8(shown) ? absl::Utf8SafeCEscape(Absl(shown))
                                         : absl::CEscape(Absl(shown));
  return absl::StrCat("\"", text, cut ? "…\"" : "\"");
}

std::string ShapeText(const int64_t* dims, size_t count) {
  return absl::StrCat(
      "[", absl::StrJoin(absl::Span<const int64_t>(dims, count), ", "), "]");
}

bool IsUtf8(std::string_view text) {
  const auto byte = [&](size_t i) {
    return static_cast<unsigned char>(text[i]);
  };
  for (size_t i = 0; i < text.size();) {
    const unsigned lead = byte(i);
    if (lead < 0x80) {
      ++i;
      continue;
    }
    const size_t length = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
    if (lead < 0xc2 || lead > 0xf4 || text.size() - i < length) return false;
    for (size_t k = 1; k < length; ++k) {
      if ((byte(i + k) & 0xc0u) != 0x80u) return false;
    }
    // Overlong forms, surrogates, and above U+10FFFF.
    const unsigned second = byte(i + 1);
    if ((lead == 0xe0 && second < 0xa0) || (lead == 0xed && second > 0x9f) ||
        (lead == 0xf0 && second < 0x90) || (lead == 0xf4 && second > 0x8f)) {
      return false;
    }
    i += length;
  }
  return true;
}

}  // namespace lamina::model_internal
