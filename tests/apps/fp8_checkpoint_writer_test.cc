#include "lamina/model/fp8_checkpoint_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "lamina/core/float16.h"
#include "lamina/quant/fp8.h"
#include "tests/apps/temporary_directory.h"
#include "tests/support/random.h"

namespace lamina {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::TemporaryDirectory;

ModelConfig TinyConfig() {
  ModelConfig config;
  config.architecture = "llama";
  config.hidden_dim = 24;
  config.num_layers = 2;
  config.num_heads = 3;
  config.num_kv_heads = 1;
  config.head_dim = 8;
  config.ffn_dim = 40;
  config.vocab_size = 33;
  config.max_positions = 64;
  config.epsilon = 1e-5f;
  config.tied_embeddings = true;
  config.rope = {.theta = 50000.0, .rotary_dim = 8};
  config.bos_id = 1;
  config.eos_ids = {2, 0};
  return config;
}

using Values = std::map<std::string, std::vector<float>>;

Values RandomValues(const ModelConfig& config) {
  testing::Random random(3);
  Values values;
  for (const ExpectedTensor& tensor : ExpectedTensors(config)) {
    int64_t count = 1;
    for (const int64_t dim : tensor.shape) count *= dim;
    values[tensor.name] = testing::NormalVector<float>(random, count);
  }
  // A row of zeros, which gets the smallest scale.
  auto& k = values["model.layers.0.self_attn.k_proj.weight"];
  std::fill(k.begin(), k.begin() + config.hidden_dim, 0.0f);
  return values;
}

absl::Status AddAll(Fp8CheckpointWriter& writer, const ModelConfig& config,
                    const Values& values, std::optional<float> input_scale) {
  for (const ExpectedTensor& tensor : ExpectedTensors(config)) {
    const std::vector<float>& v = values.at(tensor.name);
    const int64_t cols = tensor.shape.back();
    const int64_t rows = static_cast<int64_t>(v.size()) / cols;
    const absl::Status status = writer.Add(
        tensor.name, Matrix(v.data(), rows, cols),
        tensor.is_linear ? input_scale : std::nullopt, Stream::Cpu());
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

TEST(Fp8CheckpointWriter, WritesWhatCheckpointReads) {
  for (const bool is_static : {false, true}) {
    for (const bool tied : {false, true}) {
      const TemporaryDirectory directory;
      ModelConfig config = TinyConfig();
      config.tied_embeddings = tied;
      config.rope.factor = 8.0;
      const Values values = RandomValues(config);
      Fp8CheckpointOptions options;
      options.activations =
          is_static ? ActivationScheme::kStatic : ActivationScheme::kDynamic;
      // The trailing slash is a user's habit.
      auto writer =
          Fp8CheckpointWriter::Create(directory / "out/", config, options);
      ASSERT_TRUE(writer.ok()) << writer.status();
      ASSERT_TRUE(writer->AddFile("tokenizer.json", "{}").ok());
      const absl::Status added =
          AddAll(*writer, config, values,
                 is_static ? std::optional<float>(0.125f) : std::nullopt);
      ASSERT_TRUE(added.ok()) << added;
      EXPECT_FALSE(std::filesystem::exists(directory / "out"));
      ASSERT_TRUE(writer->Finish().ok());
      EXPECT_FALSE(writer->Finish().ok());
      EXPECT_THAT(directory.List(), ElementsAre("out"));

      const auto read = Checkpoint::Open(directory / "out");
      ASSERT_TRUE(read.ok()) << read.status();
      const ModelConfig& got = read->config();
      EXPECT_EQ(got.hidden_dim, config.hidden_dim);
      EXPECT_EQ(got.num_layers, config.num_layers);
      EXPECT_EQ(got.num_heads, config.num_heads);
      EXPECT_EQ(got.num_kv_heads, config.num_kv_heads);
      EXPECT_EQ(got.head_dim, config.head_dim);
      EXPECT_EQ(got.ffn_dim, config.ffn_dim);
      EXPECT_EQ(got.vocab_size, config.vocab_size);
      EXPECT_EQ(got.max_positions, config.max_positions);
      EXPECT_EQ(got.epsilon, config.epsilon);
      EXPECT_EQ(got.rope.theta, config.rope.theta);
      EXPECT_EQ(got.rope.factor, 8.0);
      EXPECT_EQ(got.rope_pairing, RopePairing::kHalfSplit);
      EXPECT_EQ(got.tied_embeddings, tied);
      EXPECT_EQ(got.bos_id, config.bos_id);
      EXPECT_EQ(got.eos_ids, config.eos_ids);
      EXPECT_EQ(read->quantization().method, "compressed-tensors");
      EXPECT_EQ(read->quantization().activations, options.activations);
      EXPECT_EQ(read->hf_tokenizer()->tokenizer_json, "{}");

      for (const ExpectedTensor& want : ExpectedTensors(config)) {
        SCOPED_TRACE(want.name);
        const CheckpointTensor* tensor = read->Tensor(want.name).value();
        const std::vector<float>& v = values.at(want.name);
        ASSERT_TRUE(tensor->view().has_value());  // aligned
        if (!want.is_linear) {
          EXPECT_EQ(tensor->type, StorageType::kBF16);
          EXPECT_FALSE(tensor->scales.has_value());
          const BF16* got_values = tensor->view()->Row<BF16>(0);
          for (size_t i = 0; i < v.size(); ++i) {
            ASSERT_EQ(got_values[i], FromFloat<BF16>(v[i]));
          }
          continue;
        }
        EXPECT_EQ(tensor->type, StorageType::kF8E4M3);
        EXPECT_EQ(tensor->scales.granularity, ScaleGranularity::kPerRow);
        EXPECT_EQ(tensor->input_scale,
                  is_static ? std::optional<float>(0.125f) : std::nullopt);
        // The rule of quant/scale.h, one row a scale.
        const float* scales = static_cast<const float*>(tensor->scales.data);
        for (int64_t r = 0; r < tensor->rows(); ++r) {
          float amax = 0;
          for (int64_t c = 0; c < tensor->cols(); ++c) {
            amax = std::max(
                amax,
                std::fabs(v[static_cast<size_t>(r * tensor->cols() + c)]));
          }
          const float scale = DynamicScale(
              amax, 448.0f, std::numeric_limits<float>::infinity());
          ASSERT_EQ(scales[r], scale);
          const float inverse = 1.0f / scale;
          for (int64_t c = 0; c < tensor->cols(); ++c) {
            const float value = v[static_cast<size_t>(r * tensor->cols() + c)];
            ASSERT_EQ(tensor->data[r * tensor->cols() + c],
                      FromFloat<F8E4M3Fn>(value * inverse).bits);
          }
        }
      }
    }
  }
}

TEST(Fp8CheckpointWriter, TakesEveryFloatType) {
  const TemporaryDirectory directory;
  const ModelConfig config = TinyConfig();
  auto writer = Fp8CheckpointWriter::Create(directory / "out", config, {});
  ASSERT_TRUE(writer.ok());
  int i = 0;
  for (const ExpectedTensor& tensor : ExpectedTensors(config)) {
    const int64_t cols = tensor.shape.back();
    const int64_t rows = tensor.shape.size() == 2 ? tensor.shape[0] : 1;
    const size_t count = static_cast<size_t>(rows * cols);
    absl::Status status;
    if (++i % 2 == 0) {
      const std::vector<F16> ones(count, FromFloat<F16>(1.0f));
      status = writer->Add(tensor.name, Matrix(ones.data(), rows, cols), {},
                           Stream::Cpu());
    } else {
      const std::vector<BF16> ones(count, FromFloat<BF16>(1.0f));
      status = writer->Add(tensor.name, Matrix(ones.data(), rows, cols), {},
                           Stream::Cpu());
    }
    ASSERT_TRUE(status.ok()) << status;
  }
  ASSERT_TRUE(writer->Finish().ok());
  const auto read = Checkpoint::Open(directory / "out");
  ASSERT_TRUE(read.ok()) << read.status();
  for (const auto& [name, tensor] : read->tensors()) {
    float first = 0;
    CheckpointTensor row = tensor;
    std::vector<float> values(static_cast<size_t>(tensor.cols()));
    ASSERT_TRUE(
        ReadRows(row, 0, Matrix(values.data(), 1, tensor.cols()), Stream::Cpu())
            .ok());
    first = values[0];
    EXPECT_NEAR(first, 1.0f, 1e-6f) << name;
  }
}

TEST(Fp8CheckpointWriter, LeavesNothingBehind) {
  const TemporaryDirectory directory;
  {
    auto writer =
        Fp8CheckpointWriter::Create(directory / "out", TinyConfig(), {});
    ASSERT_TRUE(writer.ok());
    EXPECT_EQ(directory.List().size(), 1u);  // hidden
    EXPECT_THAT(writer->Finish().ToString(),
                HasSubstr("Finish: tensor \"model.embed_tokens.weight\" was "
                          "not added"));
  }
  EXPECT_THAT(directory.List(), IsEmpty());
}

TEST(Fp8CheckpointWriter, DoesNotOverwrite) {
  const TemporaryDirectory directory;
  directory.Write("file", std::string("x"));
  const auto code = [&](const std::string& path) {
    return Fp8CheckpointWriter::Create(path, TinyConfig(), {}).status().code();
  };
  EXPECT_EQ(code(directory / "file"), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(code(directory.path()), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(code(directory / "no/such/parent"), absl::StatusCode::kNotFound);
  EXPECT_EQ(code(""), absl::StatusCode::kInvalidArgument);
  // An empty directory is taken; one that fills meanwhile is not replaced.
  std::filesystem::create_directory(directory / "empty");
  const ModelConfig config = TinyConfig();
  auto writer = Fp8CheckpointWriter::Create(directory / "empty", config, {});
  ASSERT_TRUE(writer.ok()) << writer.status();
  ASSERT_TRUE(AddAll(*writer, config, RandomValues(config), {}).ok());
  directory.Write("empty/mine", std::string("x"));
  EXPECT_FALSE(writer->Finish().ok());
  EXPECT_TRUE(std::filesystem::exists(directory / "empty/mine"));
  std::filesystem::remove(directory / "empty/mine");
  auto again = Fp8CheckpointWriter::Create(directory / "empty", config, {});
  ASSERT_TRUE(again.ok()) << again.status();
  ASSERT_TRUE(AddAll(*again, config, RandomValues(config), {}).ok());
  EXPECT_TRUE(again->Finish().ok());
  EXPECT_TRUE(Checkpoint::Open(directory / "empty").ok());
}

TEST(Fp8CheckpointWriter, NamesWhatIsWrong) {
  const TemporaryDirectory directory;
  ModelConfig config = TinyConfig();
  config.rope_pairing = RopePairing::kAdjacent;
  EXPECT_THAT(
      Fp8CheckpointWriter::Create(directory / "a", config, {})
          .status()
          .ToString(),
      HasSubstr("config.rope_pairing: given adjacent, want half split"));
  config = TinyConfig();
  config.num_kv_heads = 2;
  EXPECT_THAT(Fp8CheckpointWriter::Create(directory / "a", config, {})
                  .status()
                  .ToString(),
              HasSubstr("num_kv_heads: given 2"));
  config = TinyConfig();
  Fp8CheckpointOptions options;
  options.activations = ActivationScheme::kStatic;
  auto writer = Fp8CheckpointWriter::Create(directory / "a", config, options);
  ASSERT_TRUE(writer.ok());
  const std::vector<float> values(40 * 40);
  const auto add = [&](const char* name, int64_t rows, int64_t cols,
                       std::optional<float> scale) {
    return writer
        ->Add(name, Matrix(values.data(), rows, cols), scale, Stream::Cpu())
        .ToString();
  };
  const char* q = "model.layers.0.self_attn.q_proj.weight";
  EXPECT_THAT(add("lm_head.weight", 33, 24, {}),
              HasSubstr("name: given \"lm_head.weight\", want a tensor of the "
                        "configuration"));
  EXPECT_THAT(add(q, 24, 23, 1.0f), HasSubstr("q_proj.weight.cols: given 23"));
  EXPECT_THAT(add(q, 24, 24, {}), HasSubstr("input_scale: given none"));
  EXPECT_THAT(add(q, 24, 24, 0.0f), HasSubstr("input_scale: given 0"));
  EXPECT_THAT(add("model.norm.weight", 1, 24, 1.0f),
              HasSubstr("input_scale: given 1, want none"));
  EXPECT_EQ(add(q, 24, 24, 1.0f), "OK");
  EXPECT_THAT(add(q, 24, 24, 1.0f), HasSubstr("want each tensor once"));
  for (const char* name :
       {"", ".", "..", "a/b", "../x", "config.json", "model.safetensors"}) {
    EXPECT_FALSE(writer->AddFile(name, "x").ok()) << name;
  }
}

// A disk that is full, played by a limit on the size of files: in a child,
// since the limit is the process's.
TEST(Fp8CheckpointWriter, FullDiskIsAnErrorAndLeavesNothing) {
  const TemporaryDirectory directory;
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit = {4096, 4096};
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0) _exit(10);
    const auto writer =
        Fp8CheckpointWriter::Create(directory / "out", TinyConfig(), {});
    if (writer.ok()) _exit(11);
    _exit(absl::IsResourceExhausted(writer.status()) ? 0 : 12);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_THAT(directory.List(), IsEmpty());
}

}  // namespace
}  // namespace lamina
