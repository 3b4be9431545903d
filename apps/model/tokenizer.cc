#include "lamina/model/tokenizer.h"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lamina/core/status.h"
#include "lamina/model/tokenizer_split.h"
#include "lamina/model/unicode.h"
#include "lamina/model/utf8_stream.h"

namespace lamina {
namespace {

using model_internal::NextUtf8;
using model_internal::PreTokenizer;
using model_internal::PreTokenizerFromName;
using model_internal::Utf8Kind;
using model_internal::Utf8Part;
using model_internal::WellFormedPrefix;
using model_internal::WordEnd;

constexpr size_t kMaxEntries = size_t{1} << 22;  // tokens, merges
constexpr size_t kMaxTokenBytes = size_t{1} << 16;
constexpr int32_t kNoToken = -1;

absl::Status Error(const std::string& argument, const std::string& given,
                   const std::string& want) {
  return InvalidArgument("Tokenizer", argument.c_str(), given, want);
}

// A name from a file as it is shown in an error: printable and short.
std::string Shown(std::string_view text) {
  constexpr size_t kMost = 40;
  const std::string_view head = text.substr(0, kMost);
  return absl::StrCat(
      "\"", absl::CEscape(absl::string_view(head.data(), head.size())), "\"",
      text.size() > kMost ? "…" : "");
}

// GPT-2's byte alphabet: bytes that print stand for themselves, the other 68
// for U+0100 and on, in order.
std::array<uint16_t, 256> ByteAlphabet() {
  std::array<uint16_t, 256> symbols{};
  uint16_t next = 256;
  for (uint16_t b = 0; b < 256; ++b) {
    const bool prints = (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) ||
                        (b >= 0xAE && b <= 0xFF);
    symbols[b] = prints ? b : next++;
  }
  return symbols;
}

struct Alphabet {
  std::array<std::string, 256> symbols;  // UTF-8
  std::array<int16_t, 324> bytes;        // by code point; -1: no symbol
};
const Alphabet& GetAlphabet() {
  static const Alphabet* const alphabet = [] {
    auto* const made = new Alphabet;
    made->bytes.fill(-1);
    const std::array<uint16_t, 256> code_points = ByteAlphabet();
    for (size_t b = 0; b < 256; ++b) {
      const uint16_t c = code_points[b];
      made->bytes[c] = static_cast<int16_t>(b);
      if (c < 0x80) {
        made->symbols[b] = std::string(1, static_cast<char>(c));
      } else {
        made->symbols[b] = {static_cast<char>(0xC0 | (c >> 6)),
                            static_cast<char>(0x80 | (c & 0x3F))};
      }
    }
    return made;
  }();
  return *alphabet;
}

// The bytes that a normal token stands for. A character that is no symbol (a
// token added by hand, with a space in it) stands for itself.
void AppendTokenBytes(std::string_view token, std::string& out) {
  const Alphabet& alphabet = GetAlphabet();
  for (size_t pos = 0; pos < token.size();) {
    const Utf8Part part = NextUtf8(token, pos);
    if (part.kind == Utf8Kind::kWellFormed &&
        part.code_point < alphabet.bytes.size() &&
        alphabet.bytes[part.code_point] >= 0) {
      out.push_back(static_cast<char>(alphabet.bytes[part.code_point]));
    } else {
      out.append(token.substr(pos, part.bytes));
    }
    pos += part.bytes;
  }
}

using IdByText = absl::flat_hash_map<absl::string_view, int32_t>;

struct Merge {
  int32_t left = 0;
  int32_t right = 0;
  int32_t merged = 0;
};

constexpr uint64_t PairKey(int32_t left, int32_t right) {
  return (static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32) |
         static_cast<uint32_t>(right);
}

// Special tokens by name, for the longest match at a position.
class NameTrie {
 public:
  void Insert(std::string_view name, int32_t id) {
    uint32_t node = 0;
    for (const char c : name) {
      const auto [it, added] = children_.try_emplace(
          Key(node, c), static_cast<uint32_t>(ids_.size()));
      if (added) ids_.push_back(kNoToken);
      node = it->second;
    }
    ids_[node] = id;
    starts_[static_cast<uint8_t>(name[0])] = true;
  }

  struct Match {
    int32_t id = kNoToken;
    size_t bytes = 0;
  };
  Match LongestAt(std::string_view text, size_t pos) const {
    Match match;
    if (!starts_[static_cast<uint8_t>(text[pos])]) return match;
    uint32_t node = 0;
    for (size_t i = pos; i < text.size(); ++i) {
      const auto it = children_.find(Key(node, text[i]));
      if (it == children_.end()) break;
      node = it->second;
      if (ids_[node] != kNoToken) match = {ids_[node], i + 1 - pos};
    }
    return match;
  }

 private:
  static uint64_t Key(uint32_t node, char c) {
    return (uint64_t{node} << 8) | static_cast<uint8_t>(c);
  }

  absl::flat_hash_map<uint64_t, uint32_t> children_;
  std::vector<int32_t> ids_{kNoToken};
  std::array<bool, 256> starts_{};
};

constexpr std::string_view kStopNames[] = {"<|im_end|>", "<|endoftext|>",
                                           "<|eot_id|>", "<|end_of_text|>",
                                           "<|eom_id|>"};

}  // namespace

struct Tokenizer::Data {
  std::string pre_tokenizer_name;
  PreTokenizer pre_tokenizer = PreTokenizer::kGpt2;
  std::string chat_template;
  int32_t bos_id = kNoToken;
  int32_t eos_id = kNoToken;
  bool add_bos = false;
  bool add_eos = false;
  std::vector<int32_t> stop_ids;

  std::vector<TokenType> types;
  std::string bytes;            // of all tokens, one after another
  std::vector<size_t> offsets;  // vocab_size + 1

  std::array<int32_t, 256> byte_ids{};
  std::vector<Merge> merges;  // by rank
  absl::flat_hash_map<uint64_t, uint32_t> ranks;
  // Whole words that are tokens, where merging is skipped for them.
  IdByText words;
  IdByText specials;      // control, unknown, user-defined: by name
  NameTrie user_defined;  // found in every text
  NameTrie all_specials;  // found when special tokens are parsed
  bool has_user_defined = false;

  std::string_view TokenBytes(int32_t id) const {
    const size_t i = static_cast<size_t>(id);
    return std::string_view(bytes).substr(offsets[i],
                                          offsets[i + 1] - offsets[i]);
  }
  bool IsSpecial(int32_t id) const {
    const TokenType type = types[static_cast<size_t>(id)];
    return type == TokenType::kControl || type == TokenType::kUnknown ||
           type == TokenType::kUserDefined;
  }

  absl::Status AddTokens(const TokenizerSpec& spec, IdByText& ids);
  absl::Status AddMerges(const TokenizerSpec& spec, const IdByText& ids);
  absl::Status AddSpecialIds(const TokenizerSpec& spec);

  void EncodeText(std::string_view text, const NameTrie* names,
                  std::vector<int32_t>& out) const;
  void EncodeWords(std::string_view text, std::vector<int32_t>& out) const;
  void EncodeWord(std::string_view word, std::vector<int32_t>& out) const;
};

absl::Status Tokenizer::Data::AddTokens(const TokenizerSpec& spec,
                                        IdByText& ids) {
  const size_t count = spec.tokens.size();
  if (count == 0 || count > kMaxEntries) {
    return Error("tokens", absl::StrCat(count),
                 absl::StrCat("1 to ", kMaxEntries));
  }
  if (!spec.types.empty() && spec.types.size() != count) {
    return Error("token types", absl::StrCat(spec.types.size()),
                 absl::StrCat(count, " (one for each token)"));
  }
  ids.reserve(count);
  types.reserve(count);
  offsets.reserve(count + 1);
  for (size_t i = 0; i < count; ++i) {
    const std::string& token = spec.tokens[i];
    if (token.empty() || token.size() > kMaxTokenBytes) {
      return Error(absl::StrCat("token ", i),
                   absl::StrCat(token.size(), " bytes"),
                   absl::StrCat("1 to ", kMaxTokenBytes));
    }
    const auto [it, added] = ids.try_emplace(token, static_cast<int32_t>(i));
    if (!added) {
      return Error(absl::StrCat("token ", i),
                   absl::StrCat(Shown(token), ", which is token ", it->second),
                   "tokens that differ");
    }
    const int32_t type = spec.types.empty() ? 1 : spec.types[i];
    if (type < 0 || type > static_cast<int32_t>(TokenType::kByte)) {
      return Error(absl::StrCat("type of token ", i), absl::StrCat(type),
                   "0 to 6");
    }
    // 0, "undefined" in GGUF, is what some converters write for normal ones.
    types.push_back(type == 0 ? TokenType::kNormal
                              : static_cast<TokenType>(type));
    offsets.push_back(bytes.size());
    if (IsSpecial(static_cast<int32_t>(i))) {
      bytes.append(token);
    } else {
      AppendTokenBytes(token, bytes);
    }
  }
  offsets.push_back(bytes.size());

  const Alphabet& alphabet = GetAlphabet();
  for (size_t b = 0; b < 256; ++b) {
    const auto it = ids.find(alphabet.symbols[b]);
    byte_ids[b] =
        it != ids.end() && !IsSpecial(it->second) ? it->second : kNoToken;
  }
  for (int32_t id = 0; id < static_cast<int32_t>(count); ++id) {
    const std::string_view text = TokenBytes(id);
    if (IsSpecial(id)) {
      specials.emplace(absl::string_view(text.data(), text.size()), id);
      all_specials.Insert(text, id);
      if (types[static_cast<size_t>(id)] == TokenType::kUserDefined) {
        user_defined.Insert(text, id);
        has_user_defined = true;
      }
    }
  }
  return absl::OkStatus();
}

absl::Status Tokenizer::Data::AddMerges(const TokenizerSpec& spec,
                                        const IdByText& ids) {
  if (spec.merges.size() > kMaxEntries) {
    return Error("merges", absl::StrCat(spec.merges.size()),
                 absl::StrCat("at most ", kMaxEntries));
  }
  merges.reserve(spec.merges.size());
  ranks.reserve(spec.merges.size());
  for (size_t rank = 0; rank < spec.merges.size(); ++rank) {
    const std::string& merge = spec.merges[rank];
    const auto bad = [&](const std::string& want) {
      return Error(absl::StrCat("merge ", rank), Shown(merge), want);
    };
    // The space of the alphabet is U+0120, so the first space parts the two.
    const size_t space = merge.find(' ', 1);
    if (space == std::string::npos || space + 1 == merge.size() ||
        merge.find(' ', space + 1) != std::string::npos) {
      return bad("\"left right\"");
    }
    const absl::string_view text(merge);
    const auto left = ids.find(text.substr(0, space));
    const auto right = ids.find(text.substr(space + 1));
    if (left == ids.end() || right == ids.end()) {
      return bad("a pair of tokens");
    }
    const auto merged =
        ids.find(absl::StrCat(text.substr(0, space), text.substr(space + 1)));
    if (merged == ids.end()) return bad("a pair that makes a token");
    const bool added = ranks
                           .try_emplace(PairKey(left->second, right->second),
                                        static_cast<uint32_t>(rank))
                           .second;
    if (!added) return bad("merges that differ");
    merges.push_back({left->second, right->second, merged->second});
  }
  return absl::OkStatus();
}

absl::Status Tokenizer::Data::AddSpecialIds(const TokenizerSpec& spec) {
  const int32_t count = static_cast<int32_t>(types.size());
  const std::pair<const char*, int32_t> named[] = {
      {"bos id", spec.bos_id},         {"eos id", spec.eos_id},
      {"eot id", spec.eot_id},         {"unknown id", spec.unknown_id},
      {"padding id", spec.padding_id},
  };
  for (const auto& [name, id] : named) {
    if (id < kNoToken || id >= count) {
      return Error(name, absl::StrCat(id),
                   absl::StrCat("a token, 0 to ", count - 1, ", or -1"));
    }
  }
  bos_id = spec.bos_id;
  eos_id = spec.eos_id;
  // Llama-3 files often leave it out, and the model was trained with it.
  add_bos = spec.add_bos.value_or(pre_tokenizer == PreTokenizer::kLlama3 &&
                                  bos_id != kNoToken);
  add_eos = spec.add_eos.value_or(false);
  if (add_bos && bos_id == kNoToken) {
    return Error("bos id", "none", "a token, since add_bos is set");
  }
  if (add_eos && eos_id == kNoToken) {
    return Error("eos id", "none", "a token, since add_eos is set");
  }

  for (const int32_t id : {spec.eos_id, spec.eot_id}) {
    if (id != kNoToken) stop_ids.push_back(id);
  }
  for (const int32_t id : spec.stop_ids) {
    if (id < 0 || id >= count) {
      return Error("stop id", absl::StrCat(id),
                   absl::StrCat("a token, 0 to ", count - 1));
    }
    stop_ids.push_back(id);
  }
  for (const std::string_view name : kStopNames) {
    const auto it = specials.find(absl::string_view(name.data(), name.size()));
    if (it != specials.end()) stop_ids.push_back(it->second);
  }
  std::sort(stop_ids.begin(), stop_ids.end());
  stop_ids.erase(std::unique(stop_ids.begin(), stop_ids.end()), stop_ids.end());
  return absl::OkStatus();
}

void Tokenizer::Data::EncodeText(std::string_view text, const NameTrie* names,
                                 std::vector<int32_t>& out) const {
  size_t begin = 0;
  if (names != nullptr) {
    for (size_t pos = 0; pos < text.size();) {
      const NameTrie::Match match = names->LongestAt(text, pos);
      if (match.id == kNoToken) {
        ++pos;
        continue;
      }
      EncodeWords(text.substr(begin, pos - begin), out);
      out.push_back(match.id);
      pos += match.bytes;
      begin = pos;
    }
  }
  EncodeWords(text.substr(begin), out);
}

void Tokenizer::Data::EncodeWords(std::string_view text,
                                  std::vector<int32_t>& out) const {
  for (size_t pos = 0; pos < text.size();) {
    const size_t end = WordEnd(pre_tokenizer, text, pos);
    EncodeWord(text.substr(pos, end - pos), out);
    pos = end;
  }
}

// Merges the pair of lowest rank, the leftmost of equals, until none is left.
// The queue holds (rank, index of the left symbol); an entry whose symbols have
// changed since is stale and is passed over. O(n log n).
void Tokenizer::Data::EncodeWord(std::string_view word,
                                 std::vector<int32_t>& out) const {
  if (!words.empty()) {
    const auto it = words.find(absl::string_view(word.data(), word.size()));
    if (it != words.end()) {
      out.push_back(it->second);
      return;
    }
  }
  // Indices have 32 bits; nobody's word is longer.
  constexpr size_t kMaxWord = size_t{1} << 30;
  if (word.size() > kMaxWord) {
    EncodeWord(word.substr(0, kMaxWord), out);
    return EncodeWord(word.substr(kMaxWord), out);
  }

  struct Symbol {
    int32_t id;  // kNoToken: no token, or merged into the one before
    int32_t previous;
    int32_t next;
  };
  const int32_t size = static_cast<int32_t>(word.size());
  std::vector<Symbol> symbols(word.size());
  for (int32_t i = 0; i < size; ++i) {
    const size_t at = static_cast<size_t>(i);
    symbols[at] = {byte_ids[static_cast<uint8_t>(word[at])], i - 1,
                   i + 1 < size ? i + 1 : -1};
  }

  std::vector<uint64_t> queue;
  queue.reserve(word.size());
  const auto entry_at = [&](int32_t left) -> std::optional<uint64_t> {
    if (left < 0) return std::nullopt;
    const Symbol& symbol = symbols[static_cast<size_t>(left)];
    if (symbol.id == kNoToken || symbol.next < 0) return std::nullopt;
    const int32_t right = symbols[static_cast<size_t>(symbol.next)].id;
    if (right == kNoToken) return std::nullopt;
    const auto it = ranks.find(PairKey(symbol.id, right));
    if (it == ranks.end()) return std::nullopt;
    return (uint64_t{it->second} << 32) | static_cast<uint32_t>(left);
  };
  for (int32_t i = 0; i + 1 < size; ++i) {
    if (const auto entry = entry_at(i)) queue.push_back(*entry);
  }
  const auto later = [](uint64_t a, uint64_t b) { return a > b; };
  std::make_heap(queue.begin(), queue.end(), later);
  const auto push = [&](int32_t left) {
    if (const auto entry = entry_at(left)) {
      queue.push_back(*entry);
      std::push_heap(queue.begin(), queue.end(), later);
    }
  };

  while (!queue.empty()) {
    std::pop_heap(queue.begin(), queue.end(), later);
    const uint64_t entry = queue.back();
    queue.pop_back();
    const Merge& merge = merges[entry >> 32];
    const int32_t left_at = static_cast<int32_t>(entry & 0xFFFFFFFF);
    Symbol& left = symbols[static_cast<size_t>(left_at)];
    if (left.id != merge.left || left.next < 0) continue;
    Symbol& right = symbols[static_cast<size_t>(left.next)];
    if (right.id != merge.right) continue;

    left.id = merge.merged;
    left.next = right.next;
    right.id = kNoToken;
    if (left.next >= 0) {
      symbols[static_cast<size_t>(left.next)].previous = left_at;
    }
    push(left.previous);
    push(left_at);
  }
  for (int32_t i = 0; i >= 0 && i < size;) {
    const Symbol& symbol = symbols[static_cast<size_t>(i)];
    if (symbol.id != kNoToken) out.push_back(symbol.id);
    i = symbol.next;
  }
}

Tokenizer::Tokenizer(std::shared_ptr<const Data> data)
    : data_(std::move(data)) {}

std::vector<std::string> PreTokenizerNames() {
  return {"gpt-2", "smollm", "llama-bpe", "llama3", "qwen2"};
}

absl::StatusOr<Tokenizer> Tokenizer::Create(TokenizerSpec spec) {
  if (spec.model != "gpt2") {
    return absl::UnimplementedError(
        absl::StrCat("Tokenizer: model: given ", Shown(spec.model),
                     ", want \"gpt2\" (byte-level BPE)"));
  }
  if (spec.add_space_prefix) {
    return absl::UnimplementedError(
        "Tokenizer: add_space_prefix: given true, want false");
  }
  const auto pre_tokenizer = PreTokenizerFromName(spec.pre_tokenizer);
  if (!pre_tokenizer.has_value()) {
    return absl::UnimplementedError(absl::StrCat(
        "Tokenizer: pre-tokenizer: given ", Shown(spec.pre_tokenizer),
        ", want one of ", absl::StrJoin(PreTokenizerNames(), ", ")));
  }
  auto data = std::make_shared<Data>();
  data->pre_tokenizer = *pre_tokenizer;
  data->pre_tokenizer_name = spec.pre_tokenizer;
  data->chat_template = std::move(spec.chat_template);
  IdByText ids;
  LAMINA_RETURN_IF_ERROR(data->AddTokens(spec, ids));
  LAMINA_RETURN_IF_ERROR(data->AddMerges(spec, ids));
  LAMINA_RETURN_IF_ERROR(data->AddSpecialIds(spec));
  if (spec.ignore_merges.value_or(*pre_tokenizer == PreTokenizer::kLlama3)) {
    data->words.reserve(spec.tokens.size());
    for (int32_t id = 0; id < static_cast<int32_t>(spec.tokens.size()); ++id) {
      if (data->IsSpecial(id)) continue;
      const std::string_view text = data->TokenBytes(id);
      data->words.emplace(absl::string_view(text.data(), text.size()), id);
    }
  }
  return Tokenizer(std::move(data));
}

std::vector<int32_t> Tokenizer::Encode(std::string_view text,
                                       const EncodeOptions& options) const {
  std::string repaired;
  if (WellFormedPrefix(text) != text.size()) {
    repaired = ReplaceIllFormedUtf8(text);
    text = repaired;
  }
  const NameTrie* names = nullptr;
  if (options.parse_special) {
    names = &data_->all_specials;
  } else if (data_->has_user_defined) {
    names = &data_->user_defined;
  }
  std::vector<int32_t> ids;
  if (options.add_special && data_->add_bos) ids.push_back(data_->bos_id);
  data_->EncodeText(text, names, ids);
  if (options.add_special && data_->add_eos) ids.push_back(data_->eos_id);
  return ids;
}

absl::StatusOr<std::string> Tokenizer::Decode(
    absl::Span<const int32_t> ids, const DecodeOptions& options) const {
  std::string text;
  for (size_t i = 0; i < ids.size(); ++i) {
    if (!IsValid(ids[i])) {
      return Error(absl::StrCat("ids[", i, "]"), absl::StrCat(ids[i]),
                   absl::StrCat("0 to ", vocab_size() - 1));
    }
    if (options.skip_control && IsControl(ids[i])) continue;
    text.append(TokenBytes(ids[i]));
  }
  return text;
}

absl::StatusOr<std::string> Tokenizer::Decode(
    absl::Span<const int32_t> ids) const {
  return Decode(ids, DecodeOptions());
}

int32_t Tokenizer::vocab_size() const {
  return static_cast<int32_t>(data_->types.size());
}
std::string_view Tokenizer::TokenBytes(int32_t id) const {
  return data_->TokenBytes(id);
}
TokenType Tokenizer::Type(int32_t id) const {
  return data_->types[static_cast<size_t>(id)];
}
bool Tokenizer::IsControl(int32_t id) const {
  return Type(id) == TokenType::kControl;
}
int32_t Tokenizer::SpecialId(std::string_view name) const {
  const auto it =
      data_->specials.find(absl::string_view(name.data(), name.size()));
  return it == data_->specials.end() ? kNoToken : it->second;
}
int32_t Tokenizer::bos_id() const { return data_->bos_id; }
int32_t Tokenizer::eos_id() const { return data_->eos_id; }
const std::vector<int32_t>& Tokenizer::stop_ids() const {
  return data_->stop_ids;
}
bool Tokenizer::IsStop(int32_t id) const {
  return std::binary_search(data_->stop_ids.begin(), data_->stop_ids.end(), id);
}
const std::string& Tokenizer::pre_tokenizer() const {
  return data_->pre_tokenizer_name;
}
const std::string& Tokenizer::chat_template() const {
  return data_->chat_template;
}

}  // namespace lamina
