#include "lamina/model/gguf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lamina/model/checkpoint_contents.h"
#include "tests/apps/hostile_file.h"
#include "tests/support/model_files.h"
#include "tests/support/random.h"

namespace lamina {
namespace {

using model_internal::GgufFile;
using model_internal::GgufType;
using model_internal::ReadGgufCheckpoint;
using ::testing::AllOf;
using testing::Answers;
using ::testing::ElementsAre;
using testing::ExpectClearAnswer;
using testing::FileField;
using testing::FileImage;
using testing::GgufWriter;
using ::testing::HasSubstr;
using testing::InMemory;

TEST(Gguf, ReadsMetadataOfEveryType) {
  for (const uint32_t version : {2u, 3u}) {
    GgufWriter writer(version);
    writer.Raw("u8", 0, "\xff");
    writer.Raw("i8", 1, "\xff");
    writer.Raw("u16", 2, "\xfe\xff");
    writer.Raw("i16", 3, "\xfe\xff");
    writer.U32("u32", 4000000000u);
    writer.Raw("i32", 5, "\xff\xff\xff\xff");
    writer.F32("f32", 0.5f);
    writer.Bool("bool", true);
    writer.String("string", "žluť");
    writer.Raw("u64", 10, std::string("\x01\0\0\0\x01\0\0\0", 8));
    writer.Raw("i64", 11, "\xff\xff\xff\xff\xff\xff\xff\xff");
    writer.Raw("f64", 12, std::string("\0\0\0\0\0\0\xf0\x3f", 8));
    writer.Strings("strings", {"a", "", "bc"});
    writer.Int32s("ints", {1, -2});
    writer.Strings("none", {});
    const auto gguf = GgufFile::Parse(InMemory(writer.Build().bytes));
    ASSERT_TRUE(gguf.ok()) << gguf.status();
    EXPECT_EQ(gguf->version(), version);
    const auto integer = [&](const char* key) {
      return gguf->Integer(key).value().value();
    };
    EXPECT_EQ(integer("u8"), 255);
    EXPECT_EQ(integer("i8"), -1);
    EXPECT_EQ(integer("u16"), 65534);
    EXPECT_EQ(integer("i16"), -2);
    EXPECT_EQ(integer("u32"), 4000000000);
    EXPECT_EQ(integer("i32"), -1);
    EXPECT_EQ(integer("u64"), (int64_t{1} << 32) + 1);
    EXPECT_EQ(integer("i64"), -1);
    EXPECT_EQ(gguf->Real("f32").value().value(), 0.5);
    EXPECT_EQ(gguf->Real("f64").value().value(), 1.0);
    EXPECT_EQ(gguf->Bool("bool").value().value(), true);
    EXPECT_EQ(gguf->String("string").value().value(), "žluť");
    EXPECT_THAT(gguf->Strings("strings").value(), ElementsAre("a", "", "bc"));
    EXPECT_THAT(gguf->Int32s("ints").value(), ElementsAre(1, -2));
    EXPECT_TRUE(gguf->Strings("none").value().empty());
    EXPECT_FALSE(gguf->Integer("absent").value().has_value());
    EXPECT_FALSE(gguf->String("absent").value().has_value());
    EXPECT_THAT(std::string(gguf->Integer("string").status().message()),
                HasSubstr("given string, want an integer"));
    EXPECT_THAT(std::string(gguf->Bool("u8").status().message()),
                HasSubstr("given u8, want a bool"));
    EXPECT_THAT(std::string(gguf->Strings("ints").status().message()),
                HasSubstr("given an array of i32, want an array of strings"));
  }
}

TEST(Gguf, ReadsTensorsWithAnyAlignment) {
  for (const uint32_t alignment : {1u, 8u, 64u, 4096u}) {
    GgufWriter writer(3, alignment);
    writer.U32("general.alignment", alignment);
    writer.Tensor("a", {3, 2}, 0, testing::RandomBytes(1, 24));
    writer.Tensor("b", {32, 1, 2}, 8, testing::RandomBytes(2, 68));
    const auto gguf = GgufFile::Parse(InMemory(writer.Build().bytes));
    ASSERT_TRUE(gguf.ok()) << gguf.status();
    EXPECT_EQ(gguf->alignment(), alignment);
    ASSERT_EQ(gguf->tensors().size(), 2u);
    const auto& a = gguf->tensors()[0];
    EXPECT_EQ(a.name, "a");
    EXPECT_THAT(a.shape, ElementsAre(2, 3));
    EXPECT_EQ(std::vector<uint8_t>(a.data, a.data + a.bytes),
              testing::RandomBytes(1, 24));
    const auto& b = gguf->tensors()[1];
    EXPECT_THAT(b.shape, ElementsAre(2, 1, 32));
    EXPECT_EQ(std::vector<uint8_t>(b.data, b.data + b.bytes),
              testing::RandomBytes(2, 68));
  }
}

TEST(GgufCheckpoint, ReadsTheTinyModel) {
  const auto contents =
      ReadGgufCheckpoint(InMemory(testing::TinyGguf().Build().bytes));
  ASSERT_TRUE(contents.ok()) << contents.status();
  const ModelConfig& config = contents->config;
  EXPECT_EQ(config.architecture, "llama");
  EXPECT_EQ(config.name, "tiny");
  EXPECT_EQ(config.hidden_dim, 32);
  EXPECT_EQ(config.num_layers, 2);
  EXPECT_EQ(config.num_heads, 2);
  EXPECT_EQ(config.num_kv_heads, 1);
  EXPECT_EQ(config.head_dim, 16);
  EXPECT_EQ(config.ffn_dim, 256);
  EXPECT_EQ(config.vocab_size, 40);
  EXPECT_EQ(config.max_positions, 128);
  EXPECT_EQ(config.epsilon, 1e-5f);
  EXPECT_EQ(config.rope.theta, 10000.0);
  EXPECT_EQ(config.rope.factor, 1.0);
  EXPECT_EQ(config.rope_pairing, RopePairing::kAdjacent);
  EXPECT_TRUE(config.tied_embeddings);
  EXPECT_EQ(config.bos_id, 0);
  EXPECT_THAT(config.eos_ids, ElementsAre(1, 0));
  EXPECT_FALSE(config.pad_id.has_value());
  EXPECT_EQ(contents->tensors.size(), 20u);
  const CheckpointTensor& k =
      contents->tensors.at("model.layers.1.self_attn.k_proj.weight");
  EXPECT_THAT(k.shape, ElementsAre(16, 32));
  EXPECT_EQ(k.type, StorageType::kQ4_0);
  ASSERT_TRUE(contents->gguf_tokenizer.has_value());
  EXPECT_EQ(contents->gguf_tokenizer->pre, "smollm");
  EXPECT_EQ(contents->gguf_tokenizer->tokens.size(), 40u);
  EXPECT_THAT(contents->gguf_tokenizer->merges, ElementsAre("! !", "\" \""));
  EXPECT_EQ(contents->gguf_tokenizer->chat_template, "{{ messages }}\n");
}

// Llama-3 scaling comes as divisors; its parameters are recovered.
TEST(GgufCheckpoint, RecoversRopeScaling) {
  const auto with_divisors = [](const std::vector<float>& divisors) {
    GgufWriter writer = testing::TinyGguf();
    std::vector<uint8_t> bytes(divisors.size() * 4);
    __builtin_memcpy(bytes.data(), divisors.data(), bytes.size());
    writer.Tensor("rope_freqs.weight", {divisors.size()}, 0, bytes);
    return ReadGgufCheckpoint(InMemory(writer.Build().bytes));
  };
  // theta 10000, 16 dims, factor 8: wavelengths 2 pi 10000^(i/8); 2048 and 8192
  // bound the middle. i = 7: 19869 > 8192 -> 8; i = 6: 6283.2, in the middle.
  const double smooth = (8192 / 6283.185307 - 1) / 3;
  const float middle = static_cast<float>(1 / ((1 - smooth) / 8 + smooth));
  const auto scaled = with_divisors({1, 1, 1, 1, 1, 1, middle, 8});
  ASSERT_TRUE(scaled.ok()) << scaled.status();
  EXPECT_EQ(scaled->config.rope.factor, 8.0);
  EXPECT_EQ(scaled->config.rope.high_freq_factor, 4.0);
  EXPECT_EQ(scaled->config.rope.original_max_position, 8192.0);
  const auto off = with_divisors({1, 1, 1, 1, 1, 1, 1, 1});
  ASSERT_TRUE(off.ok()) << off.status();
  EXPECT_EQ(off->config.rope.factor, 1.0);
  EXPECT_TRUE(
      absl::IsUnimplemented(with_divisors({1, 1, 1, 1, 1, 1, 3, 8}).status()));
  EXPECT_TRUE(absl::IsUnimplemented(
      with_divisors({1, 1, 1, 1, 1, 1, NAN, 8}).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(with_divisors({1, 1, 8}).status()));
}

// ---- Spoiled files.

struct BadFile {
  const char* name;
  std::function<std::vector<uint8_t>()> bytes;
  const char* message;
  absl::StatusCode code = absl::StatusCode::kInvalidArgument;
};

FileField FieldNamed(const FileImage& image, const std::string& name) {
  for (const FileField& field : image.fields) {
    if (field.name == name) return field;
  }
  ADD_FAILURE() << "no field " << name;
  return {};
}

std::vector<uint8_t> Set(const std::string& field, uint64_t value) {
  const FileImage image = testing::TinyGguf().Build();
  return testing::WithField(image, FieldNamed(image, field), value);
}

std::vector<uint8_t> Added(const std::function<void(GgufWriter&)>& add) {
  GgufWriter writer = testing::TinyGguf();
  add(writer);
  return writer.Build().bytes;
}

std::string Replaced(std::vector<uint8_t> bytes, const std::string& from,
                     const std::string& to) {
  std::string text(bytes.begin(), bytes.end());
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos);
  text.replace(at, from.size(), to);
  return text;
}
std::vector<uint8_t> Renamed(const std::string& from, const std::string& to) {
  const std::string text =
      Replaced(testing::TinyGguf().Build().bytes, from, to);
  return {text.begin(), text.end()};
}

TEST(GgufCheckpoint, NamesWhatIsWrong) {
  const uint64_t max = ~uint64_t{0};
  const auto unimplemented = absl::StatusCode::kUnimplemented;
  const std::string nested_array = [] {
    // array of array of … of u8: type 9, count 1, six times.
    std::string bytes;
    for (int i = 0; i < 6; ++i)
      bytes += std::string("\x09\0\0\0\1\0\0\0\0\0\0\0", 12);
    return bytes + std::string("\0\0\0\0\1\0\0\0\0\0\0\0\x07", 13);
  }();
  const BadFile files[] = {
      {"magic", [] { return Renamed("GGUF", "GGUP"); },
       "byte 0: not a GGUF file"},
      {"version_1", [] { return Set("version", 1); },
       "byte 4: GGUF version 1, supported", unimplemented},
      {"version_4", [] { return Set("version", 4); }, "GGUF version 4",
       unimplemented},
      {"big_endian", [] { return Set("version", 3u << 24); }, "big-endian",
       unimplemented},
      {"tensor_count", [=] { return Set("tensor_count", max); },
       "byte 8: tensor count 18446744073709551615: more than the file"},
      {"key_count", [] { return Set("key_count", uint64_t{1} << 40); },
       "byte 16: key count 1099511627776: more than the file"},
      {"key_length", [=] { return Set("general.name.length", max); },
       "metadata key: a string of 18446744073709551615 bytes"},
      {"key_length_short", [] { return Set("general.architecture.length", 0); },
       "metadata key: empty"},
      {"value_type", [] { return Set("general.name.type", 13); },
       "key \"general.name\": value type 13 does not exist"},
      {"string_length",
       [=] { return Set("general.name.value.length", max - 7); },
       "key \"general.name\": needs 18446744073709551608 bytes"},
      {"array_count",
       [] { return Set("tokenizer.ggml.token_type.count", uint64_t{1} << 62); },
       "an array of 4611686018427387904 i32, more than the file can hold"},
      {"string_array_count",
       [] { return Set("tokenizer.ggml.tokens.count", uint64_t{1} << 50); },
       "more than the file can hold"},
      {"element_type",
       [] { return Set("tokenizer.ggml.tokens.element_type", 99); },
       "value type 99 does not exist"},
      {"nested",
       [=] {
         return Added([&](GgufWriter& w) { w.Raw("x", 9, nested_array); });
       },
       "key \"x\": arrays nested more than 4 deep"},
      {"bool", [] { return Set("tokenizer.ggml.add_bos_token", 2); },
       "a bool of value 2"},
      {"utf8_key",
       [] {
         return Renamed("general.name",
                        "general.\xff\xfe"
                        "me");
       },
       "metadata key: not valid UTF-8"},
      {"utf8_value",
       [] {
         return Renamed("<|im_end|>",
                        "<|im_\xc0\x80"
                        "d|>");
       },
       "key \"tokenizer.ggml.tokens\": not valid UTF-8"},
      {"control_in_key",
       [] { return Renamed("general.name", "general\nname"); },
       "metadata key \"general\\nname\": control characters"},
      {"key_twice",
       [] {
         return Added([](GgufWriter& w) { w.U32("llama.block_count", 2); });
       },
       "key \"llama.block_count\" occurs twice"},
      {"alignment_zero", [] { return Set("general.alignment", 0); },
       "general.alignment: given 0, want a power of two"},
      {"alignment_odd", [] { return Set("general.alignment", 33); },
       "general.alignment: given 33"},
      {"alignment_huge", [] { return Set("general.alignment", 1u << 31); },
       "general.alignment: given 2147483648"},
      {"alignment_other", [] { return Set("general.alignment", 128); },
       "is not a multiple of 128"},
      {"tensor_name_empty",
       [] { return Set("output_norm.weight.name.length", 0); },
       "tensor name: empty"},
      {"tensor_twice",
       [] { return Renamed("blk.1.attn_k.weight", "blk.0.attn_k.weight"); },
       "tensor \"blk.0.attn_k.weight\" occurs twice"},
      {"canonical_twice",
       [] {
         return Added([](GgufWriter& w) {
           w.Tensor("model.norm.weight", {32}, 0, std::vector<uint8_t>(128));
         });
       },
       "occurs twice (as \"model.norm.weight\")"},
      {"dims_zero", [] { return Set("blk.0.attn_q.weight.dims", 0); },
       "tensor \"blk.0.attn_q.weight\": 0 dimensions, 1 to 4 allowed"},
      {"dims_many", [] { return Set("blk.0.attn_q.weight.dims", 5); },
       "5 dimensions"},
      {"dim_zero", [] { return Set("blk.0.attn_q.weight.dim", 0); },
       "dimension 0 is zero"},
      {"dim_overflow", [=] { return Set("blk.0.attn_q.weight.dim", max); },
       "too many elements"},
      {"dim_product",
       [] { return Set("blk.0.attn_q.weight.dim", uint64_t{1} << 55); },
       "dimension 1 is 32: too many elements"},
      {"dim_ragged", [] { return Set("blk.0.attn_q.weight.dim", 33); },
       "rows of 33 elements, not whole blocks of 32 (q4_1)"},
      {"type_unknown", [] { return Set("blk.0.attn_q.weight.type", 4); },
       "type 4 does not exist"},
      {"type_unsupported", [] { return Set("blk.0.attn_q.weight.type", 10); },
       "type Q2_K is not supported; supported: F32", unimplemented},
      {"offset_odd", [] { return Set("blk.0.attn_q.weight.offset", 33); },
       "offset 33 is not a multiple of 32 (alignment)"},
      {"offset_overlap", [] { return Set("blk.0.attn_q.weight.offset", 0); },
       "overlaps the tensor before"},
      {"offset_beyond",
       [] { return Set("output_norm.weight.offset", uint64_t{1} << 60); },
       "leaves a gap"},
      {"type_grows", [] { return Set("output_norm.weight.dim", 3200); },
       "beyond the"},
      {"trailing",
       [] {
         auto bytes = testing::TinyGguf().Build().bytes;
         bytes.resize(bytes.size() + 64);
         return bytes;
       },
       "64 bytes after the last tensor's data"},
      {"architecture",
       [] {
         return Renamed(std::string("\5\0\0\0\0\0\0\0llama", 13),
                        std::string("\5\0\0\0\0\0\0\0llamb", 13));
       },
       "architecture \"llamb\", supported: llama", unimplemented},
      {"missing_key",
       [] { return Renamed("llama.block_count", "llama.block_kount"); },
       "key \"llama.block_count\": missing"},
      {"wrong_key_type", [] { return Set("llama.block_count.type", 6); },
       "key \"llama.block_count\": given f32, want an integer"},
      {"layers_zero", [] { return Set("llama.block_count", 0); },
       "config: num_layers: given 0"},
      {"layers_absurd", [] { return Set("llama.block_count", 0xffffffff); },
       "config: num_layers: given 4294967295"},
      {"layers_more", [] { return Set("llama.block_count", 3); },
       "tensor \"model.layers.2.input_layernorm.weight\": missing"},
      {"layers_fewer", [] { return Set("llama.block_count", 1); },
       "tensor \"blk.1.attn_norm.weight\": a Llama model of 1 layers has no "
       "such",
       unimplemented},
      {"heads", [] { return Set("llama.attention.head_count_kv", 3); },
       "config: num_kv_heads: given 3, want 1 to 2"},
      {"epsilon_nan",
       [] { return Set("llama.attention.layer_norm_rms_epsilon", 0x7fc00000); },
       "config: epsilon: given nan"},
      {"epsilon_negative",
       [] { return Set("llama.attention.layer_norm_rms_epsilon", 0xb727c5ac); },
       "config: epsilon: given -1e-05"},
      {"theta", [] { return Set("llama.rope.freq_base", 0x7f800000); },
       "config: rope.theta: given inf"},
      {"rotary", [] { return Set("llama.rope.dimension_count", 8); },
       "config: rope.rotary_dim: given 8"},
      {"vocab", [] { return Set("llama.vocab_size", 41); },
       "40 tokens, want 41 (llama.vocab_size)"},
      {"ffn", [] { return Set("llama.feed_forward_length", 128); },
       "tensor \"blk.0.ffn_gate.weight\": shape [256, 32], the configuration "
       "wants [128, 32]"},
      {"missing_tensor",
       [] { return Renamed("output_norm.weight", "output_nurm.weight"); },
       "tensor \"model.norm.weight\": missing"},
      {"bias",
       [] {
         return Added([](GgufWriter& w) {
           w.Tensor("blk.0.attn_q.bias", {32}, 0, std::vector<uint8_t>(128));
         });
       },
       "tensor \"blk.0.attn_q.bias\": a Llama model of 2 layers has no such",
       unimplemented},
      {"weight_of_integers", [] { return Set("output_norm.weight.type", 26); },
       "tensor \"output_norm.weight\": type i32 is not a weight type"},
      {"experts",
       [] {
         return Added([](GgufWriter& w) { w.U32("llama.expert_count", 8); });
       },
       "llama.expert_count\": given 8, supported: 0", unimplemented},
      {"scaling",
       [] {
         return Added([](GgufWriter& w) {
           w.String("llama.rope.scaling.type", "yarn");
         });
       },
       "given \"yarn\", supported: none", unimplemented},
      {"split",
       [] { return Added([](GgufWriter& w) { w.U32("split.count", 2); }); },
       "one of 2 parts", unimplemented},
      {"eos", [] { return Set("tokenizer.ggml.eos_token_id", 40); },
       "tokenizer.ggml.eos_token_id\": given 40, want 0 to 39"},
      {"token_types",
       [] {
         return Added([](GgufWriter& w) {
           w.Raw("tokenizer.ggml.scores", 9,
                 std::string("\6\0\0\0\1\0\0\0\0\0\0\0\0\0\0\0", 16));
         });
       },
       "tokenizer.ggml.scores\": 1 entries, want 40 (tokens)"},
  };
  for (const BadFile& file : files) {
    SCOPED_TRACE(file.name);
    const auto answer = ReadGgufCheckpoint(InMemory(file.bytes()));
    ASSERT_FALSE(answer.ok());
    EXPECT_EQ(answer.status().code(), file.code) << answer.status();
    EXPECT_THAT(std::string(answer.status().message()),
                AllOf(HasSubstr(file.message), HasSubstr(testing::kFileName)));
    Answers answers;
    ExpectClearAnswer(answer, file.name, answers);
  }
}

TEST(GgufCheckpoint, RefusesEveryTruncation) {
  const FileImage image = testing::TinyGguf().Build();
  Answers answers;
  const uint64_t size = image.bytes.size();
  for (uint64_t keep = 0; keep < size;
       keep += keep < image.header_bytes + 64 || keep + 64 > size ? 1 : 97) {
    std::vector<uint8_t> bytes(
        image.bytes.begin(), image.bytes.begin() + static_cast<int64_t>(keep));
    ExpectClearAnswer(ReadGgufCheckpoint(InMemory(bytes)),
                      "cut at " + std::to_string(keep), answers);
  }
  EXPECT_EQ(answers.ok, 0);
}

TEST(GgufCheckpoint, SurvivesEveryBitFlipInTheHeader) {
  const FileImage image = testing::TinyGguf().Build();
  Answers answers;
  for (uint64_t byte = 0; byte < image.header_bytes; ++byte) {
    for (int bit = 0; bit < 8; ++bit) {
      std::vector<uint8_t> bytes = image.bytes;
      bytes[byte] ^= static_cast<uint8_t>(1 << bit);
      ExpectClearAnswer(
          ReadGgufCheckpoint(InMemory(std::move(bytes))),
          "byte " + std::to_string(byte) + " bit " + std::to_string(bit),
          answers);
    }
  }
  EXPECT_GT(answers.refused, static_cast<int64_t>(image.header_bytes));
}

TEST(GgufCheckpoint, SurvivesNastyFields) {
  const FileImage image = testing::TinyGguf().Build();
  Answers answers;
  for (const FileField& field : image.fields) {
    const uint64_t now = testing::GetField(image, field);
    for (const uint64_t value : testing::NastyValues(field.bytes, now)) {
      ExpectClearAnswer(
          ReadGgufCheckpoint(InMemory(testing::WithField(image, field, value))),
          field.name + " = " + std::to_string(value), answers);
    }
  }
  EXPECT_GT(answers.refused, static_cast<int64_t>(image.fields.size() * 5));
}

TEST(GgufCheckpoint, SurvivesRandomDamage) {
  const FileImage image = testing::TinyGguf().Build();
  testing::Random random(11);
  Answers answers;
  for (int round = 0; round < 3000; ++round) {
    std::vector<uint8_t> bytes = image.bytes;
    const int64_t end = static_cast<int64_t>(round % 2 == 0 ? image.header_bytes
                                                            : bytes.size());
    for (int64_t n = random.Integer(1, 16); n > 0; --n) {
      bytes[static_cast<size_t>(random.Integer(0, end - 1))] =
          static_cast<uint8_t>(random.Bits());
    }
    if (random.Integer(0, 3) == 0) {
      bytes.resize(static_cast<size_t>(random.Integer(0, end)));
    }
    ExpectClearAnswer(ReadGgufCheckpoint(InMemory(std::move(bytes))),
                      "round " + std::to_string(round), answers);
  }
  EXPECT_GT(answers.refused, 1000);
}

}  // namespace
}  // namespace lamina
