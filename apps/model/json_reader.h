#pragma once

// JSON from files that nobody vouches for. For .cc files of this folder only:
// it brings in nlohmann-json.

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace lamina::model_internal {

struct JsonLimits {
  uint64_t bytes = uint64_t{16} << 20;
  int depth = 32;
  uint64_t values = 2'000'000;
};

// Strict JSON: valid UTF-8, no key twice in an object, nothing behind the
// value, within the limits. Never throws. `first_byte` is where the text
// begins in the file, for messages. `positions`, if given, receives the byte
// (in the file) of each key of the outermost object.
[[nodiscard]] absl::StatusOr<nlohmann::json> ParseJson(
    std::string_view file, std::string_view text, const JsonLimits& limits,
    uint64_t first_byte = 0,
    std::map<std::string, uint64_t, std::less<>>* positions = nullptr);

// Typed access to the fields of an object; a field of value null counts as
// absent. Messages name the file and the field.
class JsonFields {
 public:
  // `prefix` is put before field names in messages: "rope_scaling.".
  JsonFields(std::string_view file, const nlohmann::json& object,
             std::string prefix = "")
      : file_(file), object_(object), prefix_(std::move(prefix)) {}

  const nlohmann::json* Find(const char* field) const;

  absl::StatusOr<std::optional<int64_t>> Integer(const char* field) const;
  absl::StatusOr<std::optional<double>> Real(const char* field) const;
  absl::StatusOr<std::optional<bool>> Bool(const char* field) const;
  absl::StatusOr<std::optional<std::string>> String(const char* field) const;
  // One integer or a list of them; empty when absent.
  absl::StatusOr<std::vector<int64_t>> Integers(const char* field) const;
  // Null when absent; an error when it is anything but an object.
  absl::StatusOr<const nlohmann::json*> Object(const char* field) const;

  absl::StatusOr<int64_t> RequiredInteger(const char* field) const;

  absl::Status Error(const char* field, std::string_view want) const;

 private:
  std::string_view file_;
  const nlohmann::json& object_;
  std::string prefix_;
};

}  // namespace lamina::model_internal
