#include "tests/fuzz/fuzz.h"

#include <string_view>

namespace {

// Fits corpus/safetensors.
constexpr std::string_view kConfig = R"({"model_type": "llama",
  "hidden_size": 4, "num_hidden_layers": 1, "num_attention_heads": 2,
  "num_key_value_heads": 1, "intermediate_size": 4, "vocab_size": 3,
  "max_position_embeddings": 8, "rms_norm_eps": 1e-05,
  "tie_word_embeddings": true, "quantization_config": {
    "quant_method": "fp8", "activation_scheme": "static"}})";

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  lamina::model_internal::HfFiles files;
  files.config = lamina::testing::FuzzedFile(
      reinterpret_cast<const uint8_t*>(kConfig.data()), kConfig.size());
  files.weights.emplace("fuzzed", lamina::testing::FuzzedFile(data, size));
  lamina::testing::CheckContents(
      lamina::model_internal::ReadHfCheckpoint(files));
  return 0;
}
