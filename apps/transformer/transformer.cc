#include "lamina/transformer/transformer.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lamina/attention/rope.h"
#include "lamina/core/float16.h"
#include "lamina/core/math.h"
#include "lamina/core/parallel.h"
#include "lamina/core/status.h"
#include "lamina/gemm/skinny_gemm.h"
#include "lamina/norm/add_rms_norm.h"
#include "lamina/quant/quantize.h"

namespace lamina {
namespace {

constexpr char kOp[] = "Transformer";
constexpr int64_t kAlignment = 256;

std::string LayerTensor(int64_t layer, const char* suffix) {
  return absl::StrCat("model.layers.", layer, ".", suffix, ".weight");
}

// The parts of a fused projection, in row order.
struct Projection {
  std::vector<const CheckpointTensor*> parts;
  int64_t rows = 0;
  int64_t cols = 0;
};

}  // namespace

// Lays the weights out in one buffer and fills it.
class Transformer::Loader {
 public:
  Loader(const Checkpoint& checkpoint, DType weight_type, bool static_inputs,
         const std::function<void(double)>& progress, Stream stream)
      : checkpoint_(checkpoint),
        config_(checkpoint.config()),
        weight_type_(weight_type),
        static_inputs_(static_inputs),
        progress_(progress),
        stream_(stream) {}

  absl::Status Load(Transformer& model) {
    const int64_t bytes = TotalBytes();
    const int64_t memory = GetDeviceInfo(stream_.device()).memory_bytes;
    if (memory > 0 && bytes > memory) {
      return absl::ResourceExhaustedError(absl::StrCat(
          "the weights need ", bytes, " bytes, the device has ", memory));
    }
    LAMINA_ASSIGN_OR_RETURN(model.weights_,
                            Buffer::Allocate(stream_.device(), bytes));
    LAMINA_ASSIGN_OR_RETURN(Buffer scratch,
                            Buffer::Allocate(stream_.device(), ScratchBytes()));
    scratch_ = scratch.as<float>();
    next_ = model.weights_.as<uint8_t>();

    LAMINA_ASSIGN_OR_RETURN(const CheckpointTensor* embedding,
                            checkpoint_.Tensor("model.embed_tokens.weight"));
    LAMINA_ASSIGN_OR_RETURN(model.embedding_, ReadBf16(*embedding));
    LAMINA_ASSIGN_OR_RETURN(model.final_norm_, ReadNorm("model.norm.weight"));
    if (config_.tied_embeddings && weight_type_ == DType::kBF16) {
      model.output_.w = model.embedding_;
    } else {
      LAMINA_ASSIGN_OR_RETURN(const CheckpointTensor* output,
                              checkpoint_.Tensor("lm_head.weight"));
      LAMINA_ASSIGN_OR_RETURN(
          model.output_,
          ReadLinear({{output}, config_.vocab_size, config_.hidden_dim}));
    }
    for (int64_t layer = 0; layer < config_.num_layers; ++layer) {
      LAMINA_ASSIGN_OR_RETURN(const DecoderBlockWeights weights,
                              ReadLayer(layer));
      model.layers_.push_back(weights);
      if (progress_) {
        progress_(static_cast<double>(layer + 1) /
                  static_cast<double>(config_.num_layers));
      }
    }
    model.memory_.weights = bytes;
    return absl::OkStatus();
  }

 private:
  static int64_t Padded(int64_t bytes) { return RoundUp(bytes, kAlignment); }

  int64_t LinearBytes(int64_t rows, int64_t cols) const {
    const int64_t scales =
        weight_type_ == DType::kBF16 ? 0 : Padded(4 * rows) + Padded(4);
    return Padded(BytesFor(weight_type_, rows * cols)) + scales;
  }

  int64_t TotalBytes() const {
    const int64_t hidden = config_.hidden_dim;
    const int64_t layer =
        2 * Padded(4 * hidden) +
        LinearBytes(config_.q_dim() + 2 * config_.kv_dim(), hidden) +
        LinearBytes(hidden, config_.q_dim()) +
        LinearBytes(2 * config_.ffn_dim, hidden) +
        LinearBytes(hidden, config_.ffn_dim);
    const bool own_output =
        !config_.tied_embeddings || weight_type_ != DType::kBF16;
    return Padded(2 * config_.vocab_size * hidden) + Padded(4 * hidden) +
           config_.num_layers * layer +
           (own_output ? LinearBytes(config_.vocab_size, hidden) : 0);
  }

  // fp32 rows on their way to FP8.
  int64_t ScratchRows(int64_t cols) const {
    return std::max<int64_t>(1, kScratchElements / cols);
  }
  int64_t ScratchBytes() const {
    const int64_t widest =
        std::max({config_.hidden_dim, config_.q_dim(), config_.ffn_dim});
    return 4 * std::max(kScratchElements, widest);
  }

  template <class T>
  T* Take(int64_t count) {
    T* data = reinterpret_cast<T*>(next_);
    next_ += Padded(count * static_cast<int64_t>(sizeof(T)));
    return data;
  }

  absl::StatusOr<ConstMatrixView> ReadBf16(const CheckpointTensor& tensor) {
    const MatrixView view = Matrix(Take<BF16>(tensor.rows() * tensor.cols()),
                                   tensor.rows(), tensor.cols());
    LAMINA_RETURN_IF_ERROR(ReadRows(tensor, 0, view, stream_));
    return ConstMatrixView(view);
  }

  absl::StatusOr<ConstVectorView> ReadNorm(const std::string& name) {
    LAMINA_ASSIGN_OR_RETURN(const CheckpointTensor* tensor,
                            checkpoint_.Tensor(name));
    float* data = Take<float>(config_.hidden_dim);
    LAMINA_RETURN_IF_ERROR(
        ReadRows(*tensor, 0, Matrix(data, 1, config_.hidden_dim), stream_));
    return ConstVectorView(Vector(data, config_.hidden_dim));
  }

  absl::StatusOr<Projection> Find(int64_t layer,
                                  const std::vector<const char*>& suffixes) {
    Projection projection;
    for (const char* suffix : suffixes) {
      LAMINA_ASSIGN_OR_RETURN(const CheckpointTensor* tensor,
                              checkpoint_.Tensor(LayerTensor(layer, suffix)));
      projection.parts.push_back(tensor);
      projection.rows += tensor->rows();
      projection.cols = tensor->cols();
    }
    return projection;
  }

  absl::StatusOr<LinearWeights> ReadLinear(const Projection& projection) {
    const int64_t rows = projection.rows;
    const int64_t cols = projection.cols;
    LinearWeights linear;
    if (weight_type_ == DType::kBF16) {
      BF16* data = Take<BF16>(rows * cols);
      linear.w = Matrix(static_cast<const BF16*>(data), rows, cols);
      for (const CheckpointTensor* part : projection.parts) {
        LAMINA_RETURN_IF_ERROR(
            ReadRows(*part, 0, Matrix(data, part->rows(), cols), stream_));
        data += part->rows() * cols;
      }
      return linear;
    }
    F8E4M3Fn* codes = Take<F8E4M3Fn>(rows * cols);
    float* scales = Take<float>(rows);
    float* input_scale = Take<float>(1);
    linear.w = Matrix(static_cast<const F8E4M3Fn*>(codes), rows, cols);
    linear.w_scales = PerRow(static_cast<const float*>(scales));
    *input_scale = 0;
    for (const CheckpointTensor* part : projection.parts) {
      LAMINA_RETURN_IF_ERROR(ReadFp8(*part, codes, scales));
      codes += part->rows() * cols;
      scales += part->rows();
      // One input feeds all parts: the widest of their ranges.
      if (part->input_scale) {
        *input_scale = std::max(*input_scale, *part->input_scale);
      }
    }
    if (static_inputs_ && *input_scale > 0) linear.input_scale = input_scale;
    return linear;
  }

  // FP8 codes with a scale a row: the file's own, or made here.
  absl::Status ReadFp8(const CheckpointTensor& tensor, F8E4M3Fn* codes,
                       float* scales) {
    const int64_t cols = tensor.cols();
    const bool by_row =
        tensor.scales.granularity == ScaleGranularity::kPerRow ||
        tensor.scales.granularity == ScaleGranularity::kPerTensor;
    if (tensor.type == StorageType::kF8E4M3 && tensor.scales.has_value() &&
        by_row) {
      std::memcpy(codes, tensor.data, static_cast<size_t>(tensor.bytes));
      const float* stored = static_cast<const float*>(tensor.scales.data);
      for (int64_t row = 0; row < tensor.rows(); ++row) {
        scales[row] = stored[tensor.scales.Index(row, 0)];
      }
      return absl::OkStatus();
    }
    const int64_t step = ScratchRows(cols);
    for (int64_t row = 0; row < tensor.rows(); row += step) {
      const int64_t rows = std::min(step, tensor.rows() - row);
      const MatrixView values = Matrix(scratch_, rows, cols);
      LAMINA_RETURN_IF_ERROR(ReadRows(tensor, row, values, stream_));
      QuantizedOutput out;
      out.codes = Matrix(codes + row * cols, rows, cols);
      out.scales = PerRow(scales + row);
      out.dynamic = true;
      LAMINA_RETURN_IF_ERROR(Quantize({.x = values, .out = out}, stream_));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<DecoderBlockWeights> ReadLayer(int64_t layer) {
    DecoderBlockWeights weights;
    LAMINA_ASSIGN_OR_RETURN(weights.attention_norm,
                            ReadNorm(LayerTensor(layer, "input_layernorm")));
    LAMINA_ASSIGN_OR_RETURN(
        weights.ffn_norm,
        ReadNorm(LayerTensor(layer, "post_attention_layernorm")));
    const struct {
      LinearWeights* linear;
      std::vector<const char*> parts;
    } projections[] = {
        {&weights.qkv,
         {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"}},
        {&weights.output, {"self_attn.o_proj"}},
        {&weights.gate_up, {"mlp.gate_proj", "mlp.up_proj"}},
        {&weights.down, {"mlp.down_proj"}}};
    for (const auto& [linear, parts] : projections) {
      LAMINA_ASSIGN_OR_RETURN(const Projection projection, Find(layer, parts));
      LAMINA_ASSIGN_OR_RETURN(*linear, ReadLinear(projection));
    }
    return weights;
  }

  static constexpr int64_t kScratchElements = int64_t{4} << 20;

  const Checkpoint& checkpoint_;
  const ModelConfig& config_;
  const DType weight_type_;
  const bool static_inputs_;
  const std::function<void(double)>& progress_;
  const Stream stream_;
  float* scratch_ = nullptr;
  uint8_t* next_ = nullptr;
};

absl::StatusOr<Transformer> Transformer::Load(const Checkpoint& checkpoint,
                                              const TransformerOptions& options,
                                              Stream stream) {
  Transformer model;
  model.config_ = checkpoint.config();
  const ModelConfig& config = model.config_;
  const CheckpointQuantization& quantization = checkpoint.quantization();
  const bool fp8_file = !quantization.method.empty();
  const DType weight_type =
      options.weight_type.value_or(fp8_file ? DType::kF8E4M3Fn : DType::kBF16);
  if (weight_type != DType::kBF16 && weight_type != DType::kF8E4M3Fn) {
    return InvalidArgument(kOp, "weight_type", std::string(Name(weight_type)),
                           "bf16 or f8e4m3fn");
  }
  InputQuantization inputs = InputQuantization::kNone;
  if (fp8_file && weight_type == DType::kF8E4M3Fn &&
      options.honour_input_quantization) {
    if (quantization.activations == ActivationScheme::kStatic) {
      inputs = InputQuantization::kStatic;
    } else if (quantization.activations == ActivationScheme::kDynamic) {
      inputs = InputQuantization::kPerRow;
    }
  }
  model.max_positions_ =
      options.max_positions > 0 ? options.max_positions : config.max_positions;
  if (model.max_positions_ > config.max_positions) {
    return InvalidArgument(
        kOp, "max_positions", model.max_positions_,
        absl::StrCat("<= ", config.max_positions, " (the model's context)"));
  }
  model.max_tokens_ = options.max_tokens;
  model.max_logits_ = std::min(options.max_logits, options.max_tokens);

  LAMINA_ASSIGN_OR_RETURN(
      model.block_, DecoderBlock::Plan({.hidden_dim = config.hidden_dim,
                                        .ffn_dim = config.ffn_dim,
                                        .heads = config.num_heads,
                                        .kv_heads = config.num_kv_heads,
                                        .head_dim = config.head_dim,
                                        .epsilon = config.epsilon,
                                        .gate = {.kind = config.activation},
                                        .rope_pairing = config.rope_pairing,
                                        .weight_type = weight_type,
                                        .kv_type = options.kv_type,
                                        .input_quantization = inputs,
                                        .max_tokens = options.max_tokens,
                                        .max_positions = model.max_positions_,
                                        .num_threads = stream.num_threads()},
                                       GetDeviceInfo(stream.device())));
  LAMINA_RETURN_IF_ERROR(Loader(checkpoint, weight_type,
                                inputs == InputQuantization::kStatic,
                                options.progress, stream)
                             .Load(model));
  LAMINA_RETURN_IF_ERROR(model.AllocateState(options, stream));
  return model;
}

absl::Status Transformer::AllocateState(const TransformerOptions& options,
                                        Stream stream) {
  const Device device = stream.device();
  // Caches.
  cache_view_ =
      DenseKvCache(nullptr, nullptr, options.kv_type, options.sequences,
                   max_positions_, config_.num_kv_heads, config_.head_dim);
  const int64_t half =
      RoundUp(BytesFor(options.kv_type,
                       options.sequences * max_positions_ * config_.kv_dim()),
              kAlignment);
  cache_layer_bytes_ = 2 * half;
  memory_.kv = config_.num_layers * cache_layer_bytes_;
  const int64_t memory = GetDeviceInfo(device).memory_bytes;
  if (memory > 0 && memory_.kv + memory_.weights > memory) {
    return absl::ResourceExhaustedError(
        absl::StrCat("weights and KV cache need ", memory_.kv + memory_.weights,
                     " bytes, the device has ", memory));
  }
  LAMINA_ASSIGN_OR_RETURN(cache_, Buffer::Allocate(device, memory_.kv));

  // Rotary table.
  const int64_t rotary = config_.rope.rotary_dim;
  LAMINA_ASSIGN_OR_RETURN(
      rope_table_, Buffer::Allocate(device, 4 * max_positions_ * rotary));
  const MatrixView table =
      Matrix(rope_table_.as<float>(), max_positions_, rotary);
  LAMINA_RETURN_IF_ERROR(FillRopeTable(config_.rope, table));
  rope_table_view_ = table;

  // Hidden states and workspaces.
  const DType type = block_->config().activation_type;
  int64_t end = 0;
  const auto reserve = [&end](int64_t& offset, int64_t bytes) {
    offset = end;
    end += RoundUp(bytes, kAlignment);
  };
  const int64_t hidden_bytes = BytesFor(type, max_tokens_ * config_.hidden_dim);
  reserve(residual_offset_, hidden_bytes);
  reserve(delta_offset_, hidden_bytes);
  reserve(normed_offset_, BytesFor(type, max_logits_ * config_.hidden_dim));
  reserve(block_workspace_offset_, block_->workspace_bytes());
  LAMINA_ASSIGN_OR_RETURN(
      output_workspace_bytes_,
      SkinnyGemmWorkspaceBytes({.m = max_logits_,
                                .n = config_.vocab_size,
                                .k = config_.hidden_dim,
                                .x_type = type,
                                .w_type = output_.w.dtype,
                                .y_type = DType::kF32},
                               GetDeviceInfo(device), stream.num_threads()));
  reserve(output_workspace_offset_, output_workspace_bytes_);
  LAMINA_ASSIGN_OR_RETURN(state_, Buffer::Allocate(device, end));
  memory_.workspace = end + rope_table_.bytes();
  return absl::OkStatus();
}

KvCacheView Transformer::layer_cache(int64_t index) const {
  KvCacheView cache = cache_view_;
  uint8_t* base = cache_.as<uint8_t>() + index * cache_layer_bytes_;
  cache.k = base;
  cache.v = base + cache_layer_bytes_ / 2;
  return cache;
}

int64_t Transformer::DecodeBytes(int64_t tokens, int64_t context) const {
  int64_t bytes = 0;
  for (const int64_t stage : block_->StageBytes(tokens, context)) {
    bytes += stage;
  }
  return config_.num_layers * bytes +
         BytesFor(output_.w.dtype, config_.vocab_size * config_.hidden_dim) +
         4 * tokens * config_.vocab_size;
}

absl::Status Transformer::CheckForward(const ForwardArgs& args) const {
  const int64_t tokens = static_cast<int64_t>(args.tokens.size());
  if (tokens > max_tokens_) {
    return InvalidArgument(kOp, "tokens", tokens,
                           absl::StrCat("<= ", max_tokens_, " (max_tokens)"));
  }
  if (args.positions.size() != args.tokens.size()) {
    return InvalidArgument(kOp, "positions",
                           static_cast<int64_t>(args.positions.size()),
                           absl::StrCat(tokens, " (as tokens)"));
  }
  if (!args.sequence_ids.empty() &&
      args.sequence_ids.size() != args.tokens.size()) {
    return InvalidArgument(kOp, "sequence_ids",
                           static_cast<int64_t>(args.sequence_ids.size()),
                           absl::StrCat("none or ", tokens, " (as tokens)"));
  }
  for (const int32_t token : args.tokens) {
    if (token < 0 || token >= config_.vocab_size) {
      return InvalidArgument(kOp, "tokens", int64_t{token},
                             absl::StrCat("in [0, ", config_.vocab_size, ")"));
    }
  }
  for (const int32_t position : args.positions) {
    if (position < 0 || position >= max_positions_) {
      return InvalidArgument(kOp, "positions", int64_t{position},
                             absl::StrCat("in [0, ", max_positions_, ")"));
    }
  }
  const int64_t rows = args.logits.rows;
  if (rows > std::min(tokens, max_logits_)) {
    return InvalidArgument(kOp, "logits.rows", rows,
                           absl::StrCat("<= ", std::min(tokens, max_logits_),
                                        " (tokens, max_logits)"));
  }
  if (!args.events.empty() &&
      static_cast<int64_t>(args.events.size()) != num_events()) {
    return InvalidArgument(kOp, "events",
                           static_cast<int64_t>(args.events.size()),
                           absl::StrCat("none or ", num_events()));
  }
  if (rows == 0) return absl::OkStatus();
  LAMINA_RETURN_IF_ERROR(
      CheckDType(kOp, "logits", args.logits.dtype, DType::kF32));
  return CheckShape(kOp, "logits", args.logits, 1, rows, config_.vocab_size);
}

void Transformer::Embed(absl::Span<const int32_t> tokens, MatrixView out,
                        const Stream& stream) const {
  ParallelFor(stream, out.rows, 16, [&](int64_t begin, int64_t end, int) {
    for (int64_t t = begin; t < end; ++t) {
      const BF16* row = embedding_.Row<BF16>(tokens[static_cast<size_t>(t)]);
      float* to = out.Row<float>(t);
      for (int64_t i = 0; i < out.cols; ++i) to[i] = ToFloat(row[i]);
    }
  });
}

absl::Status Transformer::Forward(const ForwardArgs& args, Stream stream) {
  LAMINA_RETURN_IF_ERROR(CheckForward(args));
  const int64_t tokens = static_cast<int64_t>(args.tokens.size());
  if (tokens == 0) return absl::OkStatus();
  uint8_t* const state = state_.as<uint8_t>();
  const int64_t hidden = config_.hidden_dim;
  const MatrixView residual = Matrix(
      reinterpret_cast<float*>(state + residual_offset_), tokens, hidden);
  const MatrixView delta =
      Matrix(reinterpret_cast<float*>(state + delta_offset_), tokens, hidden);
  Embed(args.tokens, residual, stream);

  std::vector<int32_t> zeros;
  const int32_t* sequence_ids = args.sequence_ids.data();
  if (args.sequence_ids.empty()) {
    zeros.assign(static_cast<size_t>(tokens), 0);
    sequence_ids = zeros.data();
  }
  const int64_t max_position =
      *std::max_element(args.positions.begin(), args.positions.end());
  for (int64_t layer = 0; layer < config_.num_layers; ++layer) {
    DecoderBlockArgs block_args = {
        .weights = &layers_[static_cast<size_t>(layer)],
        .cache = layer_cache(layer),
        .rope_table = rope_table_view_,
        .sequence_ids = sequence_ids,
        .positions = args.positions.data(),
        .max_position = max_position,
        .residual = residual,
        .delta = delta,
        .delta_is_zero = layer == 0,
        .workspace = state + block_workspace_offset_,
        .workspace_bytes = block_->workspace_bytes()};
    if (!args.events.empty()) {
      constexpr size_t kStep = kNumBlockStages + 1;
      block_args.events =
          args.events.subspan(static_cast<size_t>(layer) * kStep, kStep);
    }
    if (args.observe_input) {
      block_args.observe_input = [&](BlockStage stage,
                                     const ConstMatrixView& input) {
        args.observe_input(layer, stage, input);
      };
    }
    LAMINA_RETURN_IF_ERROR(block_->Decode(block_args, stream));
  }

  Event* const events =
      args.events.empty() ? nullptr : &args.events[args.events.size() - 2];
  if (events != nullptr) LAMINA_RETURN_IF_ERROR(events[0].Record(stream));
  const int64_t rows = args.logits.rows;
  if (rows > 0) {
    const auto last = [&](MatrixView view) {
      view.data = view.Row<float>(tokens - rows);
      view.rows = rows;
      return view;
    };
    const MatrixView normed =
        Matrix(reinterpret_cast<float*>(state + normed_offset_), rows, hidden);
    LAMINA_RETURN_IF_ERROR(AddRmsNorm({.x = last(delta),
                                       .residual = last(residual),
                                       .residual_out = last(residual),
                                       .weight = final_norm_,
                                       .epsilon = config_.epsilon,
                                       .y = normed},
                                      stream));
    LAMINA_RETURN_IF_ERROR(
        SkinnyGemm({.x = normed,
                    .w = output_.w,
                    .w_scales = output_.w_scales,
                    .y = args.logits,
                    .workspace = state + output_workspace_offset_,
                    .workspace_bytes = output_workspace_bytes_},
                   stream));
  }
  if (events != nullptr) LAMINA_RETURN_IF_ERROR(events[1].Record(stream));
  return absl::OkStatus();
}

}  // namespace lamina
