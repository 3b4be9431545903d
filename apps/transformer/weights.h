#pragma once

// The weights of a model on its device: laid out in one buffer, and filled from
// a checkpoint or with random values.

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lamina/core/buffer.h"
#include "lamina/core/stream.h"
#include "lamina/core/views.h"
#include "lamina/decoder_block/decoder_block.h"
#include "lamina/model/checkpoint.h"
#include "lamina/model/config.h"

namespace lamina::transformer_internal {

struct ModelWeights {
  Buffer memory;
  ConstMatrixView embedding;   // [vocab_size, hidden_dim] bf16
  ConstVectorView final_norm;  // [hidden_dim], WeightsPlan::norm_type
  LinearWeights output;        // the embedding itself when they are tied
  std::vector<DecoderBlockWeights> layers;
};

struct WeightsPlan {
  ModelConfig config;
  DType type = DType::kBF16;  // of the matrices: kBF16 or kF8E4M3Fn
  // Of the norms: as the activations, for which GPUs have the fastest kernels.
  // Models have them as bf16, whatever their file says.
  DType norm_type = DType::kF32;
  bool static_inputs = false;  // keep the scales of the inputs
  std::function<void(double)> progress = {};

  // Whether lm_head has memory of its own.
  bool own_output() const {
    return !config.tied_embeddings || type != DType::kBF16;
  }
};
// What ModelWeights::memory will hold.
int64_t WeightBytes(const WeightsPlan& plan);

// Where values come from. Pointers are the device's. A projection can consist
// of several matrices, one below the other: q, k and v, gate and up.
class WeightSource {
 public:
  virtual ~WeightSource() = default;
  // A vector: f32, bf16 or f16.
  virtual absl::Status Fill(const std::string& name, VectorView to) = 0;
  // The matrices as bf16.
  virtual absl::Status FillBf16(const std::vector<std::string>& names,
                                MatrixView to) = 0;
  // FP8 codes, a scale a row, and the scale of the input: 0 for none.
  virtual absl::Status FillFp8(const std::vector<std::string>& names,
                               MatrixView codes, float* scales,
                               float* input_scale) = 0;
};

absl::StatusOr<ModelWeights> MakeWeights(const WeightsPlan& plan,
                                         WeightSource& source, Stream stream);

// A checkpoint's. Matrices that are not FP8 there become FP8 on the host; to a
// GPU they go through host memory, some rows at a time.
absl::StatusOr<ModelWeights> LoadWeights(const WeightsPlan& plan,
                                         const Checkpoint& checkpoint,
                                         Stream stream);

// Norm weights of 1 and matrices of independent values, uniform, with a
// variance that keeps the size of what they are multiplied with. For
// benchmarks: on a GPU a long matrix repeats a stretch of some MiB.
absl::StatusOr<ModelWeights> RandomWeights(const WeightsPlan& plan,
                                           uint64_t seed, Stream stream);

// Fills device memory with finite random values of the type, uniform in
// (-amplitude, amplitude), or any finite FP8 code; repeating as above.
absl::Status FillRandom(void* data, DType type, int64_t count, float amplitude,
                        uint64_t seed, const Stream& stream);

}  // namespace lamina::transformer_internal
