#pragma once

// Byte-level BPE, as GPT-2 defined it and as Llama-3-, SmolLM- and Qwen2-type
// models use it: text -> words -> byte symbols -> merges by rank -> ids.
//
//   LAMINA_ASSIGN_OR_RETURN(Tokenizer tokenizer, LoadTokenizer(checkpoint));
//   std::vector<int32_t> ids = tokenizer.Encode("Hello, world");
//   LAMINA_ASSIGN_OR_RETURN(std::string text, tokenizer.Decode(ids));
//
// What text becomes:
// - Ill-formed UTF-8: each maximal ill-formed part becomes U+FFFD first (the
//   practice that Unicode recommends and that Python's errors="replace"
//   follows), so ids never depend on what a byte soup happens to match.
// - A byte whose symbol has no token (21 of 256 in SmolLM2) is dropped, as
//   llama.cpp and Hugging Face do. Decode(Encode(text)) == text otherwise.
// - Control tokens ("<|im_end|>") written in text stay text: they are split and
//   merged like any other characters, unless EncodeOptions::parse_special says
//   otherwise. Chat turns are built by ChatTemplate (chat_template.h), which
//   places control tokens itself.
// - User-defined tokens (TokenType::kUserDefined) are found in any text,
//   longest first at each position.
//
// A Tokenizer never changes after Create: any number of threads may use one.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace lamina {

class Checkpoint;

// Numbered as tokenizer.ggml.token_type in GGUF.
enum class TokenType : int32_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6,
};

// Everything a model file says about its tokenizer. Fields carry the GGUF key
// that fills them.
struct TokenizerSpec {
  std::string model = "gpt2";   // tokenizer.ggml.model; only "gpt2" (BPE)
  std::string pre_tokenizer{};  // tokenizer.ggml.pre: see PreTokenizerNames()
  std::vector<std::string> tokens{};  // tokenizer.ggml.tokens, by id; normal
                                      // tokens in GPT-2's byte alphabet
  std::vector<int32_t> types{};  // tokenizer.ggml.token_type; empty: all normal
  std::vector<std::string> merges{};  // tokenizer.ggml.merges, "left right"
  int32_t bos_id = -1;                // tokenizer.ggml.bos_token_id; -1: none
  int32_t eos_id = -1;                // tokenizer.ggml.eos_token_id
  int32_t eot_id = -1;                // tokenizer.ggml.eot_token_id
  int32_t unknown_id = -1;            // tokenizer.ggml.unknown_token_id
  int32_t padding_id = -1;            // tokenizer.ggml.padding_token_id
  std::vector<int32_t> stop_ids{};    // more ids that end a text
  // tokenizer.ggml.add_bos_token, add_eos_token; unset: as the pre-tokeniser's
  // family does (llama-bpe: bos; others: neither).
  std::optional<bool> add_bos{};
  std::optional<bool> add_eos{};
  bool add_space_prefix = false;  // tokenizer.ggml.add_space_prefix
  // A word that is a token is taken without merging; unset: llama-bpe only.
  std::optional<bool> ignore_merges{};
  std::string chat_template{};  // tokenizer.chat_template (Jinja), or empty
};

// The values of TokenizerSpec::pre_tokenizer that Create knows.
std::vector<std::string> PreTokenizerNames();

// From the text of Hugging Face's tokenizer.json, and of the files beside it
// that name special tokens and the chat template, where there are any. BPE with
// ByteLevel, and Split or Digits in front as GPT-2, SmolLM, Llama-3 and Qwen2
// have them; anything else is Unimplemented and named. An unk_token is read but
// never produced: see "What text becomes".
absl::StatusOr<TokenizerSpec> ReadTokenizerJson(
    std::string_view tokenizer_json,
    std::string_view tokenizer_config_json = {},
    std::string_view chat_template_jinja = {});

struct EncodeOptions {
  // Control tokens written in the text become control tokens. Never set it for
  // text from a user.
  bool parse_special = false;
  // Puts bos (eos) in front (behind) when the file asks for it.
  bool add_special = true;
};

class Tokenizer {
 public:
  // Checks the whole of `spec` (files are hostile): duplicate or empty tokens,
  // merges that name unknown tokens or are listed twice, ids out of range,
  // sizes that disagree, an unknown pre-tokenizer. At most 2^22 tokens and
  // merges.
  static absl::StatusOr<Tokenizer> Create(TokenizerSpec spec);

  std::vector<int32_t> Encode(std::string_view text,
                              const EncodeOptions& options = {}) const;

  // The bytes of the tokens, one after another; not always valid UTF-8 (see
  // Utf8Stream for that). InvalidArgument for an id outside the vocabulary.
  struct DecodeOptions {
    bool skip_control = true;  // control tokens add nothing; else their name
  };
  absl::StatusOr<std::string> Decode(absl::Span<const int32_t> ids,
                                     const DecodeOptions& options) const;
  absl::StatusOr<std::string> Decode(absl::Span<const int32_t> ids) const;

  int32_t vocab_size() const;
  bool IsValid(int32_t id) const { return id >= 0 && id < vocab_size(); }
  // The bytes that `id` stands for; a control token's own name. `id` is valid.
  std::string_view TokenBytes(int32_t id) const;
  TokenType Type(int32_t id) const;
  bool IsControl(int32_t id) const;
  // The id of a control or user-defined token by its name; -1: none.
  int32_t SpecialId(std::string_view name) const;

  int32_t bos_id() const;
  int32_t eos_id() const;
  // Generation ends at any of these: eos, eot, and the control tokens that end
  // a text or a turn in known families ("<|im_end|>", "<|endoftext|>",
  // "<|eot_id|>", "<|end_of_text|>", "<|eom_id|>"). Sorted.
  const std::vector<int32_t>& stop_ids() const;
  bool IsStop(int32_t id) const;

  const std::string& pre_tokenizer() const;
  const std::string& chat_template() const;

 private:
  friend class ChatTemplate;
  struct Data;
  explicit Tokenizer(std::shared_ptr<const Data> data);

  std::shared_ptr<const Data> data_;
};

// The tokenizer that a model on disk comes with, whichever kind it is.
absl::StatusOr<Tokenizer> LoadTokenizer(const Checkpoint& checkpoint);

}  // namespace lamina
