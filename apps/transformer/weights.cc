#include "lamina/transformer/weights.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lamina/core/copy.h"
#include "lamina/core/math.h"
#include "lamina/core/status.h"

namespace lamina::transformer_internal {
namespace {

constexpr int64_t kAlignment = 256;

int64_t Padded(int64_t bytes) { return RoundUp(bytes, kAlignment); }

std::string LayerTensor(int64_t layer, const char* suffix) {
  return absl::StrCat("model.layers.", layer, ".", suffix, ".weight");
}

int64_t LinearBytes(DType type, int64_t rows, int64_t cols) {
  const int64_t scales =
      type == DType::kBF16 ? 0 : Padded(4 * rows) + Padded(4);
  return Padded(BytesFor(type, rows * cols)) + scales;
}

// Takes the matrices out of the buffer, in order, and has them filled.
class Maker {
 public:
  Maker(const WeightsPlan& plan, WeightSource& source, Stream stream)
      : plan_(plan), source_(source), stream_(stream) {}

  absl::StatusOr<ModelWeights> Make() {
    const ModelConfig& config = plan_.config;
    ModelWeights weights;
    LAMINA_ASSIGN_OR_RETURN(
        weights.memory, Buffer::Allocate(stream_.device(), WeightBytes(plan_)));
    next_ = weights.memory.as<uint8_t>();
    const MatrixView embedding =
        Matrix(Take<BF16>(config.vocab_size * config.hidden_dim),
               config.vocab_size, config.hidden_dim);
    LAMINA_RETURN_IF_ERROR(
        source_.FillBf16({"model.embed_tokens.weight"}, embedding));
    weights.embedding = embedding;
    LAMINA_ASSIGN_OR_RETURN(weights.final_norm, Norm("model.norm.weight"));
    if (plan_.own_output()) {
      LAMINA_ASSIGN_OR_RETURN(
          weights.output,
          Linear({"lm_head.weight"}, config.vocab_size, config.hidden_dim));
    } else {
      weights.output.w = weights.embedding;
    }
    for (int64_t layer = 0; layer < config.num_layers; ++layer) {
      LAMINA_ASSIGN_OR_RETURN(const DecoderBlockWeights block, Layer(layer));
      weights.layers.push_back(block);
      if (plan_.progress) {
        plan_.progress(static_cast<double>(layer + 1) /
                       static_cast<double>(config.num_layers));
      }
    }
    return weights;
  }

 private:
  template <class T>
  T* Take(int64_t count) {
    T* const data = reinterpret_cast<T*>(next_);
    next_ += Padded(count * static_cast<int64_t>(sizeof(T)));
    return data;
  }

  absl::StatusOr<ConstVectorView> Norm(const std::string& name) {
    const int64_t size = plan_.config.hidden_dim;
    const VectorView norm{
        .data = Take<uint8_t>(BytesFor(plan_.norm_type, size)),
        .dtype = plan_.norm_type,
        .size = size};
    LAMINA_RETURN_IF_ERROR(source_.Fill(name, norm));
    return ConstVectorView(norm);
  }

  absl::StatusOr<LinearWeights> Linear(const std::vector<std::string>& names,
                                       int64_t rows, int64_t cols) {
    LinearWeights linear;
    if (plan_.type == DType::kBF16) {
      const MatrixView w = Matrix(Take<BF16>(rows * cols), rows, cols);
      LAMINA_RETURN_IF_ERROR(source_.FillBf16(names, w));
      linear.w = w;
      return linear;
    }
    const MatrixView codes = Matrix(Take<F8E4M3Fn>(rows * cols), rows, cols);
    float* const scales = Take<float>(rows);
    float* const input_scale = Take<float>(1);
    float scale = 0;
    LAMINA_RETURN_IF_ERROR(source_.FillFp8(names, codes, scales, &scale));
    LAMINA_RETURN_IF_ERROR(Copy(input_scale, &scale, sizeof(float), stream_));
    linear.w = codes;
    linear.w_scales = PerRow(static_cast<const float*>(scales));
    if (plan_.static_inputs && scale > 0) linear.input_scale = input_scale;
    return linear;
  }

  absl::StatusOr<DecoderBlockWeights> Layer(int64_t layer) {
    const ModelConfig& config = plan_.config;
    const int64_t hidden = config.hidden_dim;
    DecoderBlockWeights weights;
    LAMINA_ASSIGN_OR_RETURN(weights.attention_norm,
                            Norm(LayerTensor(layer, "input_layernorm")));
    LAMINA_ASSIGN_OR_RETURN(
        weights.ffn_norm, Norm(LayerTensor(layer, "post_attention_layernorm")));
    const struct {
      LinearWeights* linear;
      std::vector<const char*> parts;
      int64_t rows, cols;
    } projections[] = {
        {&weights.qkv,
         {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"},
         config.q_dim() + 2 * config.kv_dim(),
         hidden},
        {&weights.output, {"self_attn.o_proj"}, hidden, config.q_dim()},
        {&weights.gate_up,
         {"mlp.gate_proj", "mlp.up_proj"},
         2 * config.ffn_dim,
         hidden},
        {&weights.down, {"mlp.down_proj"}, hidden, config.ffn_dim}};
    for (const auto& [linear, parts, rows, cols] : projections) {
      std::vector<std::string> names;
      for (const char* part : parts) names.push_back(LayerTensor(layer, part));
      LAMINA_ASSIGN_OR_RETURN(*linear, Linear(names, rows, cols));
    }
    return weights;
  }

  const WeightsPlan& plan_;
  WeightSource& source_;
  const Stream stream_;
  uint8_t* next_ = nullptr;
};

}  // namespace

int64_t WeightBytes(const WeightsPlan& plan) {
  const ModelConfig& config = plan.config;
  const int64_t hidden = config.hidden_dim;
  const auto linear = [&](int64_t rows, int64_t cols) {
    return LinearBytes(plan.type, rows, cols);
  };
  const int64_t norm = Padded(BytesFor(plan.norm_type, hidden));
  const int64_t layer =
      2 * norm + linear(config.q_dim() + 2 * config.kv_dim(), hidden) +
      linear(hidden, config.q_dim()) + linear(2 * config.ffn_dim, hidden) +
      linear(hidden, config.ffn_dim);
  return Padded(2 * config.vocab_size * hidden) + norm +
         config.num_layers * layer +
         (plan.own_output() ? linear(config.vocab_size, hidden) : 0);
}

absl::StatusOr<ModelWeights> MakeWeights(const WeightsPlan& plan,
                                         WeightSource& source, Stream stream) {
  return Maker(plan, source, stream).Make();
}

}  // namespace lamina::transformer_internal
