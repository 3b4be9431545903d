#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "apps/lamina/options.h"
#include "apps/lamina/support.h"
#include "apps/lamina/trace.h"
#include "lamina/core/parallel.h"
#include "lamina/core/status.h"
#include "lamina/model/checkpoint.h"
#include "lamina/transformer/transformer.h"
#include "nlohmann/json.hpp"

namespace lamina::cli {
namespace {

struct NamedShape {
  const char* name;
  int64_t hidden_dim, ffn_dim, heads, kv_heads, head_dim;
};
// The last but one is one of eight tensor-parallel ranks.
constexpr NamedShape kShapes[] = {
    {"llama3-8b", 4096, 14336, 32, 8, 128},
    {"llama3-70b", 8192, 28672, 64, 8, 128},
    {"llama3-405b-tp8", 16384, 6656, 16, 1, 128},
    {"smollm2-135m", 576, 1536, 9, 3, 64},
};

absl::StatusOr<NamedShape> FindShape(const std::string& name) {
  std::string known;
  for (const NamedShape& shape : kShapes) {
    if (name == shape.name) return shape;
    absl::StrAppend(&known, known.empty() ? "" : ", ", shape.name);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("--shape ", name, ": known shapes: ", known));
}

uint64_t Mix(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

// Fills memory with finite random values of the type: uniform in
// (-amplitude, amplitude), or any finite FP8 code.
void FillRandom(void* data, DType type, int64_t count, float amplitude,
                uint64_t seed, const Stream& stream) {
  ParallelFor(stream, count, 1 << 16, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      const uint64_t bits = Mix(seed + static_cast<uint64_t>(i) + 1);
      const float value =
          (static_cast<float>(bits >> 40) * 0x1p-23f - 1.0f) * amplitude;
      switch (type) {
        case DType::kBF16:
          static_cast<BF16*>(data)[i] = FromFloat<BF16>(value);
          break;
        case DType::kF32:
          static_cast<float*>(data)[i] = value;
          break;
        default: {
          const uint8_t code = static_cast<uint8_t>(bits);
          static_cast<uint8_t*>(data)[i] =
              (code & 0x7fu) == 0x7fu ? static_cast<uint8_t>(code ^ 1u) : code;
        }
      }
    }
  });
}

// What is timed: one plan and enough layers to keep the caches cold.
struct Layers {
  std::vector<Buffer> memory;
  std::optional<Transformer> model;  // --model: owns weights and caches
  std::optional<DecoderBlock> block;
  std::vector<DecoderBlockWeights> weights;
  std::vector<KvCacheView> caches;
  ConstMatrixView rope_table;
};

class RandomLayers {
 public:
  RandomLayers(Layers& layers, const Stream& stream)
      : layers_(layers), stream_(stream) {}

  absl::Status Make(const DecoderBlockConfig& config, int64_t count,
                    int64_t batch) {
    LAMINA_ASSIGN_OR_RETURN(
        layers_.block,
        DecoderBlock::Plan(config, GetDeviceInfo(stream_.device())));
    const int64_t per_layer =
        BytesFor(config.weight_type,
                 config.hidden_dim *
                     (config.qkv_dim() + config.q_dim() + 3 * config.ffn_dim)) +
        2 * BytesFor(config.kv_type,
                     batch * config.max_positions * config.kv_dim());
    const int64_t memory = GetDeviceInfo(stream_.device()).memory_bytes;
    if (memory > 0 && per_layer * count > memory) {
      return absl::ResourceExhaustedError(
          absl::StrCat("this shape needs ", per_layer * count,
                       " bytes, the device has ", memory));
    }
    for (int64_t layer = 0; layer < count; ++layer) {
      LAMINA_RETURN_IF_ERROR(AddLayer(config, batch));
    }
    LAMINA_ASSIGN_OR_RETURN(
        float* table, Allocate<float>(config.max_positions * config.head_dim));
    const MatrixView view =
        Matrix(table, config.max_positions, config.head_dim);
    layers_.rope_table = view;
    return FillRopeTable({.theta = 500000.0, .rotary_dim = config.head_dim},
                         view);
  }

 private:
  template <class T>
  absl::StatusOr<T*> Allocate(int64_t count) {
    LAMINA_ASSIGN_OR_RETURN(
        Buffer buffer,
        Buffer::Allocate(stream_.device(),
                         count * static_cast<int64_t>(sizeof(T))));
    layers_.memory.push_back(std::move(buffer));
    return layers_.memory.back().as<T>();
  }

  absl::StatusOr<void*> Random(DType type, int64_t count, float amplitude) {
    LAMINA_ASSIGN_OR_RETURN(uint8_t * data,
                            Allocate<uint8_t>(BytesFor(type, count)));
    FillRandom(data, type, count, amplitude, Mix(++seed_), stream_);
    return static_cast<void*>(data);
  }

  absl::Status MakeLinear(LinearWeights& linear, DType type, int64_t n,
                          int64_t k) {
    const float amplitude = 1.0f / std::sqrt(static_cast<float>(k));
    LAMINA_ASSIGN_OR_RETURN(void* data, Random(type, n * k, amplitude));
    linear.w = {
        .data = data, .dtype = type, .rows = n, .cols = k, .row_stride = k};
    if (!IsFp8(type)) return absl::OkStatus();
    LAMINA_ASSIGN_OR_RETURN(float* scales, Allocate<float>(n));
    std::fill_n(scales, n, amplitude / MaxFinite(type));
    linear.w_scales = PerRow(static_cast<const float*>(scales));
    return absl::OkStatus();
  }

  absl::Status AddLayer(const DecoderBlockConfig& config, int64_t batch) {
    DecoderBlockWeights weights;
    for (ConstVectorView* norm : {&weights.attention_norm, &weights.ffn_norm}) {
      LAMINA_ASSIGN_OR_RETURN(float* ones, Allocate<float>(config.hidden_dim));
      std::fill_n(ones, config.hidden_dim, 1.0f);
      *norm = Vector(static_cast<const float*>(ones), config.hidden_dim);
    }
    const DType type = config.weight_type;
    LAMINA_RETURN_IF_ERROR(
        MakeLinear(weights.qkv, type, config.qkv_dim(), config.hidden_dim));
    LAMINA_RETURN_IF_ERROR(
        MakeLinear(weights.output, type, config.hidden_dim, config.q_dim()));
    LAMINA_RETURN_IF_ERROR(MakeLinear(weights.gate_up, type, 2 * config.ffn_dim,
                                      config.hidden_dim));
    LAMINA_RETURN_IF_ERROR(
        MakeLinear(weights.down, type, config.hidden_dim, config.ffn_dim));
    layers_.weights.push_back(weights);
    const int64_t kv = batch * config.max_positions * config.kv_dim();
    LAMINA_ASSIGN_OR_RETURN(void* k, Random(config.kv_type, kv, 1.0f));
    LAMINA_ASSIGN_OR_RETURN(void* v, Random(config.kv_type, kv, 1.0f));
    layers_.caches.push_back(DenseKvCache(k, v, config.kv_type, batch,
                                          config.max_positions, config.kv_heads,
                                          config.head_dim));
    return absl::OkStatus();
  }

  Layers& layers_;
  const Stream& stream_;
  uint64_t seed_ = 0;
};

absl::StatusOr<Layers> MakeLayers(const BlockOptions& options,
                                  const Stream& stream) {
  Layers layers;
  const int64_t positions = options.context + 1;
  if (!options.model.empty()) {
    LAMINA_ASSIGN_OR_RETURN(const Checkpoint checkpoint,
                            Checkpoint::Open(options.model));
    TransformerOptions load;
    load.weight_type = WeightType(options.weights);
    load.kv_type = WeightType(options.kv);
    load.sequences = options.batch;
    load.max_positions = positions;
    load.max_tokens = options.batch;
    LAMINA_ASSIGN_OR_RETURN(layers.model,
                            Transformer::Load(checkpoint, load, stream));
    layers.block = layers.model->block();
    layers.rope_table = layers.model->rope_table();
    for (int64_t i = 0; i < layers.model->config().num_layers; ++i) {
      layers.weights.push_back(layers.model->layer(i));
      layers.caches.push_back(layers.model->layer_cache(i));
      const KvCacheView& cache = layers.caches.back();
      const int64_t count =
          options.batch * positions * layers.block->config().kv_dim();
      FillRandom(cache.k, cache.dtype, count, 1.0f, Mix(7), stream);
      FillRandom(cache.v, cache.dtype, count, 1.0f, Mix(8), stream);
    }
    return layers;
  }
  LAMINA_ASSIGN_OR_RETURN(const NamedShape shape, FindShape(options.shape));
  DecoderBlockConfig config;
  config.hidden_dim = shape.hidden_dim;
  config.ffn_dim = shape.ffn_dim;
  config.heads = shape.heads;
  config.kv_heads = shape.kv_heads;
  config.head_dim = shape.head_dim;
  config.weight_type = WeightType(options.weights);
  config.kv_type = WeightType(options.kv);
  if (options.inputs == "per_row") {
    config.input_quantization = InputQuantization::kPerRow;
  }
  config.max_tokens = options.batch;
  config.max_positions = positions;
  config.num_threads = stream.num_threads();
  // Weights rotate through more than three times the last-level cache.
  const int64_t layer_bytes =
      BytesFor(config.weight_type,
               shape.hidden_dim *
                   (config.qkv_dim() + config.q_dim() + 3 * shape.ffn_dim));
  const int64_t cache = GetDeviceInfo(stream.device()).cache_bytes;
  const int64_t count = std::clamp<int64_t>(3 * cache / layer_bytes + 1, 1, 64);
  LAMINA_RETURN_IF_ERROR(
      RandomLayers(layers, stream).Make(config, count, options.batch));
  return layers;
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

struct Timing {
  std::array<std::vector<double>, kNumBlockStages> stages;
  std::vector<double> totals;
};

absl::StatusOr<Timing> Measure(const BlockOptions& options, Layers& layers,
                               const Stream& stream) {
  const DecoderBlock& block = *layers.block;
  const int64_t hidden = block.config().hidden_dim;
  LAMINA_ASSIGN_OR_RETURN(
      const Buffer workspace,
      Buffer::Allocate(stream.device(), block.workspace_bytes()));
  LAMINA_ASSIGN_OR_RETURN(
      const Buffer states,
      Buffer::Allocate(stream.device(), 8 * options.batch * hidden));
  const MatrixView residual = Matrix(states.as<float>(), options.batch, hidden);
  const MatrixView delta = Matrix(states.as<float>() + options.batch * hidden,
                                  options.batch, hidden);
  FillRandom(states.data(), DType::kF32, 2 * options.batch * hidden, 1.0f,
             Mix(3), stream);
  std::vector<int32_t> positions(static_cast<size_t>(options.batch),
                                 static_cast<int32_t>(options.context));
  std::vector<Event> events(kNumBlockStages + 1);
  Event origin;
  LAMINA_RETURN_IF_ERROR(origin.Record(stream));
  Trace trace(std::move(origin));
  Timing timing;
  double spent = 0;
  // The first pass over the layers warms up (page tables, clocks).
  const int64_t warm_up = static_cast<int64_t>(layers.weights.size());
  for (int64_t i = 0;; ++i) {
    const size_t layer = static_cast<size_t>(i) % layers.weights.size();
    LAMINA_RETURN_IF_ERROR(block.Decode({.weights = &layers.weights[layer],
                                         .cache = layers.caches[layer],
                                         .rope_table = layers.rope_table,
                                         .positions = positions.data(),
                                         .max_position = options.context,
                                         .residual = residual,
                                         .delta = delta,
                                         .workspace = workspace.data(),
                                         .workspace_bytes = workspace.bytes(),
                                         .events = absl::MakeSpan(events)},
                                        stream));
    if (i < warm_up) continue;
    for (int stage = 0; stage < kNumBlockStages; ++stage) {
      LAMINA_ASSIGN_OR_RETURN(
          const double us,
          Event::ElapsedMicros(events[stage], events[stage + 1]));
      timing.stages[static_cast<size_t>(stage)].push_back(us);
      if (!options.trace.empty()) {
        LAMINA_RETURN_IF_ERROR(trace.Add(Name(static_cast<BlockStage>(stage)),
                                         absl::StrCat("layer ", layer),
                                         events[stage], events[stage + 1]));
      }
    }
    LAMINA_ASSIGN_OR_RETURN(
        const double total,
        Event::ElapsedMicros(events.front(), events.back()));
    timing.totals.push_back(total);
    spent += total;
    const int64_t done = i - warm_up + 1;
    if (options.iterations > 0 ? done >= options.iterations
                               : spent > 1e6 && done >= 5) {
      break;
    }
  }
  if (!options.trace.empty()) {
    LAMINA_RETURN_IF_ERROR(trace.Write(options.trace));
  }
  return timing;
}

}  // namespace

absl::StatusOr<int> RunBlock(const BlockOptions& options) {
  LAMINA_ASSIGN_OR_RETURN(const Stream stream, MakeStream(options));
  LAMINA_RETURN_IF_ERROR(CheckCanWrite(options.trace));
  LAMINA_ASSIGN_OR_RETURN(Layers layers, MakeLayers(options, stream));
  const double bandwidth =
      MeasureReadBandwidth(stream.device(), stream.num_threads());
  LAMINA_ASSIGN_OR_RETURN(const Timing timing,
                          Measure(options, layers, stream));
  const auto bytes =
      layers.block->StageBytes(options.batch, options.context + 1);
  const auto limit_us = [&](int64_t b) {
    return static_cast<double>(b) / bandwidth * 1e6;
  };
  double sum = 0;
  int64_t total_bytes = 0;
  std::array<double, kNumBlockStages> us{};
  for (size_t i = 0; i < us.size(); ++i) {
    us[i] = Median(timing.stages[i]);
    sum += us[i];
    total_bytes += bytes[i];
  }
  const double total = Median(timing.totals);
  const DecoderBlockConfig& config = layers.block->config();
  const std::string name =
      options.model.empty() ? options.shape : options.model;

  if (options.json) {
    nlohmann::json stages = nlohmann::json::array();
    for (size_t i = 0; i < us.size(); ++i) {
      stages.push_back(
          {{"name", Name(static_cast<BlockStage>(i))},
           {"us", us[i]},
           {"bytes", bytes[i]},
           {"gb_per_s", static_cast<double>(bytes[i]) / us[i] * 1e-3},
           {"limit_us", limit_us(bytes[i])},
           {"share", us[i] / sum}});
    }
    std::printf("%s\n",
                nlohmann::json({{"shape", name},
                                {"weights", Name(config.weight_type)},
                                {"kv", Name(config.kv_type)},
                                {"batch", options.batch},
                                {"context", options.context},
                                {"device", GetDeviceInfo(stream.device()).name},
                                {"kernels", CpuTargetName()},
                                {"threads", stream.num_threads()},
                                {"read_gb_per_s", bandwidth * 1e-9},
                                {"iterations", timing.totals.size()},
                                {"stages", stages},
                                {"total",
                                 {{"us", total},
                                  {"bytes", total_bytes},
                                  {"limit_us", limit_us(total_bytes)},
                                  {"ratio", limit_us(total_bytes) / total}}}})
                    .dump(2)
                    .c_str());
    return kDone;
  }
  absl::PrintF(
      "%s, %s weights, %s KV cache, batch %d, context %d\n"
      "%s, %s kernels, %d threads, read bandwidth %.1f GB/s (measured now)\n\n",
      name, Name(config.weight_type), Name(config.kv_type), options.batch,
      options.context, GetDeviceInfo(stream.device()).name, CpuTargetName(),
      stream.num_threads(), bandwidth * 1e-9);
  absl::PrintF("%-15s %10s %12s %8s %9s %7s\n", "stage", "us", "bytes", "GB/s",
               "of limit", "share");
  const auto row = [&](const char* stage, double time, int64_t b,
                       double share) {
    absl::PrintF("%-15s %10.1f %12d %8.1f %7.0f %% %5.1f %%\n", stage, time, b,
                 static_cast<double>(b) / time * 1e-3, 100 * limit_us(b) / time,
                 100 * share);
  };
  for (size_t i = 0; i < us.size(); ++i) {
    row(Name(static_cast<BlockStage>(i)), us[i], bytes[i], us[i] / sum);
  }
  row("total", total, total_bytes, 1);
  return kDone;
}

}  // namespace lamina::cli
