// A checkpoint's tokenizer data -> Tokenizer.

#include <utility>

#include "absl/strings/str_cat.h"
#include "lamina/model/checkpoint.h"
#include "lamina/model/tokenizer.h"

namespace lamina {
namespace {

TokenizerSpec SpecOf(const GgufTokenizer& gguf) {
  TokenizerSpec spec;
  spec.model = gguf.model;
  spec.pre_tokenizer = gguf.pre;
  spec.tokens.assign(gguf.tokens.begin(), gguf.tokens.end());
  spec.types = gguf.token_types;
  spec.merges.assign(gguf.merges.begin(), gguf.merges.end());
  spec.bos_id = gguf.bos_id.value_or(-1);
  spec.eos_id = gguf.eos_id.value_or(-1);
  spec.eot_id = gguf.eot_id.value_or(-1);
  spec.unknown_id = gguf.unknown_id.value_or(-1);
  spec.padding_id = gguf.padding_id.value_or(-1);
  spec.add_bos = gguf.add_bos;
  spec.add_eos = gguf.add_eos;
  spec.add_space_prefix = gguf.add_space_prefix.value_or(false);
  spec.chat_template = gguf.chat_template;
  return spec;
}

absl::StatusOr<TokenizerSpec> ReadSpec(const Checkpoint& checkpoint) {
  if (const GgufTokenizer* gguf = checkpoint.gguf_tokenizer()) {
    return SpecOf(*gguf);
  }
  const HfTokenizer* files = checkpoint.hf_tokenizer();
  if (files == nullptr || files->tokenizer_json.empty()) {
    return absl::NotFoundError(
        "no tokenizer: want tokenizer.json beside the weights, or a GGUF file");
  }
  return ReadTokenizerJson(files->tokenizer_json, files->tokenizer_config_json,
                           files->chat_template_jinja);
}

}  // namespace

absl::StatusOr<Tokenizer> LoadTokenizer(const Checkpoint& checkpoint) {
  absl::StatusOr<TokenizerSpec> spec = ReadSpec(checkpoint);
  absl::Status status = spec.status();
  if (status.ok()) {
    spec->stop_ids = checkpoint.config().eos_ids;
    absl::StatusOr<Tokenizer> tokenizer = Tokenizer::Create(*std::move(spec));
    if (tokenizer.ok()) return tokenizer;
    status = tokenizer.status();
  }
  return absl::Status(status.code(),
                      absl::StrCat(checkpoint.path(), ": ", status.message()));
}

}  // namespace lamina
