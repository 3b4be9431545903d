#pragma once

// Writes a checkpoint that vLLM, transformers and Checkpoint::Open read: a
// directory with model.safetensors and config.json in the compressed-tensors
// "float-quantized" form. Projections are F8_E4M3 with one scale a channel
// (row): weight [out, in], weight_scale [out, 1] in f32; embeddings, norms and
// lm_head are bf16.
//
//   LAMINA_ASSIGN_OR_RETURN(auto writer,
//       Fp8CheckpointWriter::Create("out", config, {}));
//   for (const ExpectedTensor& t : ExpectedTensors(config)) {
//     LAMINA_RETURN_IF_ERROR(writer.Add(t.name, values, {}, stream));
//   }
//   LAMINA_RETURN_IF_ERROR(writer.Finish());
//
// Nothing is at the destination until Finish succeeds: the files grow in a
// hidden directory beside it, which is then renamed. A writer that is destroyed
// before leaves nothing behind. The room on the disk is reserved by Create, so
// that a full disk is found before the work (ResourceExhausted).

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lamina/core/stream.h"
#include "lamina/core/views.h"
#include "lamina/model/checkpoint.h"
#include "lamina/model/config.h"

namespace lamina {

struct Fp8CheckpointOptions {
  // kStatic: each projection is written with its input_scale.
  ActivationScheme activations = ActivationScheme::kDynamic;
};

class Fp8CheckpointWriter {
 public:
  // `directory` does not exist yet, or is empty. The config's rope_pairing is
  // kHalfSplit, since that is how readers take the files: reorder the rows of
  // q_proj and k_proj that come from GGUF (AdjacentRow).
  [[nodiscard]] static absl::StatusOr<Fp8CheckpointWriter> Create(
      const std::string& directory, const ModelConfig& config,
      const Fp8CheckpointOptions& options);

  Fp8CheckpointWriter(Fp8CheckpointWriter&&) noexcept;
  Fp8CheckpointWriter& operator=(Fp8CheckpointWriter&&) noexcept;
  ~Fp8CheckpointWriter();

  // Values (f32, f16 or bf16) of one of ExpectedTensors(config), in its shape;
  // each once, in any order. A projection is quantised by the rule of
  // quant/scale.h, dynamic per row; anything else is rounded to bf16.
  // `input_scale`: for projections with static activations, and only there.
  [[nodiscard]] absl::Status Add(std::string_view name, ConstMatrixView values,
                                 std::optional<float> input_scale,
                                 Stream stream);

  // A file to stand beside the model, such as tokenizer.json.
  [[nodiscard]] absl::Status AddFile(std::string_view file_name,
                                     std::string_view contents);

  // Error when a tensor was not added. Flushes to the disk, then renames.
  [[nodiscard]] absl::Status Finish();

 private:
  struct Impl;
  explicit Fp8CheckpointWriter(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace lamina
