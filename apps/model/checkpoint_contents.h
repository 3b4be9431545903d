#pragma once

// What Checkpoint::Open puts together, and the two ways to it. The functions
// take files that are already in memory, so that tests can give them any bytes.

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lamina/model/checkpoint.h"
#include "lamina/model/mapped_file.h"

namespace lamina::model_internal {

struct CheckpointContents {
  ModelConfig config;
  CheckpointQuantization quantization;
  std::map<std::string, CheckpointTensor, std::less<>> tensors;
  std::optional<GgufTokenizer> gguf_tokenizer;
  std::optional<HfTokenizer> hf_tokenizer;
  // What the views above point into.
  std::vector<std::shared_ptr<const MappedFile>> files;
  std::deque<std::vector<float>> scales;
  int64_t file_bytes = 0;
};

// Where a tensor stands, for messages: the file, the byte of its entry, its
// name there.
struct TensorSource {
  const MappedFile* file = nullptr;
  uint64_t entry = 0;
  std::string name_in_file;
};
using TensorSources = std::map<std::string, TensorSource, std::less<>>;

// Every tensor that the config calls for is there, has its shape and can be
// read; no tensor is there that a Llama model does not have (it would change
// the result), but for those that `ignorable` accepts.
absl::Status CheckTensors(const CheckpointContents& contents,
                          const TensorSources& sources, std::string_view file,
                          bool (*ignorable)(std::string_view name));

[[nodiscard]] absl::StatusOr<CheckpointContents> ReadGgufCheckpoint(
    std::shared_ptr<const MappedFile> file);

struct HfFiles {
  std::string directory;
  std::shared_ptr<const MappedFile> config;
  std::shared_ptr<const MappedFile> index;  // null when not sharded
  // Named as in the index; one when there is none.
  std::map<std::string, std::shared_ptr<const MappedFile>> weights;
  // Null where there is none.
  std::shared_ptr<const MappedFile> generation_config;
  std::shared_ptr<const MappedFile> tokenizer;
  std::shared_ptr<const MappedFile> tokenizer_config;
  std::shared_ptr<const MappedFile> chat_template;
};
[[nodiscard]] absl::StatusOr<CheckpointContents> ReadHfCheckpoint(
    const HfFiles& files);

}  // namespace lamina::model_internal
