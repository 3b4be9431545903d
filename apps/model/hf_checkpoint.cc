// From safetensors files and config.json to a checkpoint.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "lamina/core/math.h"
#include "lamina/core/status.h"
#include "lamina/model/checkpoint_contents.h"
#include "lamina/model/dequantize.h"
#include "lamina/model/file_error.h"
#include "lamina/model/hf_config.h"
#include "lamina/model/safetensors.h"

namespace lamina::model_internal {
namespace {

absl::string_view Absl(std::string_view text) {
  return {text.data(), text.size()};
}

// Tensors of older or quantised files that the result does not depend on:
// precomputed frequencies, scales of a quantised KV cache.
bool Ignorable(std::string_view name) {
  for (const char* suffix :
       {".rotary_emb.inv_freq", ".k_scale", ".v_scale", ".q_scale", ".kv_scale",
        ".prob_scale", ".output_scale"}) {
    if (absl::EndsWith(Absl(name), suffix)) return true;
  }
  return name == "lm_head.weight";  // with tied embeddings
}

constexpr std::string_view kWeight = ".weight";

// The scale tensors of all files, by the name of the weight they belong to.
struct ScaleTensor {
  const SafetensorsTensor* tensor = nullptr;
  const MappedFile* file = nullptr;
  bool used = false;
};
using ScaleTensors = std::map<std::string, ScaleTensor, std::less<>>;

// The weight that a scale tensor with one of these suffixes belongs to.
std::optional<std::string> WeightOf(std::string_view name,
                                    std::string_view suffix) {
  if (!absl::EndsWith(Absl(name), Absl(suffix))) return std::nullopt;
  return absl::StrCat(Absl(name.substr(0, name.size() - suffix.size())),
                      Absl(kWeight));
}

absl::Status ScaleError(const ScaleTensor& scale, std::string_view message) {
  return BadFile(
      scale.file->path(), scale.tensor->entry,
      absl::StrCat("tensor ", Quoted(scale.tensor->name), ": ", Absl(message)));
}

// The scales as f32, every one finite and not negative.
absl::StatusOr<std::vector<float>> ReadScales(const ScaleTensor& scale,
                                              int64_t count) {
  const SafetensorsTensor& tensor = *scale.tensor;
  if (tensor.type != StorageType::kF32 && tensor.type != StorageType::kBF16 &&
      tensor.type != StorageType::kF16) {
    return ScaleError(scale, absl::StrCat("type ", Name(tensor.type),
                                          ", want f32, bf16 or f16"));
  }
  std::vector<float> values(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; i += kDequantizeChunk) {
    DequantizeChunk(tensor.type, tensor.data + i * BlockBytes(tensor.type),
                    std::min(kDequantizeChunk, count - i), values.data() + i);
  }
  for (size_t i = 0; i < values.size(); ++i) {
    if (!std::isfinite(values[i]) || values[i] < 0) {
      return ScaleError(scale, absl::StrCat("scale ", i, " is ", values[i],
                                            ", want a finite number, not "
                                            "negative"));
    }
  }
  return values;
}

// Gives `weight` its scales. Their number tells the granularity.
absl::Status AttachWeightScale(const ScaleTensor& scale, const HfConfig& config,
                               CheckpointContents& contents,
                               CheckpointTensor& weight) {
  const SafetensorsTensor& tensor = *scale.tensor;
  const int64_t rows = weight.rows();
  const int64_t count =
      tensor.bytes / std::max<int64_t>(1, BlockBytes(tensor.type));
  const bool column = tensor.shape == std::vector<int64_t>{rows} ||
                      tensor.shape == std::vector<int64_t>{rows, 1};
  const bool tiled = config.tile_rows > 0;
  if (tiled) {
    const std::vector<int64_t> grid = {
        CeilDiv(rows, config.tile_rows),
        CeilDiv(weight.cols(), config.tile_cols)};
    if (tensor.shape != grid) {
      return ScaleError(
          scale,
          absl::StrCat("shape ",
                       ShapeText(tensor.shape.data(), tensor.shape.size()),
                       ", want ", ShapeText(grid.data(), 2), ", one a tile"));
    }
  } else if (count != 1 && !column) {
    return ScaleError(
        scale, absl::StrCat("shape ",
                            ShapeText(tensor.shape.data(), tensor.shape.size()),
                            ", want one element, or [", rows,
                            ", 1], one a row of the weight"));
  }
  LAMINA_ASSIGN_OR_RETURN(std::vector<float> values, ReadScales(scale, count));
  contents.scales.push_back(std::move(values));
  const float* data = contents.scales.back().data();
  weight.scales =
      tiled ? PerTile(data, weight.cols(), config.tile_rows, config.tile_cols)
      : count == 1 ? PerTensor(data)
                   : PerRow(data);
  return absl::OkStatus();
}

absl::Status AttachInputScale(const ScaleTensor& scale,
                              CheckpointTensor& weight) {
  if (scale.tensor->bytes != BlockBytes(scale.tensor->type)) {
    return ScaleError(scale, "want one element");
  }
  LAMINA_ASSIGN_OR_RETURN(const std::vector<float> values,
                          ReadScales(scale, 1));
  if (!(values[0] > 0)) return ScaleError(scale, "zero, want above 0");
  weight.input_scale = values[0];
  return absl::OkStatus();
}

bool IsCode(StorageType type) {
  return type == StorageType::kF8E4M3 || type == StorageType::kF8E5M2 ||
         type == StorageType::kI8;
}

absl::Status AttachScales(const HfConfig& config, const TensorSources& sources,
                          ScaleTensors& weight_scales,
                          ScaleTensors& input_scales,
                          CheckpointContents& contents) {
  for (auto& [name, weight] : contents.tensors) {
    if (!IsCode(weight.type)) continue;
    const TensorSource& source = sources.find(name)->second;
    const auto missing = [&](const char* what) {
      return BadFile(source.file->path(), source.entry,
                     absl::StrCat("tensor ", Quoted(name), ": ",
                                  Name(weight.type), " without ", what));
    };
    if (config.quantization.method.empty()) {
      return missing("a quantization_config in config.json");
    }
    const auto scale = weight_scales.find(name);
    if (scale == weight_scales.end()) return missing("a weight_scale");
    scale->second.used = true;
    LAMINA_RETURN_IF_ERROR(
        AttachWeightScale(scale->second, config, contents, weight));
    const auto input = input_scales.find(name);
    if (input != input_scales.end()) input->second.used = true;
    if (config.quantization.activations == ActivationScheme::kStatic) {
      if (input == input_scales.end()) return missing("an input_scale");
      LAMINA_RETURN_IF_ERROR(AttachInputScale(input->second, weight));
    }
  }
  for (const ScaleTensors* scales : {&weight_scales, &input_scales}) {
    for (const auto& [name, scale] : *scales) {
      if (scale.used) continue;
      return ScaleError(scale, absl::StrCat("there is no quantised ",
                                            Quoted(name), " to scale"));
    }
  }
  return absl::OkStatus();
}

std::string_view TextOf(const std::shared_ptr<const MappedFile>& file) {
  return file == nullptr ? std::string_view() : file->text();
}

// Every tensor of the index is in the shard that the index names.
absl::Status CheckIndex(const HfFiles& files,
                        const std::vector<SafetensorsFile>& shards) {
  if (files.index == nullptr) return absl::OkStatus();
  const std::string& path = files.index->path();
  LAMINA_ASSIGN_OR_RETURN(const auto index,
                          ParseSafetensorsIndex(path, files.index->text()));
  for (const auto& [name, shard] : index) {
    const auto file = files.weights.find(shard);
    if (file == files.weights.end()) {
      return BadFile(path, absl::StrCat("shard ", Quoted(shard), " of ",
                                        Quoted(name), " is not there"));
    }
    const auto opened = std::find_if(
        shards.begin(), shards.end(),
        [&](const auto& s) { return &s.file() == file->second.get(); });
    // tensors() is sorted by name.
    const auto& tensors = opened->tensors();
    const auto found =
        std::lower_bound(tensors.begin(), tensors.end(), name,
                         [](const SafetensorsTensor& t, const std::string& n) {
                           return t.name < n;
                         });
    if (found == tensors.end() || found->name != name) {
      return BadFile(
          path, absl::StrCat("tensor ", Quoted(name), " is not in its shard ",
                             Quoted(shard)));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<CheckpointContents> ReadHfCheckpoint(const HfFiles& files) {
  LAMINA_ASSIGN_OR_RETURN(
      const HfConfig config,
      ParseHfConfig(files.config->path(), files.config->text()));
  CheckpointContents contents;
  contents.config = config.model;
  contents.quantization = config.quantization;
  if (files.generation_config != nullptr) {
    LAMINA_ASSIGN_OR_RETURN(
        const std::vector<int32_t> ids,
        ParseHfGenerationEosIds(files.generation_config->path(),
                                files.generation_config->text()));
    std::vector<int32_t>& all = contents.config.eos_ids;
    for (const int32_t id : ids) {
      if (std::find(all.begin(), all.end(), id) == all.end()) {
        all.push_back(id);
      }
    }
    const absl::Status valid = CheckConfig(contents.config);
    if (!valid.ok()) {
      return BadFile(files.generation_config->path(),
                     std::string(valid.message()));
    }
  }

  std::vector<SafetensorsFile> shards;
  for (const auto& [name, file] : files.weights) {
    LAMINA_ASSIGN_OR_RETURN(SafetensorsFile shard,
                            SafetensorsFile::Parse(file));
    shards.push_back(std::move(shard));
  }
  LAMINA_RETURN_IF_ERROR(CheckIndex(files, shards));

  TensorSources sources;
  ScaleTensors weight_scales;
  ScaleTensors input_scales;
  for (const SafetensorsFile& shard : shards) {
    for (const SafetensorsTensor& tensor : shard.tensors()) {
      const auto twice = [&] {
        return BadFile(
            shard.file().path(), tensor.entry,
            absl::StrCat("tensor ", Quoted(tensor.name), " occurs twice"));
      };
      const ScaleTensor scale = {&tensor, &shard.file()};
      std::optional<std::string> scaled =
          WeightOf(tensor.name, ".weight_scale");
      if (!scaled) scaled = WeightOf(tensor.name, ".weight_scale_inv");
      if (scaled) {
        if (!weight_scales.emplace(*scaled, scale).second) return twice();
        continue;
      }
      if ((scaled = WeightOf(tensor.name, ".input_scale"))) {
        if (!input_scales.emplace(*scaled, scale).second) return twice();
        continue;
      }
      CheckpointTensor entry;
      entry.name = tensor.name;
      entry.shape = tensor.shape;
      entry.type = tensor.type;
      entry.data = tensor.data;
      entry.bytes = tensor.bytes;
      if (!contents.tensors.emplace(tensor.name, std::move(entry)).second) {
        return twice();
      }
      sources.emplace(tensor.name,
                      TensorSource{&shard.file(), tensor.entry, tensor.name});
    }
  }
  const std::string& weights_name = files.index != nullptr
                                        ? files.index->path()
                                        : files.weights.begin()->second->path();
  LAMINA_RETURN_IF_ERROR(
      CheckTensors(contents, sources, weights_name, &Ignorable));
  LAMINA_RETURN_IF_ERROR(
      AttachScales(config, sources, weight_scales, input_scales, contents));

  contents.hf_tokenizer =
      HfTokenizer{.directory = files.directory,
                  .tokenizer_json = TextOf(files.tokenizer),
                  .tokenizer_config_json = TextOf(files.tokenizer_config),
                  .chat_template_jinja = TextOf(files.chat_template)};
  for (const auto& [name, file] : files.weights) {
    contents.files.push_back(file);
    contents.file_bytes += static_cast<int64_t>(file->size());
  }
  for (const auto& file :
       {files.tokenizer, files.tokenizer_config, files.chat_template}) {
    if (file != nullptr) contents.files.push_back(file);
  }
  return contents;
}

}  // namespace lamina::model_internal
