#include "lamina/model/hf_config.h"

#include <cstdlib>
#include <string_view>

#include "lamina/model/safetensors.h"
#include "tests/fuzz/fuzz.h"

// config.json, generation_config.json and the index of shards.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto config = lamina::model_internal::ParseHfConfig("fuzzed", text);
  lamina::testing::CheckStatus(config.status());
  if (config.ok() && !CheckConfig(config->model).ok()) std::abort();
  lamina::testing::CheckStatus(
      lamina::model_internal::ParseHfGenerationEosIds("fuzzed", text).status());
  const auto index =
      lamina::model_internal::ParseSafetensorsIndex("fuzzed", text);
  lamina::testing::CheckStatus(index.status());
  if (index.ok()) {
    for (const auto& [tensor, shard] : *index) {
      if (shard.find('/') != std::string::npos) std::abort();
    }
  }
  return 0;
}
