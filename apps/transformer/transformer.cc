#include "lamina/transformer/transformer.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lamina/attention/rope.h"
#include "lamina/core/copy.h"
#include "lamina/core/math.h"
#include "lamina/core/status.h"
#include "lamina/gemm/skinny_gemm.h"
#include "lamina/norm/add_rms_norm.h"
#include "lamina/norm/rms_norm.h"
#include "lamina/tokens/embed_rows.h"

namespace lamina {

using transformer_internal::ModelWeights;
using transformer_internal::WeightsPlan;

namespace {

constexpr char kOp[] = "Transformer";
constexpr int64_t kAlignment = 256;
// Of a GPU's free memory, for kernels and graphs that are loaded later.
constexpr int64_t kGpuReserve = int64_t{256} << 20;

InputQuantization InputsOf(const CheckpointQuantization& quantization) {
  switch (quantization.activations) {
    case ActivationScheme::kStatic:
      return InputQuantization::kStatic;
    case ActivationScheme::kDynamic:
      return InputQuantization::kPerRow;
    case ActivationScheme::kNone:
      break;
  }
  return InputQuantization::kNone;
}

// The last `rows` rows.
MatrixView LastRows(MatrixView view, int64_t rows) {
  view.data = static_cast<char*>(view.data) +
              BytesFor(view.dtype, (view.rows - rows) * view.row_stride);
  view.rows = rows;
  return view;
}

}  // namespace

absl::StatusOr<Transformer> Transformer::Load(const Checkpoint& checkpoint,
                                              const TransformerOptions& options,
                                              Stream stream) {
  const CheckpointQuantization& quantization = checkpoint.quantization();
  const bool fp8_file = !quantization.method.empty();
  const DType weight_type =
      options.weight_type.value_or(fp8_file ? DType::kF8E4M3Fn : DType::kBF16);
  InputQuantization inputs = InputQuantization::kNone;
  if (fp8_file && weight_type == DType::kF8E4M3Fn &&
      options.honour_input_quantization) {
    inputs = InputsOf(quantization);
  }
  return Make(
      checkpoint.config(), options, inputs, weight_type,
      [&](const WeightsPlan& plan) {
        return transformer_internal::LoadWeights(plan, checkpoint, stream);
      },
      stream);
}

absl::StatusOr<Transformer> Transformer::Random(
    const ModelConfig& config, const TransformerOptions& options,
    InputQuantization inputs, uint64_t seed, Stream stream) {
  return Make(
      config, options, inputs, options.weight_type.value_or(DType::kBF16),
      [&](const WeightsPlan& plan) {
        return transformer_internal::RandomWeights(plan, seed, stream);
      },
      stream);
}

absl::StatusOr<Transformer> Transformer::Make(
    const ModelConfig& config, const TransformerOptions& options,
    InputQuantization inputs, DType weight_type,
    const std::function<absl::StatusOr<ModelWeights>(const WeightsPlan&)>&
        make_weights,
    Stream stream) {
  Transformer model;
  model.config_ = config;
  if (weight_type != DType::kBF16 && weight_type != DType::kF8E4M3Fn) {
    return InvalidArgument(kOp, "weight_type", std::string(Name(weight_type)),
                           "bf16 or f8e4m3fn");
  }
  model.max_positions_ =
      options.max_positions > 0 ? options.max_positions : config.max_positions;
  if (model.max_positions_ > config.max_positions) {
    return InvalidArgument(
        kOp, "max_positions", model.max_positions_,
        absl::StrCat("<= ", config.max_positions, " (the model's context)"));
  }
  model.prefill_ = options.prefill;
  model.tuning_ = options.tuning;
  model.max_tokens_ = options.max_tokens;
  model.max_logits_ = std::min(options.max_logits, options.max_tokens);
  const bool on_gpu = stream.device().backend != Backend::kCpu;
  LAMINA_ASSIGN_OR_RETURN(
      model.block_,
      DecoderBlock::Plan({.hidden_dim = config.hidden_dim,
                          .ffn_dim = config.ffn_dim,
                          .heads = config.num_heads,
                          .kv_heads = config.num_kv_heads,
                          .head_dim = config.head_dim,
                          .epsilon = config.epsilon,
                          .gate = {.kind = config.activation},
                          .rope_pairing = config.rope_pairing,
                          .activation_type = options.activation_type.value_or(
                              on_gpu ? DType::kBF16 : DType::kF32),
                          .weight_type = weight_type,
                          .kv_type = options.kv_type,
                          .input_quantization = inputs,
                          .fusion = options.fusion,
                          .max_tokens = options.max_tokens,
                          .max_positions = model.max_positions_,
                          .num_threads = on_gpu ? 0 : stream.num_threads(),
                          .prefill = options.prefill != nullptr},
                         GetDeviceInfo(stream.device())));
  LAMINA_RETURN_IF_ERROR(model.PlanState(options, weight_type, stream));
  const WeightsPlan plan{.config = config,
                         .type = weight_type,
                         .norm_type = model.block_->config().activation_type,
                         .static_inputs = inputs == InputQuantization::kStatic,
                         .progress = options.progress};
  model.memory_.weights = transformer_internal::WeightBytes(plan);
  LAMINA_RETURN_IF_ERROR(model.CheckMemory(stream.device()));
  LAMINA_ASSIGN_OR_RETURN(model.weights_, make_weights(plan));
  LAMINA_RETURN_IF_ERROR(model.AllocateState(stream));
  return model;
}

absl::Status Transformer::PlanState(const TransformerOptions& options,
                                    DType weight_type, const Stream& stream) {
  cache_view_ =
      DenseKvCache(nullptr, nullptr, options.kv_type, options.sequences,
                   max_positions_, config_.num_kv_heads, config_.head_dim);
  const int64_t half =
      RoundUp(BytesFor(options.kv_type,
                       options.sequences * max_positions_ * config_.kv_dim()),
              kAlignment);
  cache_layer_bytes_ = 2 * half;
  memory_.kv = config_.num_layers * cache_layer_bytes_;

  const DType type = block_->config().activation_type;
  LAMINA_ASSIGN_OR_RETURN(
      output_workspace_bytes_,
      SkinnyGemmWorkspaceBytes({.m = max_logits_,
                                .n = config_.vocab_size,
                                .k = config_.hidden_dim,
                                .x_type = type,
                                .w_type = weight_type,
                                .y_type = DType::kF32},
                               GetDeviceInfo(stream.device()),
                               block_->config().num_threads));
  const auto reserve = [&](int64_t& offset, int64_t bytes) {
    offset = state_bytes_;
    state_bytes_ += RoundUp(bytes, kAlignment);
  };
  const int64_t hidden_bytes = BytesFor(type, max_tokens_ * config_.hidden_dim);
  reserve(residual_offset_, hidden_bytes);
  reserve(delta_offset_, hidden_bytes);
  reserve(normed_offset_, BytesFor(type, max_logits_ * config_.hidden_dim));
  reserve(block_workspace_offset_, block_->workspace_bytes());
  reserve(output_workspace_offset_, output_workspace_bytes_);
  reserve(ids_offset_, 8 * max_tokens_);
  reserve(sequence_ids_offset_, 4 * max_tokens_);
  reserve(positions_offset_, 4 * max_tokens_);
  memory_.workspace =
      state_bytes_ + 4 * max_positions_ * config_.rope.rotary_dim;
  return absl::OkStatus();
}

absl::Status Transformer::CheckMemory(Device device) const {
  const bool on_gpu = device.backend != Backend::kCpu;
  const int64_t free =
      FreeMemoryBytes(device) - (on_gpu ? kGpuReserve : int64_t{0});
  // On the CPU 0 is: not known.
  if (memory_.total() <= free || (!on_gpu && free <= 0)) {
    return absl::OkStatus();
  }
  return absl::ResourceExhaustedError(absl::StrCat(
      "too little memory: the model needs ", memory_.total(),
      " bytes (weights ", memory_.weights, ", KV cache ", memory_.kv,
      ", workspace ", memory_.workspace, "), the device has ",
      std::max<int64_t>(0, free), on_gpu ? " free" : "",
      "; FP8 weights, an FP8 cache, fewer sequences or positions need less"));
}

absl::Status Transformer::AllocateState(const Stream& stream) {
  const Device device = stream.device();
  LAMINA_ASSIGN_OR_RETURN(cache_, Buffer::Allocate(device, memory_.kv));
  LAMINA_ASSIGN_OR_RETURN(state_, Buffer::Allocate(device, state_bytes_));

  // The rotary table is made on the host.
  const int64_t rotary = config_.rope.rotary_dim;
  const int64_t bytes = 4 * max_positions_ * rotary;
  LAMINA_ASSIGN_OR_RETURN(Buffer table, Buffer::Allocate(Device{}, bytes));
  LAMINA_RETURN_IF_ERROR(FillRopeTable(
      config_.rope, Matrix(table.as<float>(), max_positions_, rotary)));
  if (device == Device{}) {
    rope_table_ = std::move(table);
  } else {
    LAMINA_ASSIGN_OR_RETURN(rope_table_, Buffer::Allocate(device, bytes));
    LAMINA_RETURN_IF_ERROR(
        Copy(rope_table_.data(), table.data(), bytes, stream));
  }
  rope_table_view_ = Matrix(rope_table_.as<float>(), max_positions_, rotary);
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
         BytesFor(weights_.output.w.dtype,
                  config_.vocab_size * config_.hidden_dim) +
         4 * tokens * config_.vocab_size;
}

absl::Status Transformer::CheckSizes(int64_t tokens, const MatrixView& logits,
                                     absl::Span<Event> events) const {
  if (tokens > max_tokens_) {
    return InvalidArgument(kOp, "tokens", tokens,
                           absl::StrCat("<= ", max_tokens_, " (max_tokens)"));
  }
  const int64_t rows = logits.rows;
  if (rows > std::min(tokens, max_logits_)) {
    return InvalidArgument(kOp, "logits.rows", rows,
                           absl::StrCat("<= ", std::min(tokens, max_logits_),
                                        " (tokens, max_logits)"));
  }
  if (!events.empty() && static_cast<int64_t>(events.size()) != num_events()) {
    return InvalidArgument(kOp, "events", static_cast<int64_t>(events.size()),
                           absl::StrCat("none or ", num_events()));
  }
  if (rows == 0) return absl::OkStatus();
  LAMINA_RETURN_IF_ERROR(CheckDType(kOp, "logits", logits.dtype, DType::kF32));
  return CheckShape(kOp, "logits", logits, 1, rows, config_.vocab_size);
}

absl::Status Transformer::CheckForward(const ForwardArgs& args) const {
  const int64_t tokens = static_cast<int64_t>(args.tokens.size());
  LAMINA_RETURN_IF_ERROR(CheckSizes(tokens, args.logits, args.events));
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
  const auto check = [](const char* name, absl::Span<const int32_t> values,
                        int64_t end) -> absl::Status {
    for (const int32_t value : values) {
      if (value < 0 || value >= end) {
        return InvalidArgument(kOp, name, int64_t{value},
                               absl::StrCat("in [0, ", end, ")"));
      }
    }
    return absl::OkStatus();
  };
  LAMINA_RETURN_IF_ERROR(check("tokens", args.tokens, config_.vocab_size));
  LAMINA_RETURN_IF_ERROR(check("positions", args.positions, max_positions_));
  return check("sequence_ids", args.sequence_ids, sequences());
}

absl::Status Transformer::Forward(const ForwardArgs& args, Stream stream) {
  LAMINA_RETURN_IF_ERROR(CheckForward(args));
  const int64_t tokens = static_cast<int64_t>(args.tokens.size());
  if (tokens == 0) return absl::OkStatus();
  uint8_t* const state = state_.as<uint8_t>();
  const std::vector<int64_t> ids(args.tokens.begin(), args.tokens.end());
  std::vector<int32_t> sequence_ids(args.sequence_ids.begin(),
                                    args.sequence_ids.end());
  sequence_ids.resize(static_cast<size_t>(tokens), 0);
  LAMINA_RETURN_IF_ERROR(
      EnqueueCopy(state + ids_offset_, ids.data(), 8 * tokens, stream));
  LAMINA_RETURN_IF_ERROR(EnqueueCopy(state + sequence_ids_offset_,
                                     sequence_ids.data(), 4 * tokens, stream));
  LAMINA_RETURN_IF_ERROR(Copy(state + positions_offset_, args.positions.data(),
                              4 * tokens, stream));
  return ForwardOnDevice(
      {.tokens = tokens,
       .ids = reinterpret_cast<const int64_t*>(state + ids_offset_),
       .sequence_ids =
           reinterpret_cast<const int32_t*>(state + sequence_ids_offset_),
       .positions = reinterpret_cast<const int32_t*>(state + positions_offset_),
       .max_position =
           *std::max_element(args.positions.begin(), args.positions.end()),
       .logits = args.logits,
       .events = args.events,
       .observe_input = args.observe_input},
      stream);
}

MatrixView Transformer::State(int64_t offset, int64_t rows) const {
  return {.data = state_.as<uint8_t>() + offset,
          .dtype = block_->config().activation_type,
          .rows = rows,
          .cols = config_.hidden_dim,
          .row_stride = config_.hidden_dim};
}

absl::Status Transformer::ForwardOnDevice(const ForwardOnDeviceArgs& args,
                                          Stream stream) {
  LAMINA_RETURN_IF_ERROR(CheckSizes(args.tokens, args.logits, args.events));
  const MatrixView residual = State(residual_offset_, args.tokens);
  const MatrixView delta = State(delta_offset_, args.tokens);
  LAMINA_RETURN_IF_ERROR(EmbedRows({.table = weights_.embedding,
                                    .ids = Vector(args.ids, args.tokens),
                                    .y = residual},
                                   stream));
  LAMINA_RETURN_IF_ERROR(args.blocks != nullptr
                             ? args.blocks->Run(stream)
                             : RunBlocks(args, residual, delta, stream));
  Event* const events =
      args.events.empty() ? nullptr : &args.events[args.events.size() - 2];
  if (events != nullptr) LAMINA_RETURN_IF_ERROR(events[0].Record(stream));
  const int64_t rows = args.logits.rows;
  if (rows > 0) {
    LAMINA_RETURN_IF_ERROR(ComputeLogits(
        LastRows(residual, rows), LastRows(delta, rows), args.logits, stream));
  }
  if (events != nullptr) LAMINA_RETURN_IF_ERROR(events[1].Record(stream));
  return absl::OkStatus();
}

absl::StatusOr<PersistentChain> Transformer::MakeChain(
    const ForwardOnDeviceArgs& args, Stream stream) {
  LAMINA_RETURN_IF_ERROR(CheckSizes(args.tokens, args.logits, args.events));
  return PersistentChain::Make(stream, [&](const Stream& recording) {
    return RunBlocks(args, State(residual_offset_, args.tokens),
                     State(delta_offset_, args.tokens), recording);
  });
}

absl::Status Transformer::RunBlocks(const ForwardOnDeviceArgs& args,
                                    MatrixView residual, MatrixView delta,
                                    const Stream& stream) {
  for (int64_t layer = 0; layer < config_.num_layers; ++layer) {
    DecoderBlockArgs block_args = {
        .weights = &weights_.layers[static_cast<size_t>(layer)],
        .cache = layer_cache(layer),
        .rope_table = rope_table_view_,
        .sequence_ids = args.sequence_ids,
        .positions = args.positions,
        .max_position = args.max_position,
        .residual = residual,
        .delta = delta,
        .delta_is_zero = layer == 0,
        .workspace = state_.as<uint8_t>() + block_workspace_offset_,
        .workspace_bytes = block_->workspace_bytes(),
        .prefill = prefill_,
        .tuning = tuning_};
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
  return absl::OkStatus();
}

absl::Status Transformer::ComputeLogits(MatrixView residual, MatrixView delta,
                                        MatrixView logits,
                                        const Stream& stream) {
  const MatrixView normed = State(normed_offset_, residual.rows);
  if (block_->config().fusion.residual) {
    LAMINA_RETURN_IF_ERROR(RmsNorm({.x = residual,
                                    .weight = weights_.final_norm,
                                    .epsilon = config_.epsilon,
                                    .y = normed},
                                   stream));
  } else {
    LAMINA_RETURN_IF_ERROR(AddRmsNorm({.x = delta,
                                       .residual = residual,
                                       .residual_out = residual,
                                       .weight = weights_.final_norm,
                                       .epsilon = config_.epsilon,
                                       .y = normed},
                                      stream));
  }
  return SkinnyGemm(
      {.x = normed,
       .w = weights_.output.w,
       .w_scales = weights_.output.w_scales,
       .y = logits,
       .tuning = tuning_,
       .workspace = state_.as<uint8_t>() + output_workspace_offset_,
       .workspace_bytes = output_workspace_bytes_},
      stream);
}

}  // namespace lamina
