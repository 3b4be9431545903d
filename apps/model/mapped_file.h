#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace lamina::model_internal {

// The bytes of a regular file, mapped read-only, for as long as the object
// lives. Shared, since tensors of one checkpoint hold on to several.
class MappedFile {
 public:
  // NotFound when there is no such file; InvalidArgument when it is a
  // directory, a pipe or a device, or empty.
  [[nodiscard]] static absl::StatusOr<std::shared_ptr<const MappedFile>> Open(
      const std::string& path);
  // Bytes that come from elsewhere, under a name for messages.
  static std::shared_ptr<const MappedFile> FromBytes(
      std::string name, std::vector<uint8_t> bytes);

  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  const std::string& path() const { return path_; }
  const uint8_t* data() const { return data_; }
  uint64_t size() const { return size_; }
  std::string_view text() const {
    return {reinterpret_cast<const char*>(data_), size_};
  }

 private:
  MappedFile() = default;

  std::string path_;
  const uint8_t* data_ = nullptr;
  uint64_t size_ = 0;
  std::vector<uint8_t> owned_;  // empty when mapped
};

}  // namespace lamina::model_internal
