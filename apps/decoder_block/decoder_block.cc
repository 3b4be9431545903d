#include "lamina/decoder_block/decoder_block.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "lamina/activation/gated_activation.h"
#include "lamina/attention/decode_attention.h"
#include "lamina/attention/rope_append.h"
#include "lamina/core/math.h"
#include "lamina/core/profile_range.h"
#include "lamina/core/status.h"
#include "lamina/gemm/skinny_gemm.h"
#include "lamina/norm/add_rms_norm.h"
#include "lamina/norm/rms_norm.h"
#include "lamina/quant/quantize.h"

namespace lamina {
namespace {

constexpr char kOp[] = "DecoderBlock";
constexpr int64_t kAlignment = 256;

absl::Status CheckConfig(const DecoderBlockConfig& config) {
  const struct {
    const char* name;
    int64_t value;
  } sizes[] = {{"hidden_dim", config.hidden_dim},
               {"ffn_dim", config.ffn_dim},
               {"heads", config.heads},
               {"kv_heads", config.kv_heads},
               {"head_dim", config.head_dim},
               {"max_tokens", config.max_tokens},
               {"max_positions", config.max_positions}};
  for (const auto& [name, value] : sizes) {
    // Below 2^20 every product of three sizes fits 64 bits.
    if (value <= 0 || value >= int64_t{1} << 20) {
      return InvalidArgument(kOp, name, value, "in [1, 2^20)");
    }
  }
  if (config.heads % config.kv_heads != 0) {
    return InvalidArgument(
        kOp, "heads", config.heads,
        absl::StrCat("a multiple of kv_heads (", config.kv_heads, ")"));
  }
  if (config.activation_type != DType::kF32 &&
      config.activation_type != DType::kF16 &&
      config.activation_type != DType::kBF16) {
    return InvalidArgument(kOp, "activation_type",
                           std::string(Name(config.activation_type)),
                           "f32, f16 or bf16");
  }
  return absl::OkStatus();
}

absl::Status CheckLinear(const char* argument, const LinearWeights& linear,
                         const DecoderBlockConfig& config, int64_t out,
                         int64_t in) {
  LAMINA_RETURN_IF_ERROR(CheckShape(kOp, argument, linear.w, 1, out, in));
  LAMINA_RETURN_IF_ERROR(
      CheckDType(kOp, argument, linear.w.dtype, config.weight_type));
  if (config.input_quantization == InputQuantization::kStatic &&
      linear.input_scale == nullptr) {
    return InvalidArgument(kOp, absl::StrCat(argument, ".input_scale").c_str(),
                           std::string("null"), "a scale (static inputs)");
  }
  return absl::OkStatus();
}

// Says which stage an operator's error comes from.
absl::Status AtStage(BlockStage stage, const absl::Status& status) {
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat(kOp, ": ", Name(stage), ": ",
                                                  status.message()));
}

}  // namespace

const char* Name(BlockStage stage) {
  switch (stage) {
    case BlockStage::kAttentionNorm:
      return "attention_norm";
    case BlockStage::kQkv:
      return "qkv";
    case BlockStage::kRopeAppend:
      return "rope_append";
    case BlockStage::kAttention:
      return "attention";
    case BlockStage::kOutput:
      return "output";
    case BlockStage::kFfnNorm:
      return "ffn_norm";
    case BlockStage::kGateUp:
      return "gate_up";
    case BlockStage::kActivation:
      return "activation";
    case BlockStage::kDown:
      return "down";
  }
  return "invalid";
}

absl::StatusOr<DecoderBlock> DecoderBlock::Plan(
    const DecoderBlockConfig& config, const DeviceInfo& device) {
  LAMINA_RETURN_IF_ERROR(CheckConfig(config));
  DecoderBlock block(config);
  const int64_t tokens = config.max_tokens;
  const bool quantized = config.input_quantization != InputQuantization::kNone;
  const DType type = config.activation_type;

  int64_t end = 0;
  const auto reserve = [&](int64_t& offset, DType element, int64_t cols) {
    offset = end;
    end += RoundUp(BytesFor(element, tokens * cols), kAlignment);
  };
  reserve(block.layout_.normed, type, quantized ? 0 : config.hidden_dim);
  reserve(block.layout_.qkv, type, config.qkv_dim());
  reserve(block.layout_.attention, type, config.q_dim());
  reserve(block.layout_.gate_up, type,
          config.fusion.activation ? 0 : 2 * config.ffn_dim);
  reserve(block.layout_.activated, type, quantized ? 0 : config.ffn_dim);
  reserve(block.layout_.codes, config.input_type,
          quantized
              ? std::max({config.hidden_dim, config.q_dim(), config.ffn_dim})
              : 0);
  reserve(block.layout_.scales, DType::kF32, quantized ? 1 : 0);
  block.layout_.down_codes = block.layout_.codes;
  block.layout_.down_scales = block.layout_.scales;
  if (quantized && config.fusion.activation) {
    reserve(block.layout_.down_codes, config.input_type, config.ffn_dim);
    reserve(block.layout_.down_scales, DType::kF32, 1);
  }

  const struct {
    int64_t n, k;
    bool gated = false;
  } projections[] = {
      {config.qkv_dim(), config.hidden_dim},
      {config.hidden_dim, config.q_dim()},
      {2 * config.ffn_dim, config.hidden_dim, config.fusion.activation},
      {config.hidden_dim, config.ffn_dim}};
  for (const auto& [n, k, gated] : projections) {
    LAMINA_ASSIGN_OR_RETURN(const int64_t bytes,
                            SkinnyGemmWorkspaceBytes(
                                {.m = tokens,
                                 .n = n,
                                 .k = k,
                                 .x_type = quantized ? config.input_type : type,
                                 .w_type = config.weight_type,
                                 .y_type = type,
                                 .gated = gated,
                                 .quantized = gated && quantized,
                                 .prefill = config.prefill},
                                device, config.num_threads));
    block.scratch_bytes_ = std::max(block.scratch_bytes_, bytes);
  }
  LAMINA_ASSIGN_OR_RETURN(
      const int64_t attention_bytes,
      DecodeAttentionWorkspaceBytes({.tokens = tokens,
                                     .heads = config.heads,
                                     .kv_heads = config.kv_heads,
                                     .head_dim = config.head_dim,
                                     .max_position = config.max_positions - 1,
                                     .q_type = type,
                                     .kv_type = config.kv_type},
                                    device, config.num_threads));
  block.scratch_bytes_ = std::max(block.scratch_bytes_, attention_bytes);
  block.layout_.scratch = end;
  block.workspace_bytes_ = end + RoundUp(block.scratch_bytes_, kAlignment);
  return block;
}

// One call's views of the workspace, and its stages.
struct DecoderBlock::Call {
  const DecoderBlock& block;
  const DecoderBlockArgs& args;
  const Stream& stream;
  int64_t tokens;

  const DecoderBlockConfig& config() const { return block.config_; }
  bool quantized() const {
    return config().input_quantization != InputQuantization::kNone;
  }
  uint8_t* Bytes(int64_t offset) const {
    return static_cast<uint8_t*>(args.workspace) + offset;
  }
  MatrixView Activations(int64_t offset, int64_t cols) const {
    return {.data = Bytes(offset),
            .dtype = config().activation_type,
            .rows = tokens,
            .cols = cols,
            .row_stride = cols};
  }
  // Columns [begin, begin + heads * head_dim) of the qkv rows, by head.
  MatrixView QkvHeads(int64_t begin, int64_t heads) const {
    return {.data = Bytes(block.layout_.qkv +
                          BytesFor(config().activation_type, begin)),
            .dtype = config().activation_type,
            .rows = heads,
            .cols = config().head_dim,
            .row_stride = config().head_dim,
            .batch = tokens,
            .batch_stride = config().qkv_dim()};
  }

  // Where the producer of a quantised projection input writes it.
  QuantizedOutput QuantizedInput(const LinearWeights& next,
                                 int64_t cols) const {
    if (!quantized()) return {};
    const bool down = &next == &args.weights->down;
    const Layout& layout = block.layout_;
    QuantizedOutput out;
    out.codes = {.data = Bytes(down ? layout.down_codes : layout.codes),
                 .dtype = config().input_type,
                 .rows = tokens,
                 .cols = cols,
                 .row_stride = cols};
    if (config().input_quantization == InputQuantization::kPerRow) {
      out.dynamic = true;
      out.scales = PerRow(reinterpret_cast<float*>(
          Bytes(down ? layout.down_scales : layout.scales)));
    } else {
      // Static scales are only read.
      out.scales = PerTensor(const_cast<float*>(next.input_scale));
    }
    return out;
  }

  // The projection with its input, still without a place for its output.
  SkinnyGemmArgs Projection(BlockStage stage, const LinearWeights& linear,
                            int64_t input_offset, int64_t cols) const {
    if (args.observe_input && !quantized()) {
      args.observe_input(stage, Activations(input_offset, cols));
    }
    SkinnyGemmArgs gemm = {.x = Activations(input_offset, cols),
                           .w = linear.w,
                           .w_scales = linear.w_scales,
                           .bias = linear.bias,
                           .prefill = config().prefill ? args.prefill : nullptr,
                           .tuning = args.tuning,
                           .workspace = Bytes(block.layout_.scratch),
                           .workspace_bytes = block.scratch_bytes_};
    if (quantized()) {
      const QuantizedOutput input = QuantizedInput(linear, cols);
      gemm.x = input.codes;
      gemm.x_scales = input.scales;
    }
    return gemm;
  }

  absl::Status Qkv() const {
    SkinnyGemmArgs gemm = Projection(BlockStage::kQkv, args.weights->qkv,
                                     block.layout_.normed, config().hidden_dim);
    gemm.y = Activations(block.layout_.qkv, config().qkv_dim());
    return SkinnyGemm(gemm, stream);
  }

  // output and down: what the residual stream gets.
  absl::Status Contribute(BlockStage stage, const LinearWeights& linear,
                          int64_t input_offset, int64_t cols) const {
    SkinnyGemmArgs gemm = Projection(stage, linear, input_offset, cols);
    gemm.y = args.delta;
    if (config().fusion.residual) {
      gemm.y = args.residual;
      gemm.residual = args.residual;
    }
    return SkinnyGemm(gemm, stream);
  }

  absl::Status GateUp() const {
    SkinnyGemmArgs gemm = Projection(BlockStage::kGateUp, args.weights->gate_up,
                                     block.layout_.normed, config().hidden_dim);
    const int64_t ffn = config().ffn_dim;
    if (!config().fusion.activation) {
      gemm.y = Activations(block.layout_.gate_up, 2 * ffn);
      return SkinnyGemm(gemm, stream);
    }
    gemm.gate = config().gate;
    gemm.y.dtype = config().activation_type;
    if (quantized()) {
      gemm.quantized = QuantizedInput(args.weights->down, ffn);
    } else {
      gemm.y = Activations(block.layout_.activated, ffn);
    }
    return SkinnyGemm(gemm, stream);
  }

  // h = norm(residual + delta), the residual updated; of the residual alone
  // where nothing is to be added.
  absl::Status Norm(ConstVectorView weight, bool delta_is_zero,
                    const LinearWeights& next) const {
    const int64_t hidden = config().hidden_dim;
    const MatrixView y =
        quantized() ? MatrixView{} : Activations(block.layout_.normed, hidden);
    const QuantizedOutput codes = QuantizedInput(next, hidden);
    if (delta_is_zero || config().fusion.residual) {
      return RmsNorm({.x = args.residual,
                      .weight = weight,
                      .epsilon = config().epsilon,
                      .y = y,
                      .quantized = codes},
                     stream);
    }
    return AddRmsNorm({.x = args.delta,
                       .residual = args.residual,
                       .residual_out = args.residual,
                       .weight = weight,
                       .epsilon = config().epsilon,
                       .y = y,
                       .quantized = codes},
                      stream);
  }

  absl::Status RopeAndAppend() const {
    const MatrixView q = QkvHeads(0, config().heads);
    const MatrixView k = QkvHeads(config().q_dim(), config().kv_heads);
    const MatrixView v =
        QkvHeads(config().q_dim() + config().kv_dim(), config().kv_heads);
    return RopeAppend({.q = q,
                       .y = q,
                       .k = k,
                       .v = v,
                       .table = args.rope_table,
                       .pairing = config().rope_pairing,
                       .cache = args.cache,
                       .sequence_ids = args.sequence_ids,
                       .positions = args.positions},
                      stream);
  }

  absl::Status Attention() const {
    const MatrixView y = Activations(block.layout_.attention, config().q_dim());
    MatrixView heads = y;
    heads.rows = config().heads;
    heads.cols = heads.row_stride = config().head_dim;
    heads.batch = tokens;
    heads.batch_stride = config().q_dim();
    LAMINA_RETURN_IF_ERROR(
        DecodeAttention({.q = QkvHeads(0, config().heads),
                         .cache = args.cache,
                         .sequence_ids = args.sequence_ids,
                         .positions = args.positions,
                         .max_position = args.max_position,
                         .window = config().window,
                         .y = heads,
                         .workspace = Bytes(block.layout_.scratch),
                         .workspace_bytes = block.scratch_bytes_},
                        stream));
    if (!quantized()) return absl::OkStatus();
    return Quantize(
        {.x = y, .out = QuantizedInput(args.weights->output, config().q_dim())},
        stream);
  }

  absl::Status Activation() const {
    if (config().fusion.activation) return absl::OkStatus();
    const int64_t ffn = config().ffn_dim;
    return GatedActivation(
        {.x = Activations(block.layout_.gate_up, 2 * ffn),
         .gate = config().gate,
         .y = quantized() ? MatrixView{}
                          : Activations(block.layout_.activated, ffn),
         .quantized = QuantizedInput(args.weights->down, ffn)},
        stream);
  }

  absl::Status Run(BlockStage stage) const {
    const DecoderBlockWeights& weights = *args.weights;
    const Layout& layout = block.layout_;
    switch (stage) {
      case BlockStage::kAttentionNorm:
        return Norm(weights.attention_norm, args.delta_is_zero, weights.qkv);
      case BlockStage::kQkv:
        return Qkv();
      case BlockStage::kRopeAppend:
        return RopeAndAppend();
      case BlockStage::kAttention:
        return Attention();
      case BlockStage::kOutput:
        return Contribute(stage, weights.output, layout.attention,
                          config().q_dim());
      case BlockStage::kFfnNorm:
        return Norm(weights.ffn_norm, false, weights.gate_up);
      case BlockStage::kGateUp:
        return GateUp();
      case BlockStage::kActivation:
        return Activation();
      case BlockStage::kDown:
        return Contribute(stage, weights.down, layout.activated,
                          config().ffn_dim);
    }
    return absl::InternalError("DecoderBlock: no such stage");
  }
};

absl::Status DecoderBlock::Decode(const DecoderBlockArgs& args,
                                  const Stream& stream) const {
  const DecoderBlockConfig& config = config_;
  const int64_t tokens = args.residual.rows;
  const int64_t hidden = config.hidden_dim;
  LAMINA_RETURN_IF_ERROR(
      CheckShape(kOp, "residual", args.residual, 1, tokens, hidden));
  LAMINA_RETURN_IF_ERROR(
      CheckDType(kOp, "residual", args.residual.dtype, config.activation_type));
  if (!config.fusion.residual) {
    LAMINA_RETURN_IF_ERROR(
        CheckShape(kOp, "delta", args.delta, 1, tokens, hidden));
    LAMINA_RETURN_IF_ERROR(
        CheckDType(kOp, "delta", args.delta.dtype, config.activation_type));
  }
  if (tokens > config.max_tokens) {
    return InvalidArgument(
        kOp, "residual.rows", tokens,
        absl::StrCat("<= max_tokens (", config.max_tokens, ")"));
  }
  if (args.max_position < 0 || args.max_position >= config.max_positions) {
    return InvalidArgument(
        kOp, "max_position", args.max_position,
        absl::StrCat("in [0, ", config.max_positions, ") (max_positions)"));
  }
  if (config.num_threads > 0 && stream.num_threads() > config.num_threads) {
    return InvalidArgument(
        kOp, "stream.num_threads", stream.num_threads(),
        absl::StrCat("<= ", config.num_threads, " (num_threads of the plan)"));
  }
  if (args.weights == nullptr) {
    return InvalidArgument(kOp, "weights", std::string("null"), "a pointer");
  }
  const DecoderBlockWeights& weights = *args.weights;
  LAMINA_RETURN_IF_ERROR(CheckLinear("weights.qkv", weights.qkv, config,
                                     config.qkv_dim(), hidden));
  LAMINA_RETURN_IF_ERROR(CheckLinear("weights.output", weights.output, config,
                                     hidden, config.q_dim()));
  LAMINA_RETURN_IF_ERROR(CheckLinear("weights.gate_up", weights.gate_up, config,
                                     2 * config.ffn_dim, hidden));
  LAMINA_RETURN_IF_ERROR(CheckLinear("weights.down", weights.down, config,
                                     hidden, config.ffn_dim));
  if (!args.events.empty() && args.events.size() != kNumBlockStages + 1) {
    return InvalidArgument(kOp, "events",
                           static_cast<int64_t>(args.events.size()),
                           absl::StrCat("none or ", kNumBlockStages + 1));
  }
  const int64_t given = args.workspace == nullptr ? 0 : args.workspace_bytes;
  if (given < workspace_bytes_) {
    return InvalidArgument(
        kOp, "workspace_bytes", given,
        absl::StrCat(">= ", workspace_bytes_, " (workspace_bytes())"));
  }
  if (reinterpret_cast<uintptr_t>(args.workspace) % 64 != 0) {
    return InvalidArgument(kOp, "workspace",
                           std::string("a misaligned pointer"),
                           "alignment of 64 bytes");
  }
  if (tokens == 0) return absl::OkStatus();

  const Call call{*this, args, stream, tokens};
  for (int i = 0; i < kNumBlockStages; ++i) {
    const BlockStage stage = static_cast<BlockStage>(i);
    if (!args.events.empty()) {
      LAMINA_RETURN_IF_ERROR(args.events[i].Record(stream));
    }
    if (stage < args.first_stage || stage > args.last_stage) continue;
    const ProfileRange range(stream, Name(stage));
    LAMINA_RETURN_IF_ERROR(AtStage(stage, call.Run(stage)));
  }
  if (!args.events.empty()) {
    LAMINA_RETURN_IF_ERROR(args.events[kNumBlockStages].Record(stream));
  }
  return absl::OkStatus();
}

std::array<int64_t, kNumBlockStages> DecoderBlock::StageBytes(
    int64_t tokens, int64_t context) const {
  const DType input_type =
      config_.input_quantization == InputQuantization::kNone
          ? config_.activation_type
          : config_.input_type;
  const auto activations = [&](int64_t cols) {
    return tokens * BytesFor(config_.activation_type, cols);
  };
  const auto inputs = [&](int64_t cols) {
    return tokens * BytesFor(input_type, cols);
  };
  const auto projection = [&](int64_t n, int64_t k) {
    return BytesFor(config_.weight_type, n * k) + inputs(k) + activations(n);
  };
  const int64_t hidden = config_.hidden_dim;
  const int64_t norm = 3 * activations(hidden) + inputs(hidden);
  const int64_t kv_rows =
      2 * tokens * BytesFor(config_.kv_type, config_.kv_dim());
  return {
      norm,
      projection(config_.qkv_dim(), hidden),
      2 * activations(config_.q_dim()) + 2 * activations(config_.kv_dim()) +
          kv_rows,
      activations(config_.q_dim()) + inputs(config_.q_dim()) +
          context * kv_rows,
      projection(hidden, config_.q_dim()),
      norm,
      projection(2 * config_.ffn_dim, hidden),
      activations(2 * config_.ffn_dim) + inputs(config_.ffn_dim),
      projection(hidden, config_.ffn_dim),
  };
}

}  // namespace lamina
