#include "lamina/model/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lamina/model/file_error.h"

namespace lamina::model_internal {

absl::StatusOr<std::shared_ptr<const MappedFile>> MappedFile::Open(
    const std::string& path) {
  // NOTE: O_NONBLOCK, or opening a pipe would wait for its writer.
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat(path, ": cannot open"));
  }
  struct stat info = {};
  absl::Status status;
  if (fstat(fd, &info) != 0) {
    status = absl::ErrnoToStatus(errno, absl::StrCat(path, ": cannot stat"));
  } else if (!S_ISREG(info.st_mode)) {
    status = BadFile(path, "not a regular file");
  } else if (info.st_size == 0) {
    status = BadFile(path, "the file is empty");
  }
  std::shared_ptr<MappedFile> file(new MappedFile);
  if (status.ok()) {
    void* data = mmap(nullptr, static_cast<size_t>(info.st_size), PROT_READ,
                      MAP_PRIVATE, fd, 0);
    if (data == MAP_FAILED) {
      status = absl::ErrnoToStatus(errno, absl::StrCat(path, ": cannot map"));
    } else {
      file->data_ = static_cast<const uint8_t*>(data);
      file->size_ = static_cast<uint64_t>(info.st_size);
    }
  }
  close(fd);
  if (!status.ok()) return status;
  file->path_ = path;
  return std::shared_ptr<const MappedFile>(std::move(file));
}

std::shared_ptr<const MappedFile> MappedFile::FromBytes(
    std::string name, std::vector<uint8_t> bytes) {
  std::shared_ptr<MappedFile> file(new MappedFile);
  file->path_ = std::move(name);
  file->owned_ = std::move(bytes);
  file->data_ = file->owned_.data();
  file->size_ = file->owned_.size();
  return file;
}

MappedFile::~MappedFile() {
  if (owned_.empty() && size_ > 0) {
    munmap(const_cast<uint8_t*>(data_), static_cast<size_t>(size_));
  }
}

}  // namespace lamina::model_internal
