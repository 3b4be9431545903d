// The examples of the public headers, so that each compiles. The lines between
// a header's name and `return` are its example; repository.header_examples
// compares them.

#include <cstddef>
#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "lamina/activation/activation.h"
#include "lamina/activation/gated_activation.h"
#include "lamina/attention/decode_attention.h"
#include "lamina/attention/kv_cache.h"
#include "lamina/attention/rope.h"
#include "lamina/attention/rope_append.h"
#include "lamina/core/buffer.h"
#include "lamina/core/device.h"
#include "lamina/core/profile_range.h"
#include "lamina/core/status.h"
#include "lamina/core/stream.h"
#include "lamina/core/views.h"
#include "lamina/decoder_block/decoder_block.h"
#include "lamina/gemm/skinny_gemm.h"
#include "lamina/model/chat_template.h"
#include "lamina/model/checkpoint.h"
#include "lamina/model/config.h"
#include "lamina/model/fp8_checkpoint_writer.h"
#include "lamina/model/tokenizer.h"
#include "lamina/model/utf8_stream.h"
#include "lamina/norm/add_rms_norm.h"
#include "lamina/norm/layer_norm.h"
#include "lamina/norm/rms_norm.h"
#include "lamina/quant/convert_fp8_dialect.h"
#include "lamina/quant/dequantize.h"
#include "lamina/quant/quantize.h"
#include "lamina/reduce/reduce_rows.h"
#include "lamina/tokens/advance_tokens.h"
#include "lamina/tokens/embed_rows.h"
#include "lamina/tokens/sample_tokens.h"
#include "lamina/transformer/decode_loop.h"
#include "lamina/transformer/transformer.h"

namespace lamina::header_examples {

absl::Status Reduce(const float* logits, int64_t* token_ids, int64_t rows,
                    int64_t vocabulary, Stream stream) {
  // reduce/reduce_rows.h
  ConstMatrixView x = Matrix(logits, rows, vocabulary);
  absl::Status status = ReduceRows({.x = x,
                                    .reduction = RowReduction::kArgMax,
                                    .y = Vector(token_ids, rows)},
                                   stream);
  return status;
}

absl::Status ToCodes(int64_t rows, int64_t cols) {
  // quant/quantize.h
  std::vector<float> x(rows * cols), scales(rows);
  std::vector<F8E4M3Fn> codes(rows * cols);
  absl::Status status =
      Quantize({.x = Matrix(x.data(), rows, cols),
                .out = {.codes = Matrix(codes.data(), rows, cols),
                        .scales = PerRow(scales.data()),
                        .dynamic = true}},
               Stream::Cpu());
  return status;
}

absl::Status FromCodes(const std::vector<F8E4M3Fn>& codes,
                       const std::vector<float>& scales, std::vector<BF16>& y,
                       int64_t rows, int64_t cols) {
  // quant/dequantize.h
  absl::Status status = Dequantize({.codes = Matrix(codes.data(), rows, cols),
                                    .scales = PerRow(scales.data()),
                                    .y = Matrix(y.data(), rows, cols)},
                                   Stream::Cpu());
  return status;
}

absl::Status ToFnuz(const std::vector<F8E4M3Fn>& fn, float scale,
                    std::vector<F8E4M3Fnuz>& fnuz, float fnuz_scale,
                    int64_t rows, int64_t cols) {
  // quant/convert_fp8_dialect.h
  absl::Status status =
      ConvertFp8Dialect({.codes = Matrix(fn.data(), rows, cols),
                         .scales = PerTensor(&scale),
                         .out_codes = Matrix(fnuz.data(), rows, cols),
                         .out_scales = PerTensor(&fnuz_scale)},
                        Stream::Cpu());
  return status;
}

absl::Status Rms(const BF16* hidden, const BF16* gamma, BF16* normed,
                 int64_t tokens, int64_t hidden_dim, Stream stream) {
  // norm/rms_norm.h
  absl::Status status = RmsNorm({.x = Matrix(hidden, tokens, hidden_dim),
                                 .weight = Vector(gamma, hidden_dim),
                                 .epsilon = 1e-6f,
                                 .y = Matrix(normed, tokens, hidden_dim)},
                                stream);
  return status;
}

absl::Status AddRms(const BF16* attention, BF16* hidden, const BF16* gamma,
                    BF16* normed, int64_t tokens, int64_t hidden_dim,
                    Stream stream) {
  // norm/add_rms_norm.h
  MatrixView hidden_view = Matrix(hidden, tokens, hidden_dim);
  absl::Status status = AddRmsNorm({.x = Matrix(attention, tokens, hidden_dim),
                                    .residual = hidden_view,
                                    .residual_out = hidden_view,
                                    .weight = Vector(gamma, hidden_dim),
                                    .y = Matrix(normed, tokens, hidden_dim)},
                                   stream);
  return status;
}

absl::Status Layer(const BF16* hidden, const BF16* gamma, const BF16* beta,
                   BF16* normed, int64_t tokens, int64_t hidden_dim,
                   Stream stream) {
  // norm/layer_norm.h
  absl::Status status = LayerNorm({.x = Matrix(hidden, tokens, hidden_dim),
                                   .weight = Vector(gamma, hidden_dim),
                                   .bias = Vector(beta, hidden_dim),
                                   .y = Matrix(normed, tokens, hidden_dim)},
                                  stream);
  return status;
}

absl::Status Gelu(F16* h, int64_t rows, int64_t cols, Stream stream) {
  // activation/activation.h
  absl::Status status = Activation({.x = Matrix(h, rows, cols),
                                    .kind = ActivationKind::kGeluTanh,
                                    .y = Matrix(h, rows, cols)},  // in place
                                   stream);
  return status;
}

absl::Status SwiGlu(const BF16* gate_up, F8E4M3Fn* codes, float* scales,
                    int64_t rows, Stream stream) {
  // activation/gated_activation.h
  // [rows, 2 * 14336] bf16 -> FP8 with a scale a row
  absl::Status status =
      GatedActivation({.x = Matrix(gate_up, rows, 2 * 14336),
                       .quantized = {.codes = Matrix(codes, rows, 14336),
                                     .scales = PerRow(scales),
                                     .dynamic = true}},
                      stream);
  return status;
}

absl::Status Gemm(const BF16* x, const F8E4M3Fn* w, const float* w_scales,
                  BF16* y) {
  // gemm/skinny_gemm.h
  std::vector<std::byte> scratch(*SkinnyGemmWorkspaceBytes(
      {.m = 1, .n = 960, .k = 576, .w_type = DType::kF8E4M3Fn},
      GetDeviceInfo({})));
  absl::Status status =
      SkinnyGemm({.x = Matrix(x, 1, 576),        // const BF16*
                  .w = Matrix(w, 960, 576),      // const F8E4M3Fn*
                  .w_scales = PerRow(w_scales),  // const float*, [960]
                  .y = Matrix(y, 1, 960),        // BF16*
                  .workspace = scratch.data(),
                  .workspace_bytes = static_cast<int64_t>(scratch.size())},
                 Stream::Cpu());
  return status;
}

absl::Status Rotate(BF16* q, float* table, const int32_t* positions,
                    int64_t tokens, Stream stream) {
  // attention/rope.h
  const MatrixView rope_table = Matrix(table, 2048, 64);
  LAMINA_RETURN_IF_ERROR(
      FillRopeTable({.theta = 1e4, .rotary_dim = 64}, rope_table));
  absl::Status status = Rope({.x = Heads(q, tokens, 9, 64),
                              .y = Heads(q, tokens, 9, 64),
                              .table = rope_table,
                              .positions = positions},
                             stream);
  return status;
}

absl::Status RotateAndAppend(BF16* q, BF16* k, const BF16* v,
                             const MatrixView& rope_table,
                             const KvCacheView& cache, const int32_t* positions,
                             int64_t tokens, Stream stream) {
  // attention/rope_append.h
  absl::Status status = RopeAppend({.q = Heads(q, tokens, 32, 128),
                                    .y = Heads(q, tokens, 32, 128),
                                    .k = Heads(k, tokens, 8, 128),
                                    .v = Heads(v, tokens, 8, 128),
                                    .table = rope_table,
                                    .cache = cache,
                                    .positions = positions},
                                   stream);
  return status;
}

absl::Status Append(const BF16* k, const BF16* v, BF16* k_cache, BF16* v_cache,
                    const int32_t* positions, int64_t tokens, int64_t sequences,
                    int64_t kv_heads, int64_t head_dim, Stream stream) {
  // attention/kv_cache.h
  KvCacheView cache = DenseKvCache(k_cache, v_cache, DType::kBF16, sequences,
                                   4096, kv_heads, head_dim);
  absl::Status status = KvAppend({.k = Heads(k, tokens, kv_heads, head_dim),
                                  .v = Heads(v, tokens, kv_heads, head_dim),
                                  .cache = cache,
                                  .positions = positions},
                                 stream);
  return status;
}

absl::Status Attend(const BF16* q, const KvCacheView& cache, BF16* y,
                    const int32_t* positions, int64_t tokens, int64_t heads,
                    int64_t head_dim, Stream stream) {
  // attention/decode_attention.h
  absl::Status status =
      DecodeAttention({.q = Heads(q, tokens, heads, head_dim),
                       .cache = cache,
                       .positions = positions,
                       .max_position = 4095,
                       .y = Heads(y, tokens, heads, head_dim)},
                      stream);
  return status;
}

struct BlockLayer {
  DecoderBlockWeights weights;
  KvCacheView cache;
};
absl::Status Blocks(const DecoderBlockConfig& config,
                    const std::vector<BlockLayer>& layers,
                    const MatrixView& rope_table,
                    const std::vector<int32_t>& positions,
                    const MatrixView& residual, const MatrixView& delta,
                    Device device, Stream stream) {
  // apps/decoder_block/decoder_block.h
  LAMINA_ASSIGN_OR_RETURN(DecoderBlock block,
                          DecoderBlock::Plan(config, GetDeviceInfo(device)));
  LAMINA_ASSIGN_OR_RETURN(Buffer scratch,
                          Buffer::Allocate(device, block.workspace_bytes()));
  for (const BlockLayer& layer : layers) {
    LAMINA_RETURN_IF_ERROR(
        block.Decode({.weights = &layer.weights,
                      .cache = layer.cache,
                      .rope_table = rope_table,
                      .positions = positions.data(),
                      .max_position = 4095,
                      .residual = residual,
                      .delta = delta,
                      .delta_is_zero = &layer == layers.data(),
                      .workspace = scratch.data(),
                      .workspace_bytes = scratch.bytes()},
                     stream));
  }
  return absl::OkStatus();
}

absl::Status Read(const std::string& path, Stream stream) {
  // apps/model/checkpoint.h
  LAMINA_ASSIGN_OR_RETURN(Checkpoint model, Checkpoint::Open(path));
  LAMINA_ASSIGN_OR_RETURN(
      const CheckpointTensor* q,
      model.Tensor("model.layers.0.self_attn.q_proj.weight"));
  std::vector<float> w(q->rows() * q->cols());
  LAMINA_RETURN_IF_ERROR(
      ReadRows(*q, 0, Matrix(w.data(), q->rows(), q->cols()), stream));
  return absl::OkStatus();
}

absl::Status Write(const ModelConfig& config, const ConstMatrixView& values,
                   Stream stream) {
  // apps/model/fp8_checkpoint_writer.h
  LAMINA_ASSIGN_OR_RETURN(auto writer,
                          Fp8CheckpointWriter::Create("out", config, {}));
  for (const ExpectedTensor& t : ExpectedTensors(config)) {
    LAMINA_RETURN_IF_ERROR(writer.Add(t.name, values, {}, stream));
  }
  LAMINA_RETURN_IF_ERROR(writer.Finish());
  return absl::OkStatus();
}

absl::Status Tokenize(const Checkpoint& checkpoint) {
  // apps/model/tokenizer.h
  LAMINA_ASSIGN_OR_RETURN(Tokenizer tokenizer, LoadTokenizer(checkpoint));
  std::vector<int32_t> ids = tokenizer.Encode("Hello, world");
  LAMINA_ASSIGN_OR_RETURN(std::string text, tokenizer.Decode(ids));
  return absl::OkStatus();
}

absl::Status Chat(const Tokenizer& tokenizer) {
  // apps/model/chat_template.h
  LAMINA_ASSIGN_OR_RETURN(ChatTemplate chat, ChatTemplate::For(tokenizer));
  LAMINA_ASSIGN_OR_RETURN(
      std::vector<int32_t> ids,
      chat.Encode(tokenizer, {{.role = "user", .content = "Hi"}}));
  return absl::OkStatus();
}

void Print(const Tokenizer& tokenizer, const std::vector<int32_t>& ids,
           std::ostream& out) {
  // apps/model/utf8_stream.h
  Utf8Stream stream(tokenizer);
  for (int32_t id : ids) out << stream.Push(id);
  out << stream.Finish();
  return;
}

absl::Status Embed(const BF16* table, int64_t vocabulary, const int64_t* ids,
                   int64_t tokens, BF16* hidden, int64_t hidden_dim,
                   Stream stream) {
  // tokens/embed_rows.h
  absl::Status status =
      EmbedRows({.table = Matrix(table, vocabulary, hidden_dim),
                 .ids = Vector(ids, tokens),
                 .y = Matrix(hidden, tokens, hidden_dim)},
                stream);
  return status;
}

absl::Status Advance(const int64_t* ids, int64_t sequences, int64_t capacity,
                     int32_t* positions, int64_t* history, int64_t slots,
                     int64_t* step, Stream stream) {
  // tokens/advance_tokens.h
  absl::Status status =
      AdvanceTokens({.ids = Vector(ids, sequences),
                     .positions = Vector(positions, sequences),
                     .last_position = capacity - 1,
                     .history = Matrix(history, slots, sequences),
                     .step = step},
                    stream);
  return status;
}

absl::Status InRange(const SkinnyGemmArgs& args, Stream stream) {
  // core/profile_range.h
  const ProfileRange range(stream, "qkv");
  absl::Status status = SkinnyGemm(args, stream);
  return status;
}

absl::Status Sample(const float* logits, int64_t sequences, int64_t vocabulary,
                    const int32_t* positions, int64_t* tokens, Stream stream) {
  // tokens/sample_tokens.h
  absl::Status status = SampleTokens(
      {.logits = Matrix(logits, sequences, vocabulary),
       .positions = Vector(positions, sequences),
       .sampling = {.temperature = 0.8f, .top_p = 0.95f, .seed = 7},
       .tokens = Vector(tokens, sequences)},
      stream);
  return status;
}

absl::Status Generate(const std::string& path,
                      const TransformerOptions& options,
                      const std::vector<int32_t>& ids,
                      const std::vector<int32_t>& positions,
                      std::vector<float>& logits, Stream stream) {
  // apps/transformer/transformer.h
  LAMINA_ASSIGN_OR_RETURN(Checkpoint file, Checkpoint::Open(path));
  LAMINA_ASSIGN_OR_RETURN(Transformer model,
                          Transformer::Load(file, options, stream));
  absl::Status status = model.Forward(
      {.tokens = ids,
       .positions = positions,
       .logits = Matrix(logits.data(), 1, model.config().vocab_size)},
      stream);
  return status;
}

absl::Status DecodeHundred(Transformer& model,
                           const std::vector<int32_t>& prompt,
                           std::vector<int32_t>& tokens, Stream stream) {
  // apps/transformer/decode_loop.h
  LAMINA_ASSIGN_OR_RETURN(DecodeLoop loop,
                          DecodeLoop::Create(model, {.batch = 1}, stream));
  LAMINA_RETURN_IF_ERROR(loop.Prefill(0, prompt));
  LAMINA_RETURN_IF_ERROR(loop.Start());
  for (int64_t step = 0; step < 100; ++step) {
    LAMINA_RETURN_IF_ERROR(loop.Step());  // enqueued: runs ahead
    LAMINA_RETURN_IF_ERROR(loop.ReadTokens(step, absl::MakeSpan(tokens)));
  }
  return absl::OkStatus();
}

}  // namespace lamina::header_examples
