#pragma once

// The safetensors container: u64 length of the header, a JSON header that
// gives each tensor's dtype, shape and byte range, then the bytes. This file
// knows nothing about models.
//
// Checked: the header is at most 100 MB and strict JSON; dtype × shape is the
// size of the byte range; the ranges tile the data without overlap, gap or
// rest. The data of a tensor has whatever alignment the header leaves it.

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "lamina/model/checkpoint.h"
#include "lamina/model/mapped_file.h"

namespace lamina::model_internal {

struct SafetensorsTensor {
  std::string name;
  std::vector<int64_t> shape;  // outermost first; [] is a scalar
  StorageType type = StorageType::kF32;
  const uint8_t* data = nullptr;
  int64_t bytes = 0;
  uint64_t entry = 0;  // byte of its entry in the header
};

class SafetensorsFile {
 public:
  [[nodiscard]] static absl::StatusOr<SafetensorsFile> Parse(
      std::shared_ptr<const MappedFile> file);

  // "F8_E4M3" of StorageType::kF8E4M3; null for types that the format lacks.
  static const char* TypeName(StorageType type);

  const MappedFile& file() const { return *file_; }
  // By name.
  const std::vector<SafetensorsTensor>& tensors() const { return tensors_; }

 private:
  std::shared_ptr<const MappedFile> file_;
  std::vector<SafetensorsTensor> tensors_;
};

// The file that holds each tensor of a sharded checkpoint, from the text of
// model.safetensors.index.json. Shard names are plain file names.
[[nodiscard]] absl::StatusOr<std::map<std::string, std::string, std::less<>>>
ParseSafetensorsIndex(std::string_view file, std::string_view text);

}  // namespace lamina::model_internal
