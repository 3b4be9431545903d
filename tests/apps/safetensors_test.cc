#include "lamina/model/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lamina/model/checkpoint_contents.h"
#include "tests/apps/hostile_file.h"
#include "tests/support/model_files.h"
#include "tests/support/random.h"

namespace lamina {
namespace {

using model_internal::CheckpointContents;
using model_internal::HfFiles;
using model_internal::ParseSafetensorsIndex;
using model_internal::ReadHfCheckpoint;
using model_internal::SafetensorsFile;
using ::testing::AllOf;
using testing::Answers;
using ::testing::ElementsAre;
using testing::ExpectClearAnswer;
using testing::FileImage;
using ::testing::HasSubstr;
using testing::InMemory;
using testing::SafetensorsEntry;
using testing::SafetensorsImage;

TEST(Safetensors, ReadsEveryType) {
  std::vector<SafetensorsEntry> entries;
  for (int i = 0; i < static_cast<int>(StorageType::kQ4_0); ++i) {
    const StorageType type = static_cast<StorageType>(i);
    const char* name = SafetensorsFile::TypeName(type);
    ASSERT_NE(name, nullptr);
    entries.push_back(
        {name,
         name,
         {3, 2},
         testing::RandomBytes(static_cast<uint64_t>(i) + 1,
                              static_cast<uint64_t>(6 * BlockBytes(type)))});
  }
  entries.push_back({"scalar", "F32", {}, testing::RandomBytes(77, 4)});
  entries.push_back({"nothing", "F32", {0, 5}, {}});
  const auto file =
      SafetensorsFile::Parse(InMemory(SafetensorsImage(entries).bytes));
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_EQ(file->tensors().size(), entries.size());
  for (const SafetensorsEntry& want : entries) {
    const auto& tensors = file->tensors();
    const auto found =
        std::find_if(tensors.begin(), tensors.end(),
                     [&](const auto& t) { return t.name == want.name; });
    ASSERT_NE(found, tensors.end());
    EXPECT_EQ(found->shape, want.shape);
    EXPECT_EQ(std::vector<uint8_t>(found->data, found->data + found->bytes),
              want.data);
  }
  EXPECT_EQ(SafetensorsFile::TypeName(StorageType::kQ4_0), nullptr);
}

TEST(Safetensors, NamesWhatIsWrong) {
  struct Case {
    const char* name;
    std::string header;
    size_t data_bytes;
    const char* message;
  };
  const auto one = [](const char* fields) {
    return std::string("{\"t\":{") + fields + "}}";
  };
  const Case cases[] = {
      {"empty_header", "", 0, "byte 8: the header does not begin with {"},
      {"array", "[]", 0, "does not begin with {"},
      {"leading_space", " {}", 0, "does not begin with {"},
      {"cut_json", "{\"t\":", 0, "byte 13: not valid JSON"},
      {"junk_behind", "{}x", 0, "not valid JSON"},
      {"utf8", "{\"\xff\":1}", 0, "not valid JSON"},
      {"key_twice",
       R"({"t":{"dtype":"I8","shape":[0],"data_offsets":[0,0]},"t":1})", 0,
       "key \"t\" occurs twice"},
      {"inner_key_twice", one(R"("dtype":"I8","dtype":"I8")"), 0,
       "key \"dtype\" occurs twice"},
      {"nested", std::string("{\"t\":").append(100000, '['), 0,
       "nested more than 8 deep"},
      {"not_object", "{\"t\":3}", 0, "tensor \"t\": not an object"},
      {"no_offsets", one(R"("dtype":"I8","shape":[1])"), 1,
       "its fields must be dtype, shape and data_offsets"},
      {"extra_field",
       one(R"("dtype":"I8","shape":[1],"data_offsets":[0,1],"x":1)"), 1,
       "its fields must be"},
      {"dtype_number", one(R"("dtype":8,"shape":[1],"data_offsets":[0,1])"), 1,
       "dtype is not a string"},
      {"dtype_unknown", one(R"("dtype":"F7","shape":[1],"data_offsets":[0,1])"),
       1, "dtype \"F7\" is not known"},
      {"shape_string", one(R"("dtype":"I8","shape":"1","data_offsets":[0,1])"),
       1, "shape is not a list"},
      {"shape_negative",
       one(R"("dtype":"I8","shape":[-1],"data_offsets":[0,1])"), 1,
       "a dimension is not an integer"},
      {"shape_fraction",
       one(R"("dtype":"I8","shape":[1.0],"data_offsets":[0,1])"), 1,
       "a dimension is not an integer"},
      {"shape_huge",
       one(R"("dtype":"I8","shape":[4294967296,4294967296],)"
           R"("data_offsets":[0,0])"),
       0, "too many elements"},
      {"shape_wraps",
       one(R"("dtype":"I64","shape":[2305843009213693952],)"
           R"("data_offsets":[0,0])"),
       0, "a dimension is not an integer"},
      {"dims_many",
       one(R"("dtype":"I8","shape":[1,1,1,1,1,1,1,1,1],"data_offsets":[0,1])"),
       1, "9 dimensions, at most 8"},
      {"offsets_three",
       one(R"("dtype":"I8","shape":[1],"data_offsets":[0,1,2])"), 1,
       "data_offsets is not a list of two"},
      {"offsets_down", one(R"("dtype":"I8","shape":[1],"data_offsets":[1,0])"),
       1, "data_offsets are not two integers in ascending order"},
      {"offsets_negative",
       one(R"("dtype":"I8","shape":[1],"data_offsets":[-1,0])"), 1,
       "data_offsets are not two integers"},
      {"offsets_wide", one(R"("dtype":"I8","shape":[1],"data_offsets":[0,2])"),
       2, "data_offsets span 2 bytes, I8 [1] takes 1"},
      {"offsets_beyond",
       one(R"("dtype":"F32","shape":[4],"data_offsets":[0,16])"), 12,
       "ends at 16, beyond the 12 bytes"},
      {"gap", one(R"("dtype":"I8","shape":[1],"data_offsets":[1,2])"), 2,
       "begins at 1, leaving a gap; 0 expected"},
      {"overlap",
       R"({"a":{"dtype":"I8","shape":[4],"data_offsets":[0,4]},)"
       R"("b":{"dtype":"I8","shape":[4],"data_offsets":[2,6]}})",
       6, "tensor \"b\": begins at 2, overlapping the one before"},
      {"rest", one(R"("dtype":"I8","shape":[1],"data_offsets":[0,1])"), 3,
       "2 bytes after the last tensor's data"},
      {"no_tensors", "{}", 8, "8 bytes after the last tensor's data"},
      {"empty_name", R"({"":{"dtype":"I8","shape":[1],"data_offsets":[0,1]}})",
       1, "a name must have characters"},
      {"control_name",
       R"({"a\nb":{"dtype":"I8","shape":[1],"data_offsets":[0,1]}})", 1,
       "tensor \"a\\nb\": a name must have characters, none of them control"},
      {"metadata", R"({"__metadata__":{"format":1}})", 0,
       "__metadata__ is not an object of strings"},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    const FileImage image =
        SafetensorsImage(c.header, std::vector<uint8_t>(c.data_bytes));
    const auto file = SafetensorsFile::Parse(InMemory(image.bytes));
    ASSERT_FALSE(file.ok());
    EXPECT_TRUE(absl::IsInvalidArgument(file.status())) << file.status();
    const std::string message(file.status().message());
    EXPECT_THAT(message,
                AllOf(HasSubstr(c.message), HasSubstr("some/file: byte ")));
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
    EXPECT_LT(message.size(), 500u);
  }
}

TEST(Safetensors, ChecksTheHeadersLength) {
  const auto parse = [](std::vector<uint8_t> bytes) {
    return std::string(
        SafetensorsFile::Parse(InMemory(std::move(bytes))).status().message());
  };
  EXPECT_THAT(parse({1, 2, 3}), HasSubstr("of 3 bytes has no header"));
  FileImage image = SafetensorsImage("{}", {});
  image.bytes[0] = 3;
  EXPECT_THAT(parse(image.bytes),
              HasSubstr("header of 3 bytes, the file has 2 left"));
  image.bytes[3] = 6;  // 6 * 2^24 bytes and more
  EXPECT_THAT(parse(image.bytes), HasSubstr("at most 100000000 allowed"));
  image.bytes.assign(8, 0xff);
  EXPECT_THAT(parse(image.bytes),
              HasSubstr("header of 18446744073709551615 bytes"));
}

TEST(SafetensorsIndex, KeepsShardsInTheDirectory) {
  const auto good = ParseSafetensorsIndex(
      "i", R"({"metadata":{},"weight_map":{"a":"x.safetensors"}})");
  ASSERT_TRUE(good.ok()) << good.status();
  EXPECT_EQ(good->at("a"), "x.safetensors");
  for (const char* text :
       {"[]", "{}", R"({"weight_map":[]})", R"({"weight_map":{}})",
        R"({"weight_map":{"a":1}})", R"({"weight_map":{"a":"x.bin"}})",
        R"({"weight_map":{"a":"../x.safetensors"}})",
        R"({"weight_map":{"a":"/etc/x.safetensors"}})",
        R"({"weight_map":{"a":"x\u0000.safetensors"}})",
        R"({"weight_map":{"a":"x.safetensors","a":"x.safetensors"}})"}) {
    EXPECT_TRUE(
        absl::IsInvalidArgument(ParseSafetensorsIndex("i", text).status()))
        << text;
  }
}

// ---- Checkpoints.

HfFiles Files(const std::vector<SafetensorsEntry>& entries,
              const std::string& config = testing::TinyConfigJson()) {
  HfFiles files;
  files.config = InMemory(config, testing::kFileName);
  files.weights.emplace("model.safetensors",
                        InMemory(SafetensorsImage(entries).bytes));
  return files;
}

TEST(HfCheckpoint, ReadsTheTinyModel) {
  HfFiles files = Files(testing::TinySafetensors());
  files.generation_config =
      InMemory(std::string(R"({"eos_token_id": [1, 5]})"), "generation");
  files.tokenizer = InMemory(std::string("{}"), "tokenizer");
  const auto contents = ReadHfCheckpoint(files);
  ASSERT_TRUE(contents.ok()) << contents.status();
  const ModelConfig& config = contents->config;
  EXPECT_EQ(config.head_dim, 16);
  EXPECT_EQ(config.rope_pairing, RopePairing::kHalfSplit);
  EXPECT_EQ(config.epsilon, 1e-5f);
  EXPECT_THAT(config.eos_ids, ElementsAre(1, 2, 5));
  EXPECT_EQ(contents->tensors.size(), 20u);
  EXPECT_EQ(contents->hf_tokenizer->tokenizer_json, "{}");
  EXPECT_EQ(contents->hf_tokenizer->tokenizer_config_json, "");
  EXPECT_EQ(contents->quantization.method, "");
}

struct ConfigCase {
  const char* extra;
  const char* message;
};

TEST(HfCheckpoint, ReadsVariantsOfConfig) {
  const auto read = [](const std::string& extra) {
    auto contents = ReadHfCheckpoint(
        Files(testing::TinySafetensors(), testing::TinyConfigJson(extra)));
    EXPECT_TRUE(contents.ok()) << contents.status();
    return contents.ok() ? contents->config : ModelConfig();
  };
  EXPECT_EQ(read(R"(, "rope_theta": 500000)").rope.theta, 500000.0);
  const ModelConfig llama3 = read(
      R"(, "rope_theta": 500000.0, "rope_scaling": {"rope_type": "llama3",
      "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
      "original_max_position_embeddings": 8192})");
  EXPECT_EQ(llama3.rope.factor, 32.0);
  EXPECT_EQ(llama3.rope.original_max_position, 8192.0);
  EXPECT_EQ(read(R"(, "rope_parameters": {"rope_type": "default",
                 "rope_theta": 7.0})")
                .rope.theta,
            7.0);
  EXPECT_EQ(read(R"(, "rope_scaling": null, "head_dim": null)").head_dim, 16);
  EXPECT_EQ(read(R"(, "sliding_window": 64)").max_positions, 64);
  EXPECT_EQ(read(R"(, "pad_token_id": -1)").pad_id, std::nullopt);
  EXPECT_EQ(read(R"(, "pad_token_id": 3)").pad_id, 3);
}

TEST(HfCheckpoint, NamesWhatIsWrongInConfig) {
  const ConfigCase cases[] = {
      {", \"model_type\": \"llama\"", "key \"model_type\" occurs twice"},
      {", \"rope_theta\": \"big\"", "rope_theta: given \"\\\"big\\\"\""},
      {", \"rope_theta\": -1", "config: rope.theta: given -1"},
      {", \"rope_theta\": 1e999", "not valid JSON"},
      {", \"rope_theta\": NaN", "not valid JSON"},
      {", \"head_dim\": 32", "shape [32, 32], the configuration wants"},
      {", \"head_dim\": 0", "config: head_dim: given 0"},
      {", \"head_dim\": 16.0", "head_dim: given \"16.0\", want an integer"},
      {", \"head_dim\": 18446744073709551615", "head_dim: given"},
      {", \"rope_scaling\": {\"type\": \"linear\", \"factor\": 2}",
       "rope_scaling.rope_type: given \"linear\", supported: default, llama3"},
      {", \"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 8}",
       "rope_scaling.low_freq_factor: given nothing"},
      {", \"rope_scaling\": [1]", "rope_scaling: given array"},
      {", \"attention_bias\": true", "attention_bias: given true"},
      {", \"mlp_bias\": true", "mlp_bias: given true"},
      {", \"partial_rotary_factor\": 0.5", "partial_rotary_factor: given 0.5"},
      {", \"sliding_window\": 0", "config: max_positions: given 0"},
      {", \"pad_token_id\": 40", "config: pad_id: given 40"},
      {", \"pad_token_id\": [1.5]", "pad_token_id: given array"},
      {", \"quantization_config\": {\"quant_method\": \"gptq\"}",
       "quant_method: given \"gptq\", supported: compressed-tensors, fp8"},
      {", \"quantization_config\": 3", "quantization_config: given \"3\""},
      {", \"quantization_config\": {\"quant_method\": \"compressed-tensors\"}",
       "config_groups: given nothing"},
      {", \"quantization_config\": {\"quant_method\": \"fp8\", "
       "\"weight_block_size\": [64, 64]}",
       "tiles of 64 x 64, supported: 128 x 128"},
      {", \"quantization_config\": {\"quant_method\": \"fp8\", "
       "\"activation_scheme\": \"odd\"}",
       "activation_scheme: given \"\\\"odd\\\"\", want static or dynamic"},
      {", \"quantization_config\": {\"quant_method\": \"compressed-tensors\", "
       "\"format\": \"pack-quantized\"}",
       "format: given \"pack-quantized\""},
      {", \"quantization_config\": {\"quant_method\": \"compressed-tensors\", "
       "\"config_groups\": {\"g\": {\"weights\": {\"num_bits\": 4}}}}",
       "weights of 4 bits"},
  };
  for (const ConfigCase& c : cases) {
    SCOPED_TRACE(c.extra);
    Answers answers;
    const auto answer = ReadHfCheckpoint(
        Files(testing::TinySafetensors(), testing::TinyConfigJson(c.extra)));
    ASSERT_FALSE(answer.ok());
    EXPECT_THAT(std::string(answer.status().message()), HasSubstr(c.message));
    ExpectClearAnswer(answer, c.extra, answers);
  }
}

// The text of config.json with one piece replaced.
std::string Config(const std::string& from, const std::string& to) {
  std::string text = testing::TinyConfigJson();
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

TEST(HfCheckpoint, NamesWhatIsWrongInFields) {
  struct Case {
    const char* from;
    const char* to;
    const char* message;
  };
  const Case cases[] = {
      {"\"llama\"", "\"qwen3\"", "model_type: given \"qwen3\""},
      {"\"model_type\"", "\"model_tipe\"", "model_type: given nothing"},
      {"\"hidden_size\": 32", "\"hidden_size\": 33", "a multiple of 2 (heads)"},
      {"\"hidden_size\": 32", "\"hidden_size\": 0", "hidden_dim: given 0"},
      {"\"hidden_size\": 32,", "", "hidden_size: given nothing"},
      {"_layers\": 2", "_layers\": 1",
       "tensor \"model.layers.1.input_layernorm.weight\": a Llama model of 1"},
      {"_layers\": 2", "_layers\": 3", "model.layers.2.input_layernorm.weight"},
      {"_layers\": 2", "_layers\": 4294967296", "num_layers: given 4294967296"},
      {"_layers\": 2", "_layers\": -1", "num_layers: given -1"},
      {"_heads\": 2", "_heads\": 0", "num_heads: given 0"},
      {"_heads\": 1", "_heads\": 3", "num_kv_heads: given 3"},
      {"1e-05", "-1e-05", "epsilon: given -1e-05"},
      {"1e-05", "0", "epsilon: given 0"},
      {"1e-05", "1e300", "epsilon: given inf"},
      {"\"silu\"", "\"mish\"", "hidden_act: given \"mish\""},
      {"\"tie_word_embeddings\": true", "\"tie_word_embeddings\": false",
       "tensor \"lm_head.weight\": missing"},
      {"\"tie_word_embeddings\": true", "\"tie_word_embeddings\": 1",
       "want true or false"},
      {"[1, 2]", "[1, 40]", "eos_ids: given 40"},
      {"[1, 2]", "[1, -2]", "eos_token_id: given array"},
      {"[1, 2]", "\"x\"", "eos_token_id: given"},
      {"{", "[", "not valid JSON"},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.to);
    Answers answers;
    const auto answer = ReadHfCheckpoint(
        Files(testing::TinySafetensors(), Config(c.from, c.to)));
    ASSERT_FALSE(answer.ok());
    EXPECT_THAT(std::string(answer.status().message()), HasSubstr(c.message));
    ExpectClearAnswer(answer, c.to, answers);
  }
}

TEST(HfCheckpoint, NamesWhatIsWrongInTensors) {
  using Change = std::function<void(std::vector<SafetensorsEntry>&)>;
  struct Case {
    Change change;
    const char* message;
  };
  const Case cases[] = {
      {[](auto& e) { e.pop_back(); },
       "tensor \"model.norm.weight\": missing (the configuration has 2"},
      {[](auto& e) {
         e[0].shape = {32, 40};
       },
       "tensor \"model.embed_tokens.weight\": shape [32, 40], the "
       "configuration wants [40, 32]"},
      {[](auto& e) { e[0].shape = {1280}; }, "shape [1280]"},
      {[](auto& e) { e[0].dtype = "I16"; }, "type i16 is not a weight type"},
      {[](auto& e) {
         e.push_back({"model.layers.0.self_attn.q_proj.bias",
                      "BF16",
                      {32},
                      std::vector<uint8_t>(64)});
       },
       "tensor \"model.layers.0.self_attn.q_proj.bias\": a Llama model of 2"},
      {[](auto& e) {
         e.push_back({"model.layers.0.self_attn.q_proj.weight_scale",
                      "F32",
                      {1},
                      std::vector<uint8_t>(4)});
       },
       "there is no quantised \"model.layers.0.self_attn.q_proj.weight\""},
      {[](auto& e) {
         e[3].dtype = "F8_E4M3";
         e[3].data.resize(e[3].data.size() / 2);
       },
       "f8e4m3fn without a quantization_config in config.json"},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.message);
    auto entries = testing::TinySafetensors();
    c.change(entries);
    Answers answers;
    const auto answer = ReadHfCheckpoint(Files(entries));
    ASSERT_FALSE(answer.ok());
    EXPECT_THAT(std::string(answer.status().message()), HasSubstr(c.message));
    ExpectClearAnswer(answer, c.message, answers);
  }
}

TEST(HfCheckpoint, IgnoresWhatDoesNotMatter) {
  auto entries = testing::TinySafetensors();
  entries.push_back({"model.layers.0.self_attn.rotary_emb.inv_freq",
                     "F32",
                     {8},
                     std::vector<uint8_t>(32)});
  entries.push_back({"lm_head.weight",
                     "BF16",
                     {40, 32},
                     std::vector<uint8_t>(2560)});  // tied
  entries.push_back({"model.layers.0.self_attn.k_scale",
                     "F32",
                     {1},
                     std::vector<uint8_t>(4)});
  EXPECT_TRUE(ReadHfCheckpoint(Files(entries)).ok());
}

// ---- Quantised checkpoints.

std::vector<uint8_t> Floats(const std::vector<float>& values) {
  std::vector<uint8_t> bytes(values.size() * 4);
  __builtin_memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}
std::vector<uint8_t> Bf16s(const std::vector<float>& values) {
  std::vector<uint8_t> bytes;
  for (const float value : values) {
    const uint16_t bits = FromFloat<BF16>(value).bits;
    bytes.push_back(static_cast<uint8_t>(bits));
    bytes.push_back(static_cast<uint8_t>(bits >> 8));
  }
  return bytes;
}

// The tiny model with every projection as FP8 codes; `scale` adds its scales.
std::vector<SafetensorsEntry> Fp8Entries(
    const std::function<void(const SafetensorsEntry& weight,
                             const std::string& module,
                             std::vector<SafetensorsEntry>& entries)>& scale) {
  std::vector<SafetensorsEntry> entries;
  for (SafetensorsEntry entry : testing::TinySafetensors()) {
    const size_t at = entry.name.find("_proj.weight");
    if (at != std::string::npos) {
      entry.dtype = "F8_E4M3";
      entry.data = testing::RandomBytes(at, entry.data.size() / 2);
      scale(entry, entry.name.substr(0, at + 5), entries);
    }
    entries.push_back(std::move(entry));
  }
  return entries;
}

constexpr const char* kChannelDynamic = R"(, "quantization_config": {
  "quant_method": "compressed-tensors", "format": "float-quantized",
  "ignore": ["lm_head"], "config_groups": {"group_0": {
    "targets": ["Linear"],
    "weights": {"num_bits": 8, "type": "float", "strategy": "channel",
                "symmetric": true, "dynamic": false},
    "input_activations": {"num_bits": 8, "type": "float",
                "strategy": "token", "symmetric": true, "dynamic": true}}}})";
constexpr const char* kTensorStatic = R"(, "quantization_config": {
  "quant_method": "fp8", "activation_scheme": "static",
  "ignored_layers": ["lm_head"]})";
constexpr const char* kTiles = R"(, "quantization_config": {
  "quant_method": "fp8", "activation_scheme": "dynamic",
  "weight_block_size": [128, 128]})";

void ExpectScaled(const CheckpointTensor& tensor,
                  const std::function<float(int64_t, int64_t)>& scale) {
  std::vector<float> values(static_cast<size_t>(tensor.rows() * tensor.cols()));
  ASSERT_TRUE(ReadRows(tensor, 0,
                       Matrix(values.data(), tensor.rows(), tensor.cols()),
                       Stream::Cpu())
                  .ok());
  for (int64_t r = 0; r < tensor.rows(); ++r) {
    for (int64_t c = 0; c < tensor.cols(); ++c) {
      const size_t i = static_cast<size_t>(r * tensor.cols() + c);
      const float want = ToFloat(F8E4M3Fn{tensor.data[i]}) * scale(r, c);
      if (want != want) continue;
      ASSERT_EQ(values[i], want) << r << ", " << c;
    }
  }
}

TEST(Fp8Checkpoint, ReadsChannelScales) {
  for (const bool bf16 : {false, true}) {
    const auto entries =
        Fp8Entries([&](const auto& weight, const auto& module, auto& out) {
          std::vector<float> scales;
          for (int64_t r = 0; r < weight.shape[0]; ++r) {
            scales.push_back(0.5f + static_cast<float>(r));
          }
          out.push_back({module + ".weight_scale",
                         bf16 ? "BF16" : "F32",
                         {weight.shape[0], 1},
                         bf16 ? Bf16s(scales) : Floats(scales)});
        });
    const auto contents = ReadHfCheckpoint(
        Files(entries, testing::TinyConfigJson(kChannelDynamic)));
    ASSERT_TRUE(contents.ok()) << contents.status();
    EXPECT_EQ(contents->quantization.method, "compressed-tensors");
    EXPECT_EQ(contents->quantization.activations, ActivationScheme::kDynamic);
    EXPECT_EQ(contents->tensors.size(), 20u);  // scales are not listed
    const CheckpointTensor& down =
        contents->tensors.at("model.layers.1.mlp.down_proj.weight");
    EXPECT_EQ(down.type, StorageType::kF8E4M3);
    EXPECT_EQ(down.scales.granularity, ScaleGranularity::kPerRow);
    EXPECT_FALSE(down.input_scale.has_value());
    ExpectScaled(
        down, [](int64_t r, int64_t) { return 0.5f + static_cast<float>(r); });
  }
}

TEST(Fp8Checkpoint, ReadsTensorScalesAndStaticInputs) {
  for (const bool scalar : {false, true}) {
    const auto entries = Fp8Entries([&](const auto&, const auto& module,
                                        auto& out) {
      const std::vector<int64_t> shape =
          scalar ? std::vector<int64_t>{} : std::vector<int64_t>{1};
      out.push_back({module + ".weight_scale", "F32", shape, Floats({0.25f})});
      out.push_back({module + ".input_scale", "BF16", shape, Bf16s({3.0f})});
    });
    const auto contents = ReadHfCheckpoint(
        Files(entries, testing::TinyConfigJson(kTensorStatic)));
    ASSERT_TRUE(contents.ok()) << contents.status();
    EXPECT_EQ(contents->quantization.activations, ActivationScheme::kStatic);
    const CheckpointTensor& q =
        contents->tensors.at("model.layers.0.self_attn.q_proj.weight");
    EXPECT_EQ(q.scales.granularity, ScaleGranularity::kPerTensor);
    EXPECT_EQ(q.input_scale, 3.0f);
    ExpectScaled(q, [](int64_t, int64_t) { return 0.25f; });
  }
}

TEST(Fp8Checkpoint, ReadsTiles) {
  const auto entries = Fp8Entries([&](const auto& weight, const auto& module,
                                      auto& out) {
    const int64_t rows = (weight.shape[0] + 127) / 128;
    const int64_t cols = (weight.shape[1] + 127) / 128;
    std::vector<float> scales;
    for (int64_t i = 0; i < rows * cols; ++i) {
      scales.push_back(static_cast<float>(i + 1));
    }
    out.push_back(
        {module + ".weight_scale_inv", "F32", {rows, cols}, Floats(scales)});
  });
  const auto contents =
      ReadHfCheckpoint(Files(entries, testing::TinyConfigJson(kTiles)));
  ASSERT_TRUE(contents.ok()) << contents.status();
  const CheckpointTensor& down =
      contents->tensors.at("model.layers.0.mlp.down_proj.weight");
  EXPECT_EQ(down.scales.granularity, ScaleGranularity::kPerTile);
  ExpectScaled(down, [](int64_t r, int64_t c) {
    return static_cast<float>(r / 128 * 2 + c / 128 + 1);
  });
}

TEST(Fp8Checkpoint, NamesWhatIsWrongInScales) {
  struct Case {
    const char* config;
    std::function<void(const SafetensorsEntry&, const std::string&,
                       std::vector<SafetensorsEntry>&)>
        scale;
    const char* message;
  };
  const auto weight_scale = [](const char* dtype, std::vector<int64_t> shape,
                               std::vector<uint8_t> data) {
    return [=](const SafetensorsEntry&, const std::string& module,
               std::vector<SafetensorsEntry>& out) {
      out.push_back({module + ".weight_scale", dtype, shape, data});
    };
  };
  const Case cases[] = {
      {kChannelDynamic, [](const auto&, const auto&, auto&) {},
       "f8e4m3fn without a weight_scale"},
      {kChannelDynamic, weight_scale("F32", {2}, Floats({1, 1})),
       "shape [2], want one element, or ["},
      {kChannelDynamic, weight_scale("F32", {0}, {}), "shape [0]"},
      {kChannelDynamic, weight_scale("I32", {1}, Floats({1})),
       "type i32, want f32, bf16 or f16"},
      {kChannelDynamic, weight_scale("F32", {1}, Floats({NAN})),
       "scale 0 is nan, want a finite number"},
      {kChannelDynamic, weight_scale("F32", {1}, Floats({INFINITY})),
       "scale 0 is inf"},
      {kChannelDynamic, weight_scale("F32", {1}, Floats({-1})),
       "scale 0 is -1"},
      {kTensorStatic, weight_scale("F32", {1}, Floats({1})),
       "f8e4m3fn without an input_scale"},
      {kTensorStatic,
       [&](const auto&, const auto& module, auto& out) {
         out.push_back({module + ".weight_scale", "F32", {1}, Floats({1})});
         out.push_back({module + ".input_scale", "F32", {1}, Floats({0})});
       },
       "input_scale\": zero, want above 0"},
      {kTensorStatic,
       [&](const auto&, const auto& module, auto& out) {
         out.push_back({module + ".weight_scale", "F32", {1}, Floats({1})});
         out.push_back({module + ".input_scale", "F32", {2}, Floats({1, 1})});
       },
       "input_scale\": want one element"},
      {kTiles, weight_scale("F32", {1}, Floats({1})), "one a tile"},
      {kTiles,
       [&](const auto&, const auto& module, auto& out) {
         out.push_back({module + ".weight_scale", "F32", {1}, Floats({1})});
         out.push_back({module + ".weight_scale_inv", "F32", {1}, Floats({1})});
       },
       "occurs twice"},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.message);
    Answers answers;
    const auto answer = ReadHfCheckpoint(
        Files(Fp8Entries(c.scale), testing::TinyConfigJson(c.config)));
    ASSERT_FALSE(answer.ok());
    EXPECT_THAT(std::string(answer.status().message()), HasSubstr(c.message));
    ExpectClearAnswer(answer, c.message, answers);
  }
}

// ---- Shards.

HfFiles Shards(const std::function<void(std::string&)>& change_index) {
  const auto entries = testing::TinySafetensors();
  const std::vector<SafetensorsEntry> first(entries.begin(),
                                            entries.begin() + 7);
  const std::vector<SafetensorsEntry> second(entries.begin() + 7,
                                             entries.end());
  HfFiles files = Files(first);
  files.weights.clear();
  files.weights.emplace("a.safetensors",
                        InMemory(SafetensorsImage(first).bytes));
  files.weights.emplace("b.safetensors",
                        InMemory(SafetensorsImage(second).bytes));
  std::string index = "{\"weight_map\":{";
  for (size_t i = 0; i < entries.size(); ++i) {
    absl::StrAppend(&index, i > 0 ? ",\"" : "\"", entries[i].name, "\":\"",
                    i < 7 ? "a" : "b", ".safetensors\"");
  }
  index += "}}";
  change_index(index);
  files.index = InMemory(index, testing::kFileName);
  return files;
}

TEST(ShardedCheckpoint, ReadsAndChecksItsIndex) {
  const auto good = ReadHfCheckpoint(Shards([](std::string&) {}));
  ASSERT_TRUE(good.ok()) << good.status();
  EXPECT_EQ(good->tensors.size(), 20u);
  EXPECT_EQ(good->files.size(), 2u);

  const auto message = [](const std::string& from, const std::string& to) {
    return std::string(ReadHfCheckpoint(Shards([&](std::string& index) {
                         index.replace(index.find(from), from.size(), to);
                       }))
                           .status()
                           .message());
  };
  EXPECT_THAT(message("embed_tokens.weight\":\"a", "embed_tokens.weight\":\"b"),
              HasSubstr("tensor \"model.embed_tokens.weight\" is not in its "
                        "shard \"b.safetensors\""));
  EXPECT_THAT(message("embed_tokens.weight\":\"a", "embed_tokens.weight\":\"c"),
              HasSubstr("shard \"c.safetensors\""));
  EXPECT_THAT(message("model.norm", "model.nurm"),
              HasSubstr("tensor \"model.nurm.weight\" is not in its shard"));

  HfFiles twice = Shards([](std::string&) {});
  twice.weights["c.safetensors"] = twice.weights["b.safetensors"];
  EXPECT_THAT(std::string(ReadHfCheckpoint(twice).status().message()),
              HasSubstr("occurs twice"));
}

// ---- Spoiled files.

absl::StatusOr<CheckpointContents> ReadSpoiled(std::vector<uint8_t> bytes) {
  HfFiles files;
  files.config = InMemory(testing::TinyConfigJson(), testing::kFileName);
  files.weights.emplace("model.safetensors", InMemory(std::move(bytes)));
  return ReadHfCheckpoint(files);
}

TEST(HfCheckpoint, RefusesEveryTruncation) {
  const FileImage image = SafetensorsImage(testing::TinySafetensors());
  Answers answers;
  const uint64_t size = image.bytes.size();
  for (uint64_t keep = 0; keep < size;
       keep += keep < image.header_bytes + 64 || keep + 64 > size ? 1 : 997) {
    std::vector<uint8_t> bytes(
        image.bytes.begin(), image.bytes.begin() + static_cast<int64_t>(keep));
    ExpectClearAnswer(ReadSpoiled(std::move(bytes)),
                      "cut at " + std::to_string(keep), answers);
  }
  EXPECT_EQ(answers.ok, 0);
}

TEST(HfCheckpoint, SurvivesBitFlipsInTheHeader) {
  const FileImage image = SafetensorsImage(testing::TinySafetensors());
  Answers answers;
  for (uint64_t byte = 0; byte < image.header_bytes; ++byte) {
    // Every bit of the length, one of eight elsewhere (each in turn).
    for (int bit = 0; bit < 8; ++bit) {
      if (byte >= 8 && static_cast<int>(byte % 8) != bit) continue;
      std::vector<uint8_t> bytes = image.bytes;
      bytes[byte] ^= static_cast<uint8_t>(1 << bit);
      ExpectClearAnswer(
          ReadSpoiled(std::move(bytes)),
          "byte " + std::to_string(byte) + " bit " + std::to_string(bit),
          answers);
    }
  }
  EXPECT_GT(answers.refused, 1000);
}

TEST(HfCheckpoint, SurvivesRandomDamage) {
  const FileImage image = SafetensorsImage(testing::TinySafetensors());
  const std::string config = testing::TinyConfigJson(kChannelDynamic);
  testing::Random random(12);
  Answers answers;
  for (int round = 0; round < 1500; ++round) {
    std::vector<uint8_t> bytes = image.bytes;
    std::vector<uint8_t> text(config.begin(), config.end());
    std::vector<uint8_t>& damaged = round % 2 == 0 ? bytes : text;
    const int64_t end =
        static_cast<int64_t>(round % 2 == 0 ? image.header_bytes : text.size());
    for (int64_t n = random.Integer(1, 4); n > 0; --n) {
      // Characters that mean something in JSON.
      constexpr std::string_view kBytes = "{}[]\",:0123456789-e.\\ntf \xff\x80";
      damaged[static_cast<size_t>(random.Integer(0, end - 1))] =
          static_cast<uint8_t>(kBytes[static_cast<size_t>(
              random.Integer(0, static_cast<int64_t>(kBytes.size()) - 1))]);
    }
    HfFiles files;
    files.config = InMemory(std::move(text));
    files.weights.emplace("model.safetensors", InMemory(std::move(bytes)));
    ExpectClearAnswer(ReadHfCheckpoint(files), "round " + std::to_string(round),
                      answers);
  }
  EXPECT_GT(answers.refused, 300);
}

// A number in the header set to what breaks arithmetic.
TEST(HfCheckpoint, SurvivesNastyNumbers) {
  const auto entries = testing::TinySafetensors();
  const std::string header = testing::SafetensorsHeader(entries);
  std::vector<uint8_t> data;
  for (const auto& entry : entries) {
    data.insert(data.end(), entry.data.begin(), entry.data.end());
  }
  Answers answers;
  for (size_t at = 0; at < header.size(); ++at) {
    size_t end = at;
    while (end < header.size() && header[end] >= '0' && header[end] <= '9') {
      ++end;
    }
    // Numbers, not the digits in names.
    if (end == at || (header[at - 1] != '[' && header[at - 1] != ',')) continue;
    for (const char* value :
         {"0", "1", "-1", "2147483648", "4294967296", "9223372036854775807",
          "9223372036854775808", "18446744073709551615", "18446744073709551616",
          "1e3", "576460752303423488"}) {
      std::string spoiled = header;
      spoiled.replace(at, end - at, value);
      ExpectClearAnswer(ReadSpoiled(SafetensorsImage(spoiled, data).bytes),
                        "at " + std::to_string(at) + " " + value, answers);
    }
    at = end;
  }
  EXPECT_GT(answers.refused, 500);
}

}  // namespace
}  // namespace lamina
