#pragma once

// A model on disk, the same to its reader whether it is a GGUF file or
// safetensors: configuration, tensors under Hugging Face's names, tokenizer
// data.
//
//   LAMINA_ASSIGN_OR_RETURN(Checkpoint model, Checkpoint::Open(path));
//   LAMINA_ASSIGN_OR_RETURN(const CheckpointTensor* q,
//       model.Tensor("model.layers.0.self_attn.q_proj.weight"));
//   std::vector<float> w(q->rows() * q->cols());
//   LAMINA_RETURN_IF_ERROR(ReadRows(*q, 0, Matrix(w.data(), q->rows(),
//                                                 q->cols()), stream));
//
// Files are mapped, not read: opening costs the headers only, and a view of a
// tensor's bytes is valid as long as the Checkpoint (moving it is fine).
//
// Files are not trusted. Open checks every size, offset, count and name before
// it uses it, allocates nothing that the file's own size does not bear out, and
// answers a bad file with one line that names the file, the byte and what is
// wrong (InvalidArgument; NotFound for a file that is not there; Unimplemented
// for a model or type that Lamina does not run). A file that is changed or
// truncated by others while it is mapped is undefined, as for any mapping.

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lamina/core/dtype.h"
#include "lamina/core/stream.h"
#include "lamina/core/views.h"
#include "lamina/model/config.h"
#include "lamina/quant/scale.h"

namespace lamina {

// How a tensor's elements stand in the file. The last group are ggml's blocks
// of 32 (Q4_0 … Q8_0) or 256 (…_K) elements of one row with scales inside.
enum class StorageType : uint8_t {
  kF32,
  kF16,
  kBF16,
  kF64,
  kF8E4M3,  // OCP, as torch.float8_e4m3fn
  kF8E5M2,
  kF8E8M0,
  kBool,
  kI8,
  kU8,
  kI16,
  kU16,
  kI32,
  kU32,
  kI64,
  kU64,
  kQ4_0,
  kQ4_1,
  kQ5_0,
  kQ5_1,
  kQ8_0,
  kQ4_K,
  kQ5_K,
  kQ6_K,
};
inline constexpr int kNumStorageTypes = 24;

const char* Name(StorageType type);       // "bf16", "q4_k", …
int64_t BlockElements(StorageType type);  // 1, 32 or 256
int64_t BlockBytes(StorageType type);     // of one element or one block
// The operators' type with the same bytes, for those that have one.
std::optional<DType> ToDType(StorageType type);

struct CheckpointTensor {
  std::string name;            // canonical
  std::vector<int64_t> shape;  // outermost first: [out, in] of a matrix
  StorageType type = StorageType::kF32;
  const uint8_t* data = nullptr;  // in the mapping; any alignment
  int64_t bytes = 0;
  // FP8 and int8 weights of a quantised checkpoint: real = code * scale. The
  // scales are f32 whatever the file has; kPerTensor, kPerRow or kPerTile.
  ConstScaleView scales;
  // Static scale of the activation that this weight is multiplied with; absent
  // when the checkpoint wants dynamic ones, or none.
  std::optional<float> input_scale;

  // The tensor as a matrix: the last dimension is a row; a vector is one row.
  int64_t cols() const { return shape.empty() ? 1 : shape.back(); }
  int64_t rows() const;
  // Elements in place. Only for types that ToDType knows, and only when the
  // data happens to be aligned to an element; no value otherwise.
  std::optional<ConstMatrixView> view() const;
};

// Rows [first_row, first_row + out.rows) as out.dtype (f32, bf16 or f16):
// dequantised in fp32 as the file's format defines it, times the scale if there
// is one, and rounded once. out.cols == tensor.cols(). Runs on the stream's
// threads (a CPU stream); the result does not depend on their number.
[[nodiscard]] absl::Status ReadRows(const CheckpointTensor& tensor,
                                    int64_t first_row, MatrixView out,
                                    Stream stream);

// How a checkpoint's linear layers were quantised; from config.json.
enum class ActivationScheme : uint8_t {
  kNone,     // weights only, or not quantised
  kStatic,   // input_scale of each weight
  kDynamic,  // per token, at run time
};
struct CheckpointQuantization {
  // "" = not quantised (or GGUF, whose types say it), "compressed-tensors",
  // "fp8".
  std::string method;
  ActivationScheme activations = ActivationScheme::kNone;
};

// Tokenizer data as the file has it. Views are into the mapping.
struct GgufTokenizer {
  std::string_view model;  // "gpt2" = byte-level BPE
  std::string_view pre;    // pre-tokeniser: "smollm", "llama-bpe", …
  std::vector<std::string_view> tokens;  // by id; valid UTF-8
  std::vector<std::string_view> merges;  // by rank; "left right"
  std::vector<int32_t> token_types;  // by id; 1 normal, 3 control, …; or empty
  std::vector<float> scores;         // by id; or empty
  std::optional<int32_t> bos_id, eos_id, eot_id, unknown_id, padding_id;
  std::optional<bool> add_bos, add_eos, add_space_prefix;
  std::string_view chat_template;
};
// The JSON files beside a safetensors checkpoint; "" where there is none.
struct HfTokenizer {
  std::string directory;
  std::string_view tokenizer_json;
  std::string_view tokenizer_config_json;
  std::string_view chat_template_jinja;
};

class Checkpoint {
 public:
  // A .gguf file, a .safetensors file with config.json beside it, or a
  // directory that holds config.json and model.safetensors, or
  // model.safetensors.index.json and its shards, or a single .gguf file.
  // The kind of a file is told by its content, not by its name.
  // On success every tensor of ExpectedTensors(config()) is there with its
  // shape, and can be read.
  [[nodiscard]] static absl::StatusOr<Checkpoint> Open(const std::string& path);

  Checkpoint(Checkpoint&&) noexcept;
  Checkpoint& operator=(Checkpoint&&) noexcept;
  ~Checkpoint();

  const ModelConfig& config() const;
  const CheckpointQuantization& quantization() const;
  const std::string& path() const;
  // Bytes of all files mapped for tensors.
  int64_t file_bytes() const;

  // By canonical name: "model.embed_tokens.weight", "model.norm.weight",
  // "lm_head.weight", "model.layers.N." + {"input_layernorm",
  // "self_attn.{q,k,v,o}_proj", "post_attention_layernorm",
  // "mlp.{gate,up,down}_proj"} + ".weight". lm_head.weight is always there:
  // the embedding when they are tied. NotFound otherwise.
  [[nodiscard]] absl::StatusOr<const CheckpointTensor*> Tensor(
      std::string_view name) const;
  // Everything in the file, by name; tensors that a Llama model does not have
  // keep the file's name. Scales of weights are not listed.
  const std::map<std::string, CheckpointTensor, std::less<>>& tensors() const;

  // Null when the checkpoint is of the other kind.
  const GgufTokenizer* gguf_tokenizer() const;
  const HfTokenizer* hf_tokenizer() const;

 private:
  struct Impl;
  explicit Checkpoint(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace lamina
