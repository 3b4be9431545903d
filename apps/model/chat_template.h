#pragma once

// Turns a conversation into ids for the families whose format is known:
//   ChatML   (SmolLM, Qwen)  <|im_start|>role\ncontent<|im_end|>\n
//   Llama-3  <|start_header_id|>role<|end_header_id|>\n\ncontent<|eot_id|>
// The family is picked from the file's template and control tokens; there is no
// Jinja engine. Control tokens are placed by id; roles and contents are encoded
// as text, so nothing a user writes becomes a control token.
//
//   LAMINA_ASSIGN_OR_RETURN(ChatTemplate chat, ChatTemplate::For(tokenizer));
//   LAMINA_ASSIGN_OR_RETURN(
//       std::vector<int32_t> ids,
//       chat.Encode(tokenizer, {{.role = "user", .content = "Hi"}}));

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "lamina/model/tokenizer.h"

namespace lamina {

enum class ChatFamily { kChatMl, kLlama3 };
const char* Name(ChatFamily family);  // "chatml", "llama3"

struct ChatMessage {
  std::string role{};  // "system", "user", "assistant", "tool", …
  std::string content{};
};

struct ChatOptions {
  // Opens the assistant's turn at the end.
  bool add_generation_prompt = true;
  // Llama 3.1 and 3.2 put dates before the system prompt; their template's
  // default is used when this is empty.
  std::string date{};
};

class ChatTemplate {
 public:
  // Unimplemented for a template (or a vocabulary) of no known family; the
  // message says that `--raw` sends the prompt as it is.
  static absl::StatusOr<ChatTemplate> For(const Tokenizer& tokenizer);

  // `tokenizer` is the one given to For. InvalidArgument without messages, or
  // for a role that is not letters, digits, '-' and '_'.
  absl::StatusOr<std::vector<int32_t>> Encode(
      const Tokenizer& tokenizer, absl::Span<const ChatMessage> messages,
      const ChatOptions& options = {}) const;

  ChatFamily family() const { return family_; }
  // Used when the conversation has no system message; empty: none.
  const std::string& default_system() const { return default_system_; }

 private:
  ChatTemplate() = default;

  ChatFamily family_ = ChatFamily::kChatMl;
  std::string default_system_;
  // Llama 3.1 and later: the dates in front of the system prompt.
  std::string cutting_date_;
  std::string default_date_;
};

}  // namespace lamina
