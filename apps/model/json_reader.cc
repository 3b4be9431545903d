#include "lamina/model/json_reader.h"

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lamina/core/status.h"
#include "lamina/model/file_error.h"

namespace lamina::model_internal {
namespace {

using Json = nlohmann::json;

// Reads characters and tells how far it has come.
struct CountingIterator {
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  const char* at = nullptr;
  const char** last = nullptr;

  reference operator*() const { return *at; }
  CountingIterator& operator++() {
    *last = ++at;
    return *this;
  }
  CountingIterator operator++(int) {
    CountingIterator before = *this;
    ++*this;
    return before;
  }
  friend bool operator==(const CountingIterator& a, const CountingIterator& b) {
    return a.at == b.at;
  }
};

// Builds the value and stops at the first thing that is not allowed.
class Builder final : public Json::json_sax_t {
 public:
  Builder(const JsonLimits& limits, const char* begin, const char** now)
      : limits_(limits), begin_(begin), now_(now) {}

  Json root;
  std::string error;
  uint64_t error_at = 0;
  std::map<std::string, uint64_t, std::less<>> positions;

  bool null() override { return Put(nullptr) != nullptr; }
  bool boolean(bool value) override { return Put(value) != nullptr; }
  bool number_integer(int64_t value) override { return Put(value) != nullptr; }
  bool number_unsigned(uint64_t value) override {
    return Put(value) != nullptr;
  }
  bool number_float(double value, const std::string&) override {
    return Put(value) != nullptr;
  }
  bool string(std::string& value) override {
    return Put(std::move(value)) != nullptr;
  }
  bool binary(Json::binary_t&) override { return Fail("binary data"); }
  bool start_object(size_t) override { return Open(Json::object()); }
  bool start_array(size_t) override { return Open(Json::array()); }
  bool end_object() override { return Close(); }
  bool end_array() override { return Close(); }

  bool key(std::string& name) override {
    Json& object = *open_.back();
    if (object.contains(name)) {
      return Fail(absl::StrCat("key ", Quoted(name), " occurs twice"));
    }
    if (open_.size() == 1) positions.emplace(name, Position());
    key_ = std::move(name);
    return true;
  }

  bool parse_error(size_t, const std::string&,
                   const nlohmann::detail::exception& exception) override {
    // The library's text behind its own name and position.
    std::string_view text = exception.what();
    const size_t colon = text.find(": ");
    if (colon != std::string_view::npos) text.remove_prefix(colon + 2);
    return Fail(absl::StrCat("not valid JSON: ", Quoted(text)));
  }

 private:
  uint64_t Position() const { return static_cast<uint64_t>(*now_ - begin_); }

  bool Fail(std::string message) {
    error = std::move(message);
    error_at = Position();
    return false;
  }

  // Adds a value where the parser stands; null when there are too many.
  template <class T>
  Json* Put(T&& value) {
    if (++values_ > limits_.values) {
      Fail(absl::StrCat("more than ", limits_.values, " values"));
      return nullptr;
    }
    if (open_.empty()) {
      root = Json(std::forward<T>(value));
      return &root;
    }
    Json& parent = *open_.back();
    if (parent.is_array()) {
      parent.push_back(Json(std::forward<T>(value)));
      return &parent.back();
    }
    Json& slot = parent[key_];
    slot = Json(std::forward<T>(value));
    return &slot;
  }

  bool Open(Json&& container) {
    if (static_cast<int>(open_.size()) >= limits_.depth) {
      return Fail(absl::StrCat("nested more than ", limits_.depth, " deep"));
    }
    Json* added = Put(std::move(container));
    if (added == nullptr) return false;
    // NOTE: stays valid: a parent does not grow while its child is open.
    open_.push_back(added);
    return true;
  }
  bool Close() {
    open_.pop_back();
    return true;
  }

  const JsonLimits& limits_;
  const char* begin_;
  const char** now_;
  std::vector<Json*> open_;
  std::string key_;
  uint64_t values_ = 0;
};

}  // namespace

absl::StatusOr<nlohmann::json> ParseJson(
    std::string_view file, std::string_view text, const JsonLimits& limits,
    uint64_t first_byte,
    std::map<std::string, uint64_t, std::less<>>* positions) {
  if (text.size() > limits.bytes) {
    return BadFile(file, first_byte,
                   absl::StrCat("JSON of ", text.size(), " bytes, at most ",
                                limits.bytes, " allowed"));
  }
  const char* now = text.data();
  Builder builder(limits, text.data(), &now);
  const bool ok = Json::sax_parse(
      CountingIterator{text.data(), &now},
      CountingIterator{text.data() + text.size(), &now}, &builder);
  if (!ok) {
    return BadFile(file, first_byte + builder.error_at, builder.error);
  }
  if (positions != nullptr) {
    *positions = std::move(builder.positions);
    for (auto& [key, position] : *positions) position += first_byte;
  }
  return std::move(builder.root);
}

const nlohmann::json* JsonFields::Find(const char* field) const {
  const auto found = object_.find(field);
  if (found == object_.end() || found->is_null()) return nullptr;
  return &*found;
}

absl::Status JsonFields::Error(const char* field, std::string_view want) const {
  const nlohmann::json* value = Find(field);
  const std::string given =
      value == nullptr ? "nothing"
      : value->is_primitive()
          ? Quoted(value->dump(-1, ' ', false,
                               nlohmann::json::error_handler_t::replace))
          : value->type_name();
  return BadFile(file_,
                 absl::StrCat(prefix_, field, ": given ", given, ", want ",
                              absl::string_view(want.data(), want.size())));
}

absl::StatusOr<std::optional<int64_t>> JsonFields::Integer(
    const char* field) const {
  const nlohmann::json* value = Find(field);
  if (value == nullptr) return std::optional<int64_t>();
  const auto* integer = value->get_ptr<const int64_t*>();
  // Unsigned numbers are integers to get_ptr; those above 2^63 are negative.
  if (integer == nullptr || (value->is_number_unsigned() && *integer < 0)) {
    return Error(field, "an integer");
  }
  return std::optional<int64_t>(*integer);
}

absl::StatusOr<std::optional<double>> JsonFields::Real(
    const char* field) const {
  const nlohmann::json* value = Find(field);
  if (value == nullptr) return std::optional<double>();
  if (!value->is_number()) return Error(field, "a number");
  return std::optional<double>(value->get<double>());
}

absl::StatusOr<std::optional<bool>> JsonFields::Bool(const char* field) const {
  const nlohmann::json* value = Find(field);
  if (value == nullptr) return std::optional<bool>();
  if (!value->is_boolean()) return Error(field, "true or false");
  return std::optional<bool>(*value->get_ptr<const bool*>());
}

absl::StatusOr<std::optional<std::string>> JsonFields::String(
    const char* field) const {
  const nlohmann::json* value = Find(field);
  if (value == nullptr) return std::optional<std::string>();
  if (!value->is_string()) return Error(field, "a string");
  return std::optional<std::string>(*value->get_ptr<const std::string*>());
}

absl::StatusOr<std::vector<int64_t>> JsonFields::Integers(
    const char* field) const {
  const nlohmann::json* value = Find(field);
  std::vector<int64_t> integers;
  if (value == nullptr) return integers;
  const auto add = [&](const nlohmann::json& element) {
    const auto* integer = element.get_ptr<const int64_t*>();
    if (integer == nullptr) return false;
    integers.push_back(*integer);
    return true;
  };
  if (!value->is_array()) {
    if (add(*value)) return integers;
    return Error(field, "an integer or a list of integers");
  }
  for (const nlohmann::json& element : *value) {
    if (!add(element)) return Error(field, "an integer or a list of integers");
  }
  return integers;
}

absl::StatusOr<const nlohmann::json*> JsonFields::Object(
    const char* field) const {
  const nlohmann::json* value = Find(field);
  if (value != nullptr && !value->is_object()) return Error(field, "an object");
  return value;
}

absl::StatusOr<int64_t> JsonFields::RequiredInteger(const char* field) const {
  LAMINA_ASSIGN_OR_RETURN(const std::optional<int64_t> value, Integer(field));
  if (!value) return Error(field, "an integer");
  return *value;
}

}  // namespace lamina::model_internal
