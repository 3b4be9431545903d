#include "lamina/model/chat_template.h"

#include <string_view>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "lamina/core/status.h"

namespace lamina {
namespace {

// Text and control tokens in turn. Neighbouring text is encoded as one, since a
// word may span what the caller wrote and what the format adds.
class IdBuilder {
 public:
  explicit IdBuilder(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  void Text(std::string_view text) { text_.append(text); }
  void Control(std::string_view name) {
    Flush();
    ids_.push_back(tokenizer_.SpecialId(name));
  }
  std::vector<int32_t> Take() {
    Flush();
    return std::move(ids_);
  }

 private:
  void Flush() {
    const std::vector<int32_t> ids = tokenizer_.Encode(
        text_, {.parse_special = false, .add_special = false});
    ids_.insert(ids_.end(), ids.begin(), ids.end());
    text_.clear();
  }

  const Tokenizer& tokenizer_;
  std::string text_;
  std::vector<int32_t> ids_;
};

bool Contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

bool HasControl(const Tokenizer& tokenizer, std::string_view name) {
  const int32_t id = tokenizer.SpecialId(name);
  return id >= 0 && tokenizer.IsControl(id);
}

// The text from `pos` of a Jinja template up to `end`, with the escapes of a
// string literal undone. Nothing when the literal that `pos` stands in (or,
// outside of one, the run of plain text) is over before `end` comes.
std::optional<std::string> LiteralUntil(std::string_view jinja, size_t pos,
                                        char quote, std::string_view end) {
  std::string text;
  while (pos < jinja.size()) {
    if (jinja.substr(pos, end.size()) == end) return text;
    char c = jinja[pos++];
    if (c == quote || (quote == 0 && c == '{')) return std::nullopt;
    if (quote != 0 && c == '\\' && pos < jinja.size()) {
      c = jinja[pos++];
      if (c == 'n') c = '\n';
      if (c == 't') c = '\t';
    }
    text.push_back(c);
  }
  return std::nullopt;
}

// The first "`begin`…`end`" of the template that is all literal text.
std::optional<std::string> FindLiteral(std::string_view jinja,
                                       std::string_view begin,
                                       std::string_view end) {
  for (size_t at = jinja.find(begin); at != std::string_view::npos;
       at = jinja.find(begin, at + 1)) {
    const char before = at == 0 ? '\0' : jinja[at - 1];
    const char quote = before == '\'' || before == '"' ? before : '\0';
    const auto text = LiteralUntil(jinja, at + begin.size(), quote, end);
    if (text.has_value()) return text;
  }
  return std::nullopt;
}

bool IsRole(std::string_view role) {
  for (const char c : role) {
    if (!absl::ascii_isalnum(static_cast<unsigned char>(c)) && c != '-' &&
        c != '_') {
      return false;
    }
  }
  return !role.empty();
}

constexpr std::string_view kChatMlTokens[] = {"<|im_start|>", "<|im_end|>"};
constexpr std::string_view kLlama3Tokens[] = {
    "<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>",
    "<|eot_id|>"};

absl::Span<const std::string_view> TokensOf(ChatFamily family) {
  if (family == ChatFamily::kLlama3) return kLlama3Tokens;
  return kChatMlTokens;
}

// The family whose control tokens the template writes, or that the vocabulary
// has when the file comes without a template.
std::optional<ChatFamily> FamilyOf(const Tokenizer& tokenizer) {
  const std::string& jinja = tokenizer.chat_template();
  for (const ChatFamily family : {ChatFamily::kChatMl, ChatFamily::kLlama3}) {
    const std::string_view opener =
        family == ChatFamily::kChatMl ? "<|im_start|>" : "<|start_header_id|>";
    if (jinja.empty() ? HasControl(tokenizer, opener)
                      : Contains(jinja, opener)) {
      return family;
    }
  }
  return std::nullopt;
}

}  // namespace

const char* Name(ChatFamily family) {
  return family == ChatFamily::kLlama3 ? "llama3" : "chatml";
}

absl::StatusOr<ChatTemplate> ChatTemplate::For(const Tokenizer& tokenizer) {
  const std::string& jinja = tokenizer.chat_template();
  const auto family = FamilyOf(tokenizer);
  if (!family.has_value()) {
    return absl::UnimplementedError(absl::StrCat(
        "ChatTemplate: ",
        jinja.empty() ? "the model has no chat template"
                      : "the model's chat template is of an unknown family",
        ", want chatml or llama3; --raw sends the prompt as it is"));
  }
  for (const std::string_view name : TokensOf(*family)) {
    if (!HasControl(tokenizer, name)) {
      return absl::InvalidArgumentError(
          absl::StrCat("ChatTemplate: the vocabulary has no control token ",
                       std::string(name), ", which ", Name(*family),
                       " needs; --raw sends the prompt as it is"));
    }
  }
  ChatTemplate chat;
  chat.family_ = *family;
  if (*family == ChatFamily::kChatMl) {
    // The turn that the template writes when the conversation has no system
    // message; its line break is an escape or a real one.
    for (const char* begin :
         {"<|im_start|>system\n", "<|im_start|>system\\n"}) {
      const auto text = FindLiteral(jinja, begin, "<|im_end|>");
      if (text.has_value()) chat.default_system_ = *text;
    }
  } else if (const auto cutting =
                 FindLiteral(jinja, "Cutting Knowledge Date: ", "\\n")) {
    chat.cutting_date_ = *cutting;
    chat.default_date_ =
        FindLiteral(jinja, "date_string = \"", "\"").value_or("26 Jul 2024");
  }
  return chat;
}

absl::StatusOr<std::vector<int32_t>> ChatTemplate::Encode(
    const Tokenizer& tokenizer, absl::Span<const ChatMessage> messages,
    const ChatOptions& options) const {
  if (messages.empty()) {
    return absl::InvalidArgumentError(
        "ChatTemplate: messages: given none, want at least one");
  }
  for (const ChatMessage& message : messages) {
    if (!IsRole(message.role)) {
      return InvalidArgument("ChatTemplate", "role",
                             absl::StrCat("\"", message.role, "\""),
                             "letters, digits, '-' and '_'");
    }
  }
  const bool has_system = messages[0].role == "system";
  IdBuilder ids(tokenizer);

  if (family_ == ChatFamily::kChatMl) {
    const auto turn = [&](std::string_view role, std::string_view content) {
      ids.Control("<|im_start|>");
      ids.Text(role);
      ids.Text("\n");
      ids.Text(content);
      ids.Control("<|im_end|>");
      ids.Text("\n");
    };
    if (!has_system && !default_system_.empty()) {
      turn("system", default_system_);
    }
    for (const ChatMessage& message : messages) {
      turn(message.role, message.content);
    }
    if (options.add_generation_prompt) {
      ids.Control("<|im_start|>");
      ids.Text("assistant\n");
    }
    return ids.Take();
  }

  const auto open = [&](std::string_view role) {
    ids.Control("<|start_header_id|>");
    ids.Text(role);
    ids.Control("<|end_header_id|>");
    ids.Text("\n\n");
  };
  const auto trimmed = [](const std::string& text) {
    const absl::string_view view = absl::StripAsciiWhitespace(text);
    return std::string_view(view.data(), view.size());
  };
  ids.Control("<|begin_of_text|>");
  if (!cutting_date_.empty()) {
    open("system");
    ids.Text("Cutting Knowledge Date: " + cutting_date_ + "\nToday Date: " +
             (options.date.empty() ? default_date_ : options.date) + "\n\n");
    if (has_system) ids.Text(trimmed(messages[0].content));
    ids.Control("<|eot_id|>");
    if (has_system) messages.remove_prefix(1);
  }
  for (const ChatMessage& message : messages) {
    open(message.role);
    ids.Text(trimmed(message.content));
    ids.Control("<|eot_id|>");
  }
  if (options.add_generation_prompt) open("assistant");
  return ids.Take();
}

}  // namespace lamina
