// The blocks of a model as one kernel (persistent/persistent_chain.h), on the
// device at hand: the bits of the operators' own launches, step by step; what
// it does not take; a lost signal.

#include <cstring>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lamina/core/buffer.h"
#include "lamina/core/copy.h"
#include "lamina/norm/rms_norm.h"
#include "lamina/persistent/persistent_chain.h"
#include "lamina/transformer/decode_loop.h"
#include "lamina/transformer/transformer.h"
#include "tests/support/test_device.h"

namespace lamina {
namespace {

using ::lamina::testing::OnCpu;
using ::lamina::testing::OnSimt;
using ::testing::HasSubstr;

struct Case {
  const char* name = "";
  DType weights = DType::kF8E4M3Fn;
  InputQuantization inputs = InputQuantization::kStatic;
  int64_t batch = 1;
  int64_t head_dim = 64;
  int64_t kv_heads = 1;
  int64_t group = 5;  // query heads of a KV head
  BlockFusion fusion = {};
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

ModelConfig ConfigOf(const Case& c) {
  ModelConfig config;
  config.hidden_dim = c.kv_heads * c.group * c.head_dim;
  config.num_layers = 2;
  config.num_heads = c.kv_heads * c.group;
  config.num_kv_heads = c.kv_heads;
  config.head_dim = c.head_dim;
  config.ffn_dim = 272;
  config.vocab_size = 33;
  config.max_positions = 4096;
  config.epsilon = 1e-5f;
  config.rope = {.theta = 1e4, .rotary_dim = c.head_dim};
  return config;
}

Transformer ModelOf(const Case& c, const Stream& stream) {
  absl::StatusOr<Transformer> model =
      Transformer::Random(ConfigOf(c),
                          {.weight_type = c.weights,
                           .activation_type = DType::kBF16,
                           .fusion = c.fusion,
                           .sequences = c.batch,
                           .max_positions = 1100,
                           .max_tokens = c.batch,
                           .max_logits = c.batch},
                          c.inputs, 7, stream);
  EXPECT_TRUE(model.ok()) << model.status();
  return *std::move(model);
}

// On a GPU a stream that can be recorded.
class DeviceStream {
 public:
  DeviceStream()
      : owned_(*OwnedStream::Create(testing::TestStream().device())) {}
  const Stream& get() const { return owned_.stream(); }

 private:
  OwnedStream owned_;
};

// Logits of `steps` steps of sequences that have `length` tokens and more.
std::vector<std::vector<float>> Decode(Transformer& model, const Case& c,
                                       int64_t length, int steps,
                                       bool persistent, const Stream& stream) {
  for (int64_t layer = 0; layer < model.config().num_layers; ++layer) {
    const KvCacheView cache = model.layer_cache(layer);
    const int64_t elements =
        cache.num_pages * cache.page_tokens * cache.kv_heads * cache.head_dim;
    for (void* const half : {cache.k, cache.v}) {
      EXPECT_TRUE(transformer_internal::FillRandom(half, cache.dtype, elements,
                                                   1.0f, 5, stream)
                      .ok());
    }
  }
  absl::StatusOr<DecodeLoop> loop = DecodeLoop::Create(
      model, {.batch = c.batch, .persistent = persistent}, stream);
  EXPECT_TRUE(loop.ok()) << loop.status();
  for (int64_t s = 0; s < c.batch; ++s) {
    EXPECT_TRUE(loop->Assume(s, length + s % 3).ok());
  }
  EXPECT_TRUE(loop->Start().ok());
  std::vector<std::vector<float>> logits;
  for (int i = 0; i < steps; ++i) {
    const absl::Status status = loop->Step();
    EXPECT_TRUE(status.ok()) << status;
    logits.emplace_back(
        static_cast<size_t>(c.batch * model.config().vocab_size), NAN);
    EXPECT_TRUE(loop->ReadLogits(absl::MakeSpan(logits.back())).ok());
  }
  return logits;
}

class PersistentTest : public ::testing::TestWithParam<Case> {};

TEST_P(PersistentTest, HasTheBitsOfLaunches) {
  const Case c = GetParam();
  const DeviceStream stream;
  if (OnCpu() || stream.get().device().backend != Backend::kCuda) {
    GTEST_SKIP() << "a chain is NVIDIA's";
  }
  Transformer model = ModelOf(c, stream.get());
  // One split and some. On a GPU the second step is recorded, the third
  // replayed.
  const int steps = OnSimt() ? 2 : 3;
  for (const int64_t length : {int64_t{3}, int64_t{300}}) {
    if (OnSimt() && c.batch > 16 && length == 3) continue;
    const auto expected =
        Decode(model, c, length, steps, /*persistent=*/false, stream.get());
    const auto actual =
        Decode(model, c, length, steps, /*persistent=*/true, stream.get());
    for (size_t i = 0; i < expected.size(); ++i) {
      ASSERT_EQ(std::memcmp(expected[i].data(), actual[i].data(),
                            4 * expected[i].size()),
                0)
          << "step " << i << ", length " << length << ": " << expected[i][0]
          << ", " << actual[i][0];
      EXPECT_NE(expected[i][0], expected[i][1]);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Chains, PersistentTest,
    ::testing::Values(
        Case{.name = "fp8"},
        Case{.name = "fp8_batch", .batch = 5, .kv_heads = 2, .group = 3},
        Case{.name = "fp8_heads_of_128", .head_dim = 128, .group = 3},
        Case{.name = "fp8_fused", .fusion = {true, true}},
        Case{.name = "fp8_17_rows", .batch = 17, .head_dim = 128, .group = 3},
        Case{.name = "bf16_17_rows",
             .weights = DType::kBF16,
             .inputs = InputQuantization::kNone,
             .batch = 17,
             .head_dim = 128,
             .group = 3}),
    [](const auto& c) { return std::string(c.param.name); });

TEST(PersistentChainTest, SaysWhatItDoesNotTake) {
  const DeviceStream stream;
  if (OnCpu() || stream.get().device().backend != Backend::kCuda) {
    const auto chain = PersistentChain::Make(
        stream.get(), [](const Stream&) { return absl::OkStatus(); });
    EXPECT_TRUE(absl::IsUnimplemented(chain.status()));
    EXPECT_THAT(chain.status().message(), HasSubstr("compute capability 9.0"));
    return;
  }
  const auto none = PersistentChain::Make(
      stream.get(), [](const Stream&) { return absl::OkStatus(); });
  EXPECT_TRUE(absl::IsUnimplemented(none.status()));
  EXPECT_THAT(none.status().message(), HasSubstr("no SkinnyGemm"));
  const auto failed = PersistentChain::Make(stream.get(), [](const Stream&) {
    return absl::InvalidArgumentError("as the body says");
  });
  EXPECT_EQ(failed.status().message(), "as the body says");

  Transformer dynamic =
      ModelOf({.inputs = InputQuantization::kPerRow}, stream.get());
  absl::StatusOr<DecodeLoop> loop = DecodeLoop::Create(
      dynamic, {.batch = 1, .persistent = true}, stream.get());
  ASSERT_TRUE(loop.ok()) << loop.status();
  ASSERT_TRUE(loop->Assume(0, 3).ok());
  ASSERT_TRUE(loop->Start().ok());
  const absl::Status status = loop->Step();
  EXPECT_TRUE(absl::IsUnimplemented(status)) << status;
  EXPECT_THAT(status.message(), HasSubstr("launch 0, RmsNorm: "));
}

}  // namespace
}  // namespace lamina
