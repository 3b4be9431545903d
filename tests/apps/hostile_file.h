#pragma once

// What every reader must do with every file: answer OK or one clear line, and
// then let the tensors be read.

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lamina/model/checkpoint_contents.h"
#include "lamina/model/mapped_file.h"
#include "tests/support/model_files.h"

namespace lamina::testing {

inline constexpr const char* kFileName = "some/file";

inline std::shared_ptr<const model_internal::MappedFile> InMemory(
    std::vector<uint8_t> bytes, const char* name = kFileName) {
  return model_internal::MappedFile::FromBytes(name, std::move(bytes));
}
inline std::shared_ptr<const model_internal::MappedFile> InMemory(
    const std::string& text, const char* name) {
  return InMemory(std::vector<uint8_t>(text.begin(), text.end()), name);
}

// Reads every tensor that can be read.
inline void ReadAll(const model_internal::CheckpointContents& contents) {
  for (const auto& [name, tensor] : contents.tensors) {
    std::vector<float> row(static_cast<size_t>(tensor.cols()));
    for (const int64_t r : {int64_t{0}, tensor.rows() - 1}) {
      if (tensor.rows() == 0) continue;
      ReadRows(tensor, r, Matrix(row.data(), 1, tensor.cols()), Stream::Cpu(1))
          .IgnoreError();
    }
  }
}

// Counts of the answers, so that a test can tell that its spoiling spoils.
struct Answers {
  int64_t ok = 0;
  int64_t refused = 0;
};

inline void ExpectClearAnswer(
    const absl::StatusOr<model_internal::CheckpointContents>& answer,
    const std::string& what, Answers& answers) {
  if (answer.ok()) {
    ++answers.ok;
    ReadAll(*answer);
    return;
  }
  ++answers.refused;
  const std::string message(answer.status().message());
  EXPECT_TRUE(absl::IsInvalidArgument(answer.status()) ||
              absl::IsUnimplemented(answer.status()))
      << what << ": " << answer.status();
  EXPECT_EQ(message.find('\n'), std::string::npos) << what << ": " << message;
  EXPECT_EQ(message.find(kFileName), 0u) << what << ": " << message;
  EXPECT_LT(message.size(), 600u) << what << ": " << message;
}

// Values that break arithmetic on sizes, for a field of so many bytes.
inline std::vector<uint64_t> NastyValues(int bytes, uint64_t now) {
  const uint64_t max =
      bytes == 8 ? ~uint64_t{0} : (uint64_t{1} << (8 * bytes)) - 1;
  return {0,
          1,
          2,
          7,
          now + 1,
          now - 1,
          now * 2,
          max,
          max - 1,
          max / 2,
          max / 2 + 1,
          max / 8,
          max / 8 + 1,
          max / 4,
          max / 32,
          max - 30,
          uint64_t{1} << 32,
          uint64_t{1} << 40,
          uint64_t{1} << 59};
}

inline uint64_t GetField(const FileImage& image, const FileField& field) {
  uint64_t value = 0;
  __builtin_memcpy(&value, image.bytes.data() + field.offset,
                   static_cast<size_t>(field.bytes));
  return value;
}
inline std::vector<uint8_t> WithField(const FileImage& image,
                                      const FileField& field, uint64_t value) {
  std::vector<uint8_t> bytes = image.bytes;
  __builtin_memcpy(bytes.data() + field.offset, &value,
                   static_cast<size_t>(field.bytes));
  return bytes;
}

}  // namespace lamina::testing
