#pragma once

// Text -> words: the patterns that byte-level BPE tokenizers split with before
// they merge, written out by hand. As regular expressions:
//   gpt-2      's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+
//              |\s+(?!\S)|\s+
//   smollm     \p{N} isolated first, then gpt-2 on what is between
//   llama-bpe  (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}
//              | ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
//   qwen2      llama-bpe with \p{N} for \p{N}{1,3}

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lamina::model_internal {

enum class PreTokenizer : uint8_t { kGpt2, kSmollm, kLlama3, kQwen2 };

// By GGUF's name for it.
std::optional<PreTokenizer> PreTokenizerFromName(std::string_view name);

// The end of the word of `text` that begins at `pos`. `text` is well-formed
// UTF-8 and pos < text.size(). Words cover the text without gaps; splitting all
// of it looks at no byte more often than a few times.
size_t WordEnd(PreTokenizer pre_tokenizer, std::string_view text, size_t pos);

}  // namespace lamina::model_internal
