#pragma once

// config.json of a Hugging Face checkpoint, read and written.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lamina/model/checkpoint.h"
#include "lamina/model/config.h"

namespace lamina::model_internal {

struct HfConfig {
  ModelConfig model;  // has passed CheckConfig
  CheckpointQuantization quantization;
  // Weights have one scale a tile of so many rows and columns; 0 = no tiles.
  int64_t tile_rows = 0;
  int64_t tile_cols = 0;
};
[[nodiscard]] absl::StatusOr<HfConfig> ParseHfConfig(std::string_view file,
                                                     std::string_view text);

// The end-of-text ids of generation_config.json; none if it has none.
[[nodiscard]] absl::StatusOr<std::vector<int32_t>> ParseHfGenerationEosIds(
    std::string_view file, std::string_view text);

// config.json of an FP8 checkpoint with per-channel weight scales.
std::string Fp8HfConfigText(const ModelConfig& config,
                            ActivationScheme activations);

}  // namespace lamina::model_internal
