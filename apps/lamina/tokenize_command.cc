#include <cstdio>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "apps/lamina/options.h"
#include "apps/lamina/support.h"
#include "lamina/core/status.h"
#include "lamina/model/checkpoint.h"
#include "lamina/model/tokenizer.h"
#include "lamina/model/utf8_stream.h"
#include "nlohmann/json.hpp"

namespace lamina::cli {
namespace {

// The bytes of a token as text for people: control characters as \n, \x01.
std::string Shown(std::string_view bytes) {
  std::string shown;
  for (const char c : ReplaceIllFormedUtf8(bytes)) {
    if (c == '\n') {
      shown += "\\n";
    } else if (c == '\t') {
      shown += "\\t";
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      shown += absl::StrFormat("\\x%02x", static_cast<unsigned char>(c));
    } else {
      shown += c;
    }
  }
  return shown;
}

}  // namespace

absl::StatusOr<int> RunTokenize(const TokenizeOptions& options) {
  LAMINA_ASSIGN_OR_RETURN([[maybe_unused]] const Stream stream,
                          MakeStream(options));
  if (!options.has_text && options.file.empty()) {
    return absl::InvalidArgumentError(
        "no text: give --text TEXT or --file FILE");
  }
  LAMINA_ASSIGN_OR_RETURN(const Checkpoint checkpoint,
                          Checkpoint::Open(options.model));
  LAMINA_ASSIGN_OR_RETURN(const Tokenizer tokenizer, LoadTokenizer(checkpoint));
  std::vector<std::string> texts = {options.text};
  if (!options.file.empty()) {
    LAMINA_ASSIGN_OR_RETURN(std::string file, ReadTextFile(options.file));
    if (!file.empty() && file.back() == '\n') file.pop_back();
    texts = absl::StrSplit(file, '\n');
  }
  for (const std::string& text : texts) {
    const std::vector<int32_t> ids =
        tokenizer.Encode(text, {.parse_special = options.special});
    if (options.json) {
      nlohmann::json pieces = nlohmann::json::array();
      for (const int32_t id : ids) {
        pieces.push_back(ReplaceIllFormedUtf8(tokenizer.TokenBytes(id)));
      }
      // One line a text, so that a file of texts can be read as JSON lines.
      std::printf(
          "%s\n",
          nlohmann::json({{"ids", ids}, {"pieces", pieces}}).dump().c_str());
      continue;
    }
    for (const int32_t id : ids) {
      absl::PrintF("%8d  %s\n", id, Shown(tokenizer.TokenBytes(id)));
    }
  }
  return kDone;
}

}  // namespace lamina::cli
