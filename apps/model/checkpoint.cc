#include "lamina/model/checkpoint.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lamina/core/status.h"
#include "lamina/model/checkpoint_contents.h"
#include "lamina/model/dequantize.h"
#include "lamina/model/file_error.h"
#include "lamina/model/gguf.h"
#include "lamina/model/mapped_file.h"
#include "lamina/model/safetensors.h"

namespace lamina {
namespace model_internal {

absl::Status CheckTensors(const CheckpointContents& contents,
                          const TensorSources& sources, std::string_view file,
                          bool (*ignorable)(std::string_view name)) {
  const std::vector<ExpectedTensor> expected = ExpectedTensors(contents.config);
  std::map<std::string_view, const ExpectedTensor*> by_name;
  for (const ExpectedTensor& want : expected) {
    by_name.emplace(want.name, &want);
    const auto found = contents.tensors.find(want.name);
    if (found == contents.tensors.end()) {
      return BadFile(file,
                     absl::StrCat("tensor ", Quoted(want.name),
                                  ": missing (the configuration has ",
                                  contents.config.num_layers, " layers)"));
    }
    const CheckpointTensor& tensor = found->second;
    const TensorSource& source = sources.find(want.name)->second;
    const std::string what =
        absl::StrCat("tensor ", Quoted(source.name_in_file), ": ");
    if (tensor.shape != want.shape) {
      return BadFile(
          source.file->path(), source.entry,
          absl::StrCat(what, "shape ",
                       ShapeText(tensor.shape.data(), tensor.shape.size()),
                       ", the configuration wants ",
                       ShapeText(want.shape.data(), want.shape.size())));
    }
    if (!CanDequantize(tensor.type)) {
      return BadFile(source.file->path(), source.entry,
                     absl::StrCat(what, "type ", Name(tensor.type),
                                  " is not a weight type"));
    }
  }
  for (const auto& [name, source] : sources) {
    if (by_name.count(name) == 0 && !ignorable(name)) {
      return NotSupported(
          source.file->path(),
          absl::StrCat("byte ", source.entry, ": tensor ",
                       Quoted(source.name_in_file), ": a Llama model of ",
                       contents.config.num_layers,
                       " layers has no such tensor"));
    }
  }
  return absl::OkStatus();
}

namespace {

namespace fs = std::filesystem;
using FilePtr = std::shared_ptr<const MappedFile>;

// A file that need not be there.
absl::Status OpenOptional(const fs::path& path, FilePtr* file) {
  auto opened = MappedFile::Open(path.string());
  if (opened.ok()) {
    *file = *std::move(opened);
  } else if (!absl::IsNotFound(opened.status())) {
    return opened.status();
  }
  return absl::OkStatus();
}

// What stands beside the weights.
absl::StatusOr<HfFiles> OpenBeside(const fs::path& directory) {
  HfFiles files;
  files.directory = directory.string();
  LAMINA_ASSIGN_OR_RETURN(
      files.config, MappedFile::Open((directory / "config.json").string()));
  struct Optional {
    const char* name;
    FilePtr* file;
  };
  for (const Optional& optional :
       {Optional{"generation_config.json", &files.generation_config},
        Optional{"tokenizer.json", &files.tokenizer},
        Optional{"tokenizer_config.json", &files.tokenizer_config},
        Optional{"chat_template.jinja", &files.chat_template}}) {
    LAMINA_RETURN_IF_ERROR(
        OpenOptional(directory / optional.name, optional.file));
  }
  return files;
}

absl::StatusOr<CheckpointContents> OpenHfDirectory(const fs::path& directory) {
  LAMINA_ASSIGN_OR_RETURN(HfFiles files, OpenBeside(directory));
  FilePtr single;
  LAMINA_RETURN_IF_ERROR(
      OpenOptional(directory / "model.safetensors", &single));
  if (single != nullptr) {
    files.weights.emplace("model.safetensors", std::move(single));
    return ReadHfCheckpoint(files);
  }
  LAMINA_RETURN_IF_ERROR(
      OpenOptional(directory / "model.safetensors.index.json", &files.index));
  if (files.index == nullptr) {
    return absl::NotFoundError(
        absl::StrCat(directory.string(),
                     ": has config.json, but neither model.safetensors nor "
                     "model.safetensors.index.json"));
  }
  LAMINA_ASSIGN_OR_RETURN(
      const auto index,
      ParseSafetensorsIndex(files.index->path(), files.index->text()));
  for (const auto& [tensor, shard] : index) {
    if (files.weights.count(shard) > 0) continue;
    LAMINA_ASSIGN_OR_RETURN(FilePtr file,
                            MappedFile::Open((directory / shard).string()));
    files.weights.emplace(shard, std::move(file));
  }
  return ReadHfCheckpoint(files);
}

absl::StatusOr<CheckpointContents> OpenDirectory(const fs::path& directory) {
  std::error_code error;
  if (fs::exists(directory / "config.json", error)) {
    return OpenHfDirectory(directory);
  }
  std::vector<fs::path> gguf;
  for (fs::directory_iterator it(directory, error), end; !error && it != end;
       it.increment(error)) {
    if (it->path().extension() == ".gguf") gguf.push_back(it->path());
  }
  if (error) {
    return absl::InvalidArgumentError(
        absl::StrCat(directory.string(), ": cannot list: ", error.message()));
  }
  if (gguf.size() != 1) {
    return absl::NotFoundError(absl::StrCat(
        directory.string(), ": has no config.json and ", gguf.size(),
        " .gguf files; want config.json with "
        "safetensors, or one .gguf file"));
  }
  LAMINA_ASSIGN_OR_RETURN(FilePtr file, MappedFile::Open(gguf[0].string()));
  return ReadGgufCheckpoint(std::move(file));
}

absl::StatusOr<CheckpointContents> OpenPath(const std::string& path) {
  std::error_code error;
  if (fs::is_directory(path, error)) return OpenDirectory(path);
  LAMINA_ASSIGN_OR_RETURN(FilePtr file, MappedFile::Open(path));
  if (GgufFile::IsGguf(*file)) return ReadGgufCheckpoint(std::move(file));
  // Told before config.json is looked for, which would be a puzzling error.
  LAMINA_RETURN_IF_ERROR(SafetensorsFile::Parse(file).status());
  const fs::path parent = fs::path(path).parent_path();
  LAMINA_ASSIGN_OR_RETURN(HfFiles files,
                          OpenBeside(parent.empty() ? "." : parent));
  files.weights.emplace(fs::path(path).filename().string(), std::move(file));
  return ReadHfCheckpoint(files);
}

}  // namespace
}  // namespace model_internal

struct Checkpoint::Impl {
  std::string path;
  model_internal::CheckpointContents contents;
};

Checkpoint::Checkpoint(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Checkpoint::Checkpoint(Checkpoint&&) noexcept = default;
Checkpoint& Checkpoint::operator=(Checkpoint&&) noexcept = default;
Checkpoint::~Checkpoint() = default;

absl::StatusOr<Checkpoint> Checkpoint::Open(const std::string& path) {
  LAMINA_ASSIGN_OR_RETURN(model_internal::CheckpointContents contents,
                          model_internal::OpenPath(path));
  auto impl = std::make_unique<Impl>();
  impl->path = path;
  impl->contents = std::move(contents);
  return Checkpoint(std::move(impl));
}

const ModelConfig& Checkpoint::config() const { return impl_->contents.config; }
const CheckpointQuantization& Checkpoint::quantization() const {
  return impl_->contents.quantization;
}
const std::string& Checkpoint::path() const { return impl_->path; }
int64_t Checkpoint::file_bytes() const { return impl_->contents.file_bytes; }

absl::StatusOr<const CheckpointTensor*> Checkpoint::Tensor(
    std::string_view name) const {
  const bool tied_head = config().tied_embeddings && name == "lm_head.weight";
  const auto found =
      tensors().find(tied_head ? "model.embed_tokens.weight" : name);
  if (found != tensors().end()) return &found->second;
  return absl::NotFoundError(
      absl::StrCat(path(), ": no tensor ", model_internal::Quoted(name)));
}

const std::map<std::string, CheckpointTensor, std::less<>>&
Checkpoint::tensors() const {
  return impl_->contents.tensors;
}

const GgufTokenizer* Checkpoint::gguf_tokenizer() const {
  const auto& tokenizer = impl_->contents.gguf_tokenizer;
  return tokenizer ? &*tokenizer : nullptr;
}
const HfTokenizer* Checkpoint::hf_tokenizer() const {
  const auto& tokenizer = impl_->contents.hf_tokenizer;
  return tokenizer ? &*tokenizer : nullptr;
}

}  // namespace lamina
