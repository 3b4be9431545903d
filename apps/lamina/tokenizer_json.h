#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "lamina/model/checkpoint.h"

namespace lamina::cli {

// A GGUF file's tokenizer as the two files that Hugging Face's libraries, and
// Tokenizer::FromTokenizerJson, read.
struct TokenizerFiles {
  std::string tokenizer_json;
  std::string tokenizer_config_json;
};
absl::StatusOr<TokenizerFiles> TokenizerFilesFromGguf(
    const GgufTokenizer& gguf);

}  // namespace lamina::cli
