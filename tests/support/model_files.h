#pragma once

// Small model files for tests, written by code that shares nothing with the
// readers. Each image tells where its fields are, so that tests can spoil them
// one by one.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lamina::testing {

// An integer in a file: where, how wide, and what it is.
struct FileField {
  uint64_t offset;
  int bytes;
  std::string name;
};

struct FileImage {
  std::vector<uint8_t> bytes;
  std::vector<FileField> fields;
  uint64_t header_bytes = 0;  // what comes before the tensors' data
};

// Little-endian, appended piece by piece.
class GgufWriter {
 public:
  explicit GgufWriter(uint32_t version = 3, uint64_t alignment = 32)
      : version_(version), alignment_(alignment) {}

  // Types are GGUF's numbers: 4 u32, 5 i32, 6 f32, 7 bool, 8 string, 9 array.
  void U32(std::string_view key, uint32_t value);
  void F32(std::string_view key, float value);
  void Bool(std::string_view key, bool value);
  void String(std::string_view key, std::string_view value);
  void Strings(std::string_view key, const std::vector<std::string>& values);
  void Int32s(std::string_view key, const std::vector<int32_t>& values);
  // Any value: its type and its bytes.
  void Raw(std::string_view key, uint32_t type, std::string_view bytes);

  // dims innermost first; `type` is ggml's number.
  void Tensor(std::string_view name, const std::vector<uint64_t>& dims,
              uint32_t type, std::vector<uint8_t> data);
  // As Tensor, with an offset of the caller's choice.
  void TensorAt(std::string_view name, const std::vector<uint64_t>& dims,
                uint32_t type, std::vector<uint8_t> data, uint64_t offset);

  FileImage Build() const;

 private:
  void Key(std::string_view key, uint32_t type, FileImage& piece);

  uint32_t version_;
  uint64_t alignment_;
  std::vector<FileImage> keys_;
  std::vector<FileImage> tensors_;
  std::vector<uint8_t> data_;
};

struct SafetensorsEntry {
  std::string name;
  std::string dtype;  // "BF16"
  std::vector<int64_t> shape;
  std::vector<uint8_t> data;
};
// The header as the format's own library writes it.
std::string SafetensorsHeader(const std::vector<SafetensorsEntry>& entries);
FileImage SafetensorsImage(std::string_view header,
                           const std::vector<uint8_t>& data);
FileImage SafetensorsImage(const std::vector<SafetensorsEntry>& entries);

// A Llama of 2 layers, hidden 32, 2 heads, 1 KV head, head_dim 16, ffn 256,
// vocabulary 40, tied embeddings. Matrices in a mix of ggml's types.
GgufWriter TinyGguf();
// The same sizes as safetensors, bf16.
std::vector<SafetensorsEntry> TinySafetensors();
// Its config.json; `extra` is put before the last brace, e.g.
// ", \"rope_theta\": 1".
std::string TinyConfigJson(std::string_view extra = "");

// `bytes` bytes of the given kind of content, the same for the same seed.
std::vector<uint8_t> RandomBytes(uint64_t seed, uint64_t bytes);
// bf16 values around zero.
std::vector<uint8_t> RandomBf16(uint64_t seed, uint64_t count);

}  // namespace lamina::testing
