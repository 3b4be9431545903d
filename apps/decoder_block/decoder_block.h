#pragma once

// One decoder block of a Llama-type transformer as a chain of Lamina's
// operators, made to be lifted out into an inference engine:
//
//   LAMINA_ASSIGN_OR_RETURN(DecoderBlock block,
//                           DecoderBlock::Plan(config, GetDeviceInfo(device)));
//   LAMINA_ASSIGN_OR_RETURN(Buffer scratch,
//                           Buffer::Allocate(device, block.workspace_bytes()));
//   for (const BlockLayer& layer : layers) {
//     LAMINA_RETURN_IF_ERROR(
//         block.Decode({.weights = &layer.weights,
//                       .cache = layer.cache,
//                       .rope_table = rope_table,
//                       .positions = positions.data(),
//                       .max_position = 4095,
//                       .residual = residual,
//                       .delta = delta,
//                       .delta_is_zero = &layer == layers.data(),
//                       .workspace = scratch.data(),
//                       .workspace_bytes = scratch.bytes()},
//                      stream));
//   }
//
//   stage           operator                      reads → writes
//   attention_norm  AddRmsNorm (or RmsNorm)       delta, residual → residual, h
//   qkv             SkinnyGemm                    h → q, k, v
//   rope_append     RopeAppend                    q, k, v → q, cache
//   attention       DecodeAttention (, Quantize)  q, cache → a
//   output          SkinnyGemm                    a → delta
//   ffn_norm        AddRmsNorm                    delta, residual → residual, h
//   gate_up         SkinnyGemm                    h → gate, up
//   activation      GatedActivation               gate, up → f
//   down            SkinnyGemm                    f → delta
//
// The residual stream is a pair (residual, delta): delta is the output of the
// last projection, not yet added; the next norm adds it. The sum
// residual + delta after the last block goes to the model's final norm.
//
// With `input_quantization` the norms and the activation write FP8 codes
// straight into the projections that follow (and the attention output is
// quantised by a Quantize).
//
// Stages may be fused (BlockFusion). Then each of these does what two did:
//
//   residual     output and down add to the residual in their epilogue; delta
//                is neither read nor written, the norms are plain RmsNorms
//   activation   gate_up's epilogue is the gated activation; the stage
//                `activation` does nothing
//
// A fused result is rounded to activation_type once where a plain one is
// rounded twice: with f32 the bits are the same.

#include <array>
#include <cstdint>
#include <functional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "lamina/attention/kv_cache.h"
#include "lamina/attention/rope.h"
#include "lamina/core/device.h"
#include "lamina/core/event.h"
#include "lamina/core/gate.h"
#include "lamina/core/stream.h"
#include "lamina/core/views.h"
#include "lamina/gemm/gemm_tuning.h"
#include "lamina/gemm/prefill_gemm.h"
#include "lamina/quant/scale.h"

namespace lamina {

enum class BlockStage : uint8_t {
  kAttentionNorm,
  kQkv,
  kRopeAppend,
  kAttention,
  kOutput,
  kFfnNorm,
  kGateUp,
  kActivation,
  kDown,
};
inline constexpr int kNumBlockStages = 9;
const char* Name(BlockStage stage);

// How the inputs of the four projections are quantised.
enum class InputQuantization : uint8_t {
  kNone,    // they stay in `activation_type`
  kStatic,  // FP8 with the projection's own input_scale
  kPerRow,  // FP8 with a scale a row, computed on the fly
};

// Which stages run as one.
struct BlockFusion {
  bool residual = false;
  bool activation = false;
  friend constexpr bool operator==(const BlockFusion&,
                                   const BlockFusion&) = default;
};

struct DecoderBlockConfig {
  int64_t hidden_dim = 0;
  int64_t ffn_dim = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  float epsilon = 1e-5f;
  GateSpec gate = {};
  RopePairing rope_pairing = RopePairing::kHalfSplit;
  int64_t window = 0;                   // sliding window, 0 = none
  DType activation_type = DType::kF32;  // between the stages: f32, f16, bf16
  DType weight_type = DType::kBF16;
  DType kv_type = DType::kBF16;
  InputQuantization input_quantization = InputQuantization::kNone;
  DType input_type = DType::kF8E4M3Fn;  // of quantised inputs
  BlockFusion fusion = {};
  int64_t max_tokens = 1;     // most rows of one Decode
  int64_t max_positions = 0;  // capacity of a sequence
  int num_threads = 0;        // CPU: most threads of the stream
  bool prefill = false;       // DecoderBlockArgs::prefill is given

  int64_t q_dim() const { return heads * head_dim; }
  int64_t kv_dim() const { return kv_heads * head_dim; }
  int64_t qkv_dim() const { return q_dim() + 2 * kv_dim(); }
};

// One projection y = x · wᵀ.
struct LinearWeights {
  ConstMatrixView w;                   // [out, in]
  ConstScaleView w_scales = {};        // FP8 weights
  ConstVectorView bias = {};           // [out], optional
  const float* input_scale = nullptr;  // InputQuantization::kStatic
};

struct DecoderBlockWeights {
  ConstVectorView attention_norm;  // [hidden_dim]
  LinearWeights qkv;               // [q_dim + 2 * kv_dim, hidden_dim]: q, k, v
  LinearWeights output;            // [hidden_dim, q_dim]
  ConstVectorView ffn_norm;        // [hidden_dim]
  LinearWeights gate_up;           // [2 * ffn_dim, hidden_dim]: gate, up
  LinearWeights down;              // [hidden_dim, ffn_dim]
};

// Pointers are the stream's device's, all but `weights` itself, whose views
// are.
struct DecoderBlockArgs {
  const DecoderBlockWeights* weights = nullptr;
  KvCacheView cache;                      // this layer's
  ConstMatrixView rope_table;             // FillRopeTable's
  const int32_t* sequence_ids = nullptr;  // [tokens]; null: token t, sequence t
  const int32_t* positions = nullptr;     // [tokens]
  int64_t max_position = 0;               // upper bound of positions
  MatrixView residual;                    // [tokens, hidden_dim], in and out
  MatrixView delta;                       // the same; not if fusion.residual
  bool delta_is_zero = false;             // first block: delta is only written
  void* workspace = nullptr;
  int64_t workspace_bytes = 0;
  // SkinnyGemm's, of all projections; optional.
  PrefillGemm* prefill = nullptr;
  const GemmTuning* tuning = nullptr;
  // Empty, or kNumBlockStages + 1 events, recorded around the stages.
  absl::Span<Event> events = {};
  // Only these stages, for benchmarks: what the others leave in the workspace
  // is taken as it is there.
  BlockStage first_stage = BlockStage::kAttentionNorm;
  BlockStage last_stage = BlockStage::kDown;
  // For calibration: called with the stage and the input of each projection
  // once its producer is enqueued. Not with quantised inputs.
  std::function<void(BlockStage, const ConstMatrixView&)> observe_input = {};
};

class DecoderBlock {
 public:
  // Checks the configuration and lays out the workspace. Needs no device.
  static absl::StatusOr<DecoderBlock> Plan(const DecoderBlockConfig& config,
                                           const DeviceInfo& device);

  const DecoderBlockConfig& config() const { return config_; }
  int64_t workspace_bytes() const { return workspace_bytes_; }

  // Enqueues the block for `residual.rows` tokens. Re-entrant: two calls may
  // run at once with two workspaces, deltas, residuals and caches.
  [[nodiscard]] absl::Status Decode(const DecoderBlockArgs& args,
                                    const Stream& stream) const;

  // Bytes that each stage must at least move for `tokens` tokens that attend
  // to `context` positions each: every input and output once.
  std::array<int64_t, kNumBlockStages> StageBytes(int64_t tokens,
                                                  int64_t context) const;

 private:
  // Byte offsets into the workspace.
  struct Layout {
    int64_t normed = 0;     // [tokens, hidden_dim]
    int64_t qkv = 0;        // [tokens, qkv_dim]
    int64_t attention = 0;  // [tokens, q_dim]
    int64_t gate_up = 0;    // [tokens, 2 * ffn_dim]
    int64_t activated = 0;  // [tokens, ffn_dim]
    int64_t codes = 0;      // [tokens, widest projection input], FP8
    int64_t scales = 0;     // [tokens]
    // Of the input of `down`; the same memory unless gate_up writes it.
    int64_t down_codes = 0, down_scales = 0;
    int64_t scratch = 0;  // workspace of the operators
  };
  struct Call;

  explicit DecoderBlock(const DecoderBlockConfig& config) : config_(config) {}

  DecoderBlockConfig config_;
  Layout layout_;
  int64_t scratch_bytes_ = 0;
  int64_t workspace_bytes_ = 0;
};

}  // namespace lamina
