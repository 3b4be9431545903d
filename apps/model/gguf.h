#pragma once

// The GGUF container, versions 2 and 3 (little-endian): a header, typed
// key/value metadata, a table of tensors, aligned tensor data. This file knows
// nothing about models.
//
//   magic "GGUF" | u32 version | u64 tensors | u64 keys
//   keys:    string key | u32 type | value            string = u64 n, n bytes
//   tensors: string name | u32 dims | u64 dim[] (innermost first) | u32 type |
//            u64 offset from the start of the data
//   padding to `general.alignment` (32) | data, each tensor padded likewise
//
// What is checked beyond the format: keys and names are UTF-8, not empty, and
// occur once; tensors lie one after the other in the data without overlap, gap
// or rest.

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "lamina/model/checkpoint.h"
#include "lamina/model/mapped_file.h"

namespace lamina::model_internal {

enum class GgufType : uint32_t {
  kU8,
  kI8,
  kU16,
  kI16,
  kU32,
  kI32,
  kF32,
  kBool,
  kString,
  kArray,
  kU64,
  kI64,
  kF64,
};
inline constexpr uint32_t kNumGgufTypes = 13;
const char* Name(GgufType type);

struct GgufValue {
  GgufType type = GgufType::kU8;
  GgufType element = GgufType::kU8;  // of an array
  uint64_t count = 1;                // elements of an array
  uint64_t begin = 0;                // first byte of the value (or elements)
};

struct GgufTensor {
  std::string name;
  std::vector<int64_t> shape;  // outermost first
  StorageType type = StorageType::kF32;
  const uint8_t* data = nullptr;
  int64_t bytes = 0;
  uint64_t entry = 0;  // byte of its entry in the table
};

class GgufFile {
 public:
  [[nodiscard]] static absl::StatusOr<GgufFile> Parse(
      std::shared_ptr<const MappedFile> file);

  // True when the file starts as GGUF files do.
  static bool IsGguf(const MappedFile& file);

  const MappedFile& file() const { return *file_; }
  uint32_t version() const { return version_; }
  uint32_t alignment() const { return alignment_; }
  const std::vector<GgufTensor>& tensors() const { return tensors_; }
  const std::map<std::string, GgufValue, std::less<>>& metadata() const {
    return metadata_;
  }
  const GgufValue* Find(std::string_view key) const;

  // Typed access: no value when the key is not there, an error when its type
  // does not fit. Integers may have any integer type, as writers differ.
  absl::StatusOr<std::optional<int64_t>> Integer(std::string_view key) const;
  absl::StatusOr<std::optional<double>> Real(std::string_view key) const;
  absl::StatusOr<std::optional<bool>> Bool(std::string_view key) const;
  absl::StatusOr<std::optional<std::string_view>> String(
      std::string_view key) const;
  // Arrays; empty when the key is not there.
  absl::StatusOr<std::vector<std::string_view>> Strings(
      std::string_view key) const;
  absl::StatusOr<std::vector<int32_t>> Int32s(std::string_view key) const;
  absl::StatusOr<std::vector<float>> Floats(std::string_view key) const;

 private:
  absl::Status TypeError(std::string_view key, const GgufValue& value,
                         std::string_view want) const;

  std::shared_ptr<const MappedFile> file_;
  uint32_t version_ = 0;
  uint32_t alignment_ = 32;
  std::map<std::string, GgufValue, std::less<>> metadata_;
  std::vector<GgufTensor> tensors_;
};

}  // namespace lamina::model_internal
