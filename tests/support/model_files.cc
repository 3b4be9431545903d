#include "tests/support/model_files.h"

#include <cstdint>
#include <cstring>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lamina/core/float16.h"
#include "tests/support/random.h"

namespace lamina::testing {
namespace {

template <class T>
void Append(std::vector<uint8_t>& bytes, T value) {
  const size_t at = bytes.size();
  bytes.resize(at + sizeof(T));
  std::memcpy(bytes.data() + at, &value, sizeof(T));
}

template <class T>
void AppendField(FileImage& image, T value, std::string name) {
  image.fields.push_back(
      {image.bytes.size(), static_cast<int>(sizeof(T)), std::move(name)});
  Append(image.bytes, value);
}

void AppendText(FileImage& image, std::string_view text, std::string name) {
  AppendField<uint64_t>(image, text.size(), name + ".length");
  image.bytes.insert(image.bytes.end(), text.begin(), text.end());
}

void AppendPiece(FileImage& image, const FileImage& piece) {
  for (FileField field : piece.fields) {
    field.offset += image.bytes.size();
    image.fields.push_back(std::move(field));
  }
  image.bytes.insert(image.bytes.end(), piece.bytes.begin(), piece.bytes.end());
}

constexpr uint32_t kU32 = 4, kI32 = 5, kF32 = 6, kBool = 7, kString = 8,
                   kArray = 9;

}  // namespace

void GgufWriter::Key(std::string_view key, uint32_t type, FileImage& piece) {
  AppendText(piece, key, std::string(key));
  AppendField(piece, type, std::string(key) + ".type");
}

void GgufWriter::U32(std::string_view key, uint32_t value) {
  Key(key, kU32, keys_.emplace_back());
  AppendField(keys_.back(), value, std::string(key));
}

void GgufWriter::F32(std::string_view key, float value) {
  Key(key, kF32, keys_.emplace_back());
  AppendField(keys_.back(), value, std::string(key));
}

void GgufWriter::Bool(std::string_view key, bool value) {
  Key(key, kBool, keys_.emplace_back());
  AppendField<uint8_t>(keys_.back(), value ? 1 : 0, std::string(key));
}

void GgufWriter::String(std::string_view key, std::string_view value) {
  Key(key, kString, keys_.emplace_back());
  AppendText(keys_.back(), value, std::string(key) + ".value");
}

void GgufWriter::Strings(std::string_view key,
                         const std::vector<std::string>& values) {
  FileImage& piece = keys_.emplace_back();
  Key(key, kArray, piece);
  AppendField(piece, kString, std::string(key) + ".element_type");
  AppendField<uint64_t>(piece, values.size(), std::string(key) + ".count");
  for (const std::string& value : values) {
    AppendText(piece, value, std::string(key) + "[]");
  }
}

void GgufWriter::Int32s(std::string_view key,
                        const std::vector<int32_t>& values) {
  FileImage& piece = keys_.emplace_back();
  Key(key, kArray, piece);
  AppendField(piece, kI32, std::string(key) + ".element_type");
  AppendField<uint64_t>(piece, values.size(), std::string(key) + ".count");
  for (const int32_t value : values) Append(piece.bytes, value);
}

void GgufWriter::Raw(std::string_view key, uint32_t type,
                     std::string_view bytes) {
  FileImage& piece = keys_.emplace_back();
  Key(key, type, piece);
  piece.bytes.insert(piece.bytes.end(), bytes.begin(), bytes.end());
}

void GgufWriter::Tensor(std::string_view name,
                        const std::vector<uint64_t>& dims, uint32_t type,
                        std::vector<uint8_t> data) {
  TensorAt(name, dims, type, std::move(data), data_.size());
}

void GgufWriter::TensorAt(std::string_view name,
                          const std::vector<uint64_t>& dims, uint32_t type,
                          std::vector<uint8_t> data, uint64_t offset) {
  FileImage& piece = tensors_.emplace_back();
  const std::string label(name);
  AppendText(piece, name, label + ".name");
  AppendField<uint32_t>(piece, static_cast<uint32_t>(dims.size()),
                        label + ".dims");
  for (const uint64_t dim : dims) AppendField(piece, dim, label + ".dim");
  AppendField(piece, type, label + ".type");
  AppendField(piece, offset, label + ".offset");
  data_.insert(data_.end(), data.begin(), data.end());
  while (data_.size() % alignment_ != 0) data_.push_back(0);
}

FileImage GgufWriter::Build() const {
  FileImage image;
  for (const char c : {'G', 'G', 'U', 'F'}) {
    image.bytes.push_back(static_cast<uint8_t>(c));
  }
  AppendField(image, version_, "version");
  AppendField<uint64_t>(image, tensors_.size(), "tensor_count");
  AppendField<uint64_t>(image, keys_.size(), "key_count");
  for (const FileImage& piece : keys_) AppendPiece(image, piece);
  for (const FileImage& piece : tensors_) AppendPiece(image, piece);
  while (image.bytes.size() % alignment_ != 0) image.bytes.push_back(0);
  image.header_bytes = image.bytes.size();
  image.bytes.insert(image.bytes.end(), data_.begin(), data_.end());
  return image;
}

std::string SafetensorsHeader(const std::vector<SafetensorsEntry>& entries) {
  std::ostringstream text;
  text << "{\"__metadata__\":{\"format\":\"pt\"}";
  size_t offset = 0;
  for (const SafetensorsEntry& entry : entries) {
    text << ",\"" << entry.name << "\":{\"dtype\":\"" << entry.dtype
         << "\",\"shape\":[";
    for (size_t i = 0; i < entry.shape.size(); ++i) {
      text << (i > 0 ? "," : "") << entry.shape[i];
    }
    text << "],\"data_offsets\":[" << offset << ",";
    offset += entry.data.size();
    text << offset << "]}";
  }
  text << "}";
  std::string header = text.str();
  while (header.size() % 8 != 0) header += ' ';
  return header;
}

FileImage SafetensorsImage(std::string_view header,
                           const std::vector<uint8_t>& data) {
  FileImage image;
  AppendField<uint64_t>(image, header.size(), "header length");
  image.bytes.insert(image.bytes.end(), header.begin(), header.end());
  image.header_bytes = image.bytes.size();
  image.bytes.insert(image.bytes.end(), data.begin(), data.end());
  return image;
}

FileImage SafetensorsImage(const std::vector<SafetensorsEntry>& entries) {
  std::vector<uint8_t> data;
  for (const SafetensorsEntry& entry : entries) {
    data.insert(data.end(), entry.data.begin(), entry.data.end());
  }
  return SafetensorsImage(SafetensorsHeader(entries), data);
}

std::vector<uint8_t> RandomBytes(uint64_t seed, uint64_t bytes) {
  Random random(seed);
  std::vector<uint8_t> result(bytes);
  for (uint8_t& byte : result) byte = static_cast<uint8_t>(random.Bits());
  return result;
}

std::vector<uint8_t> RandomBf16(uint64_t seed, uint64_t count) {
  Random random(seed);
  std::vector<uint8_t> bytes;
  for (uint64_t i = 0; i < count; ++i) {
    Append(bytes, FromFloat<BF16>(random.Normal(0.0f, 0.1f)).bits);
  }
  return bytes;
}

namespace {

constexpr uint64_t kHidden = 32, kKv = 16, kFfn = 256, kVocab = 40;

struct TinyMatrix {
  const char* gguf;
  const char* hf;
  uint64_t in, out;
  uint32_t ggml_type;
  uint64_t block, block_bytes;
};
constexpr TinyMatrix kMatrices[] = {
    {"attn_q", "self_attn.q_proj", kHidden, kHidden, 3, 32, 20},       // Q4_1
    {"attn_k", "self_attn.k_proj", kHidden, kKv, 2, 32, 18},           // Q4_0
    {"attn_v", "self_attn.v_proj", kHidden, kKv, 6, 32, 22},           // Q5_0
    {"attn_output", "self_attn.o_proj", kHidden, kHidden, 7, 32, 24},  // Q5_1
    {"ffn_gate", "mlp.gate_proj", kHidden, kFfn, 1, 1, 2},             // F16
    {"ffn_up", "mlp.up_proj", kHidden, kFfn, 30, 1, 2},                // BF16
    {"ffn_down", "mlp.down_proj", kFfn, kHidden, 12, 256, 144},        // Q4_K
};

std::vector<uint8_t> Ones(uint64_t count) {
  std::vector<uint8_t> bytes;
  for (uint64_t i = 0; i < count; ++i) Append(bytes, 1.0f);
  return bytes;
}

}  // namespace

GgufWriter TinyGguf() {
  GgufWriter gguf;
  gguf.String("general.architecture", "llama");
  gguf.String("general.name", "tiny");
  gguf.U32("general.alignment", 32);
  gguf.U32("llama.block_count", 2);
  gguf.U32("llama.context_length", 128);
  gguf.U32("llama.embedding_length", kHidden);
  gguf.U32("llama.feed_forward_length", kFfn);
  gguf.U32("llama.attention.head_count", 2);
  gguf.U32("llama.attention.head_count_kv", 1);
  gguf.F32("llama.rope.freq_base", 10000.0f);
  gguf.F32("llama.attention.layer_norm_rms_epsilon", 1e-5f);
  gguf.U32("llama.vocab_size", kVocab);
  gguf.U32("llama.rope.dimension_count", 16);
  gguf.String("tokenizer.ggml.model", "gpt2");
  gguf.String("tokenizer.ggml.pre", "smollm");
  std::vector<std::string> tokens = {"<|endoftext|>", "<|im_end|>"};
  std::vector<int32_t> types = {3, 3};
  for (char c = '!'; tokens.size() < kVocab; ++c) {
    tokens.push_back(std::string(1, c));
    types.push_back(1);
  }
  gguf.Strings("tokenizer.ggml.tokens", tokens);
  gguf.Int32s("tokenizer.ggml.token_type", types);
  gguf.Strings("tokenizer.ggml.merges", {"! !", "\" \""});
  gguf.U32("tokenizer.ggml.bos_token_id", 0);
  gguf.U32("tokenizer.ggml.eos_token_id", 1);
  gguf.Bool("tokenizer.ggml.add_bos_token", false);
  gguf.String("tokenizer.chat_template", "{{ messages }}\n");

  // Q8_0 and Q6_K in the embedding's and one matrix' place.
  gguf.Tensor("token_embd.weight", {kHidden, kVocab}, 8,
              RandomBytes(1, kVocab * kHidden / 32 * 34));
  uint64_t seed = 2;
  for (const char* layer : {"blk.0.", "blk.1."}) {
    const std::string prefix = layer;
    gguf.Tensor(prefix + "attn_norm.weight", {kHidden}, 0, Ones(kHidden));
    gguf.Tensor(prefix + "ffn_norm.weight", {kHidden}, 0, Ones(kHidden));
    for (TinyMatrix m : kMatrices) {
      if (m.ggml_type == 12 && prefix == "blk.1.") {
        m.ggml_type = 14;  // Q6_K
        m.block_bytes = 210;
      }
      gguf.Tensor(prefix + m.gguf + ".weight", {m.in, m.out}, m.ggml_type,
                  RandomBytes(seed++, m.in * m.out / m.block * m.block_bytes));
    }
  }
  gguf.Tensor("output_norm.weight", {kHidden}, 0, Ones(kHidden));
  return gguf;
}

std::vector<SafetensorsEntry> TinySafetensors() {
  std::vector<SafetensorsEntry> entries;
  uint64_t seed = 100;
  const auto add = [&](const std::string& name, uint64_t out, uint64_t in) {
    SafetensorsEntry entry;
    entry.name = name;
    entry.dtype = "BF16";
    if (out > 0) entry.shape.push_back(static_cast<int64_t>(out));
    entry.shape.push_back(static_cast<int64_t>(in));
    entry.data = RandomBf16(seed++, (out > 0 ? out : 1) * in);
    entries.push_back(std::move(entry));
  };
  add("model.embed_tokens.weight", kVocab, kHidden);
  for (const char* layer : {"model.layers.0.", "model.layers.1."}) {
    const std::string prefix = layer;
    add(prefix + "input_layernorm.weight", 0, kHidden);
    add(prefix + "post_attention_layernorm.weight", 0, kHidden);
    for (const TinyMatrix& m : kMatrices) {
      add(prefix + m.hf + ".weight", m.out, m.in);
    }
  }
  add("model.norm.weight", 0, kHidden);
  return entries;
}

std::string TinyConfigJson(std::string_view extra) {
  return R"({
  "architectures": ["LlamaForCausalLM"],
  "model_type": "llama",
  "hidden_size": 32,
  "num_hidden_layers": 2,
  "num_attention_heads": 2,
  "num_key_value_heads": 1,
  "intermediate_size": 256,
  "vocab_size": 40,
  "max_position_embeddings": 128,
  "rms_norm_eps": 1e-05,
  "hidden_act": "silu",
  "tie_word_embeddings": true,
  "bos_token_id": 0,
  "eos_token_id": [1, 2])" +
         std::string(extra) + "\n}\n";
}

}  // namespace lamina::testing
