#include "lamina/model/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "lamina/model/checkpoint.h"
#include "lamina/model/fp8_checkpoint_writer.h"

namespace lamina {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

ModelConfig SmolLm2() {
  return {.architecture = "llama",
          .hidden_dim = 576,
          .num_layers = 30,
          .num_heads = 9,
          .num_kv_heads = 3,
          .head_dim = 64,
          .ffn_dim = 1536,
          .vocab_size = 49152,
          .max_positions = 8192,
          .epsilon = 1e-5f,
          .tied_embeddings = true,
          .rope = {.theta = 100000, .rotary_dim = 64},
          .bos_id = 1,
          .eos_ids = {2},
          .pad_id = 2};
}

TEST(ModelConfig, AcceptsAndCountsSmolLm2) {
  EXPECT_TRUE(CheckConfig(SmolLm2()).ok()) << CheckConfig(SmolLm2());
  EXPECT_EQ(SmolLm2().num_parameters(), 134515008);
  EXPECT_EQ(ExpectedTensors(SmolLm2()).size(), 272u);
}

TEST(ModelConfig, ListsTensorsInUseOrder) {
  ModelConfig config = SmolLm2();
  config.num_layers = 1;
  config.tied_embeddings = false;
  std::vector<std::string> names;
  for (const ExpectedTensor& tensor : ExpectedTensors(config)) {
    names.push_back(tensor.name);
    EXPECT_EQ(tensor.is_linear, tensor.name.find("_proj") != std::string::npos);
  }
  EXPECT_THAT(names,
              ElementsAre("model.embed_tokens.weight",
                          "model.layers.0.input_layernorm.weight",
                          "model.layers.0.self_attn.q_proj.weight",
                          "model.layers.0.self_attn.k_proj.weight",
                          "model.layers.0.self_attn.v_proj.weight",
                          "model.layers.0.self_attn.o_proj.weight",
                          "model.layers.0.post_attention_layernorm.weight",
                          "model.layers.0.mlp.gate_proj.weight",
                          "model.layers.0.mlp.up_proj.weight",
                          "model.layers.0.mlp.down_proj.weight",
                          "model.norm.weight", "lm_head.weight"));
}

TEST(ModelConfig, NamesWhatIsWrong) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  struct Case {
    std::function<void(ModelConfig&)> change;
    const char* message;
  };
  const Case cases[] = {
      {[](auto& c) { c.hidden_dim = 0; }, "hidden_dim: given 0, want 1 to"},
      {[](auto& c) { c.num_layers = 1 << 30; }, "num_layers: given 1073741824"},
      {[](auto& c) { c.num_heads = -1; }, "num_heads: given -1"},
      {[](auto& c) { c.num_kv_heads = 2; },
       "num_kv_heads: given 2, want a divisor of 9"},
      {[](auto& c) { c.num_kv_heads = 18; }, "num_kv_heads: given 18"},
      {[](auto& c) { c.head_dim = 0; }, "head_dim: given 0"},
      {[](auto& c) { c.head_dim = 1 << 20; }, "num_heads * head_dim"},
      {[](auto& c) { c.head_dim = c.rope.rotary_dim = 63; },
       "rotary_dim: given 63, want even"},
      {[](auto& c) { c.rope.rotary_dim = 32; }, "rotary_dim: given 32"},
      {[](auto& c) { c.ffn_dim = int64_t{1} << 62; }, "ffn_dim: given"},
      {[](auto& c) { c.vocab_size = -5; }, "vocab_size: given -5"},
      {[](auto& c) { c.max_positions = 0; }, "max_positions: given 0"},
      {[=](auto& c) { c.epsilon = nan; }, "epsilon: given nan"},
      {[](auto& c) { c.epsilon = -1e-5f; }, "epsilon: given -1e-05"},
      {[](auto& c) { c.rope.theta = 0; }, "rope.theta: given 0"},
      {[](auto& c) { c.rope.factor = -8; }, "rope.factor: given -8"},
      {[](auto& c) { c.rope.factor = 8, c.rope.low_freq_factor = 4; },
       "rope.high_freq_factor: given 4, want above 4"},
      {[](auto& c) { c.bos_id = 49152; }, "bos_id: given 49152"},
      {[](auto& c) {
         c.eos_ids = {2, -1};
       },
       "eos_ids: given -1"},
      {[](auto& c) { c.pad_id = -1; }, "pad_id: given -1"},
  };
  for (const Case& c : cases) {
    ModelConfig config = SmolLm2();
    c.change(config);
    const absl::Status status = CheckConfig(config);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << c.message;
    EXPECT_THAT(std::string(status.message()), HasSubstr(c.message));
  }
}

TEST(AdjacentRow, PairsHalfSplitRows) {
  std::vector<int64_t> rows;
  for (int64_t r = 0; r < 8; ++r) rows.push_back(AdjacentRow(r, 4));
  EXPECT_THAT(rows, ElementsAre(0, 2, 1, 3, 4, 6, 5, 7));
}

}  // namespace
}  // namespace lamina
