#include <algorithm>
#include <array>
#include <cstdio>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "apps/lamina/options.h"
#include "apps/lamina/support.h"
#include "apps/lamina/trace.h"
#include "bench/support/graph_timing.h"
#include "lamina/core/buffer.h"
#include "lamina/core/copy.h"
#include "lamina/core/event.h"
#include "lamina/core/math.h"
#include "lamina/core/status.h"
#include "lamina/model/checkpoint.h"
#include "lamina/transformer/decode_loop.h"
#include "lamina/transformer/transformer.h"
#include "nlohmann/json.hpp"

namespace lamina::cli {
namespace {

struct NamedShape {
  const char* name;
  int64_t hidden_dim, ffn_dim, heads, kv_heads, head_dim, vocab_size;
};
// The last but one is one of eight tensor-parallel ranks.
constexpr NamedShape kShapes[] = {
    {"llama3-8b", 4096, 14336, 32, 8, 128, 128256},
    {"llama3-70b", 8192, 28672, 64, 8, 128, 128256},
    {"llama3-405b-tp8", 16384, 6656, 16, 1, 128, 16032},
    {"smollm2-135m", 576, 1536, 9, 3, 64, 49152},
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

// What is timed: a model of enough layers to keep the caches cold.
struct Layers {
  std::unique_ptr<GemmTuning> tuning;
  std::optional<Transformer> model;
  const DecoderBlock& block() const { return model->block(); }
  int64_t count() const { return model->config().num_layers; }
};

// Steps of the whole model that are timed.
constexpr int64_t kModelSteps = 96;

int64_t Positions(const BlockOptions& options) {
  return options.context + 1 + (options.lm_head ? kModelSteps : 0);
}

int64_t LayerBytes(const NamedShape& shape, DType weight_type) {
  const int64_t q_dim = shape.heads * shape.head_dim;
  const int64_t kv_dim = shape.kv_heads * shape.head_dim;
  return BytesFor(weight_type, shape.hidden_dim * (2 * q_dim + 2 * kv_dim +
                                                   3 * shape.ffn_dim));
}

// Weights rotate through more than three times the last-level cache; on a GPU
// through four times, and four layers.
int64_t LayerCount(const BlockOptions& options, const NamedShape& shape,
                   const Device& device) {
  if (options.layers > 0) return options.layers;
  const int64_t bytes = LayerBytes(shape, WeightType(options.weights));
  const int64_t cache = GetDeviceInfo(device).cache_bytes;
  if (device.backend == Backend::kCpu) {
    return std::clamp<int64_t>(3 * cache / bytes + 1, 1, 64);
  }
  return std::clamp<int64_t>(4 * cache / bytes + 1, 4, 64);
}

absl::StatusOr<Transformer> RandomModel(const BlockOptions& options,
                                        const TransformerOptions& load,
                                        const Stream& stream) {
  LAMINA_ASSIGN_OR_RETURN(const NamedShape shape, FindShape(options.shape));
  ModelConfig config;
  config.name = shape.name;
  config.hidden_dim = shape.hidden_dim;
  config.num_layers = LayerCount(options, shape, stream.device());
  config.num_heads = shape.heads;
  config.num_kv_heads = shape.kv_heads;
  config.head_dim = shape.head_dim;
  config.ffn_dim = shape.ffn_dim;
  // The blocks alone need no vocabulary.
  config.vocab_size = options.lm_head ? shape.vocab_size : 16;
  config.max_positions = load.max_positions;
  config.epsilon = 1e-5f;
  config.rope = {.theta = 500000.0, .rotary_dim = shape.head_dim};
  const InputQuantization inputs =
      options.inputs == "per_row"  ? InputQuantization::kPerRow
      : options.inputs == "static" ? InputQuantization::kStatic
                                   : InputQuantization::kNone;
  return Transformer::Random(config, load, inputs, /*seed=*/1, stream);
}

absl::StatusOr<Layers> MakeLayers(const BlockOptions& options,
                                  const Stream& stream) {
  TransformerOptions load;
  load.weight_type = WeightType(options.weights);
  if (!options.activation_type.empty()) {
    load.activation_type = WeightType(options.activation_type);
  }
  load.fusion = FusionOf(options.fuse);
  load.kv_type = WeightType(options.kv);
  load.sequences = options.batch;
  load.max_positions = Positions(options);
  load.max_tokens = options.batch;
  load.max_logits = options.lm_head ? options.batch : 1;
  Layers layers;
  layers.tuning =
      std::make_unique<GemmTuning>(TuningOf(options.tuning, stream.device()));
  load.tuning = layers.tuning.get();
  if (options.model.empty()) {
    LAMINA_ASSIGN_OR_RETURN(layers.model, RandomModel(options, load, stream));
  } else {
    LAMINA_ASSIGN_OR_RETURN(const Checkpoint checkpoint,
                            Checkpoint::Open(options.model));
    LAMINA_ASSIGN_OR_RETURN(layers.model,
                            Transformer::Load(checkpoint, load, stream));
  }
  const int64_t elements =
      options.batch * Positions(options) * layers.block().config().kv_dim();
  for (int64_t i = 0; i < layers.count(); ++i) {
    const KvCacheView cache = layers.model->layer_cache(i);
    for (void* const half : {cache.k, cache.v}) {
      LAMINA_RETURN_IF_ERROR(transformer_internal::FillRandom(
          half, cache.dtype, elements, 1.0f, static_cast<uint64_t>(i) << 32,
          stream));
    }
  }
  return layers;
}

// What one Decode works on, beside a layer: the same for all.
class State {
 public:
  static absl::StatusOr<State> Create(const BlockOptions& options,
                                      const Layers& layers,
                                      const Stream& stream) {
    State state;
    const DecoderBlockConfig& config = layers.block().config();
    const DType type = config.activation_type;
    const int64_t elements = options.batch * config.hidden_dim;
    const int64_t bytes = BytesFor(type, elements);
    LAMINA_ASSIGN_OR_RETURN(
        state.workspace_,
        Buffer::Allocate(stream.device(), layers.block().workspace_bytes()));
    // Stages alone read what no other stage has written.
    LAMINA_RETURN_IF_ERROR(EnqueueFill(state.workspace_.data(), 0,
                                       state.workspace_.bytes(), stream));
    LAMINA_ASSIGN_OR_RETURN(state.states_,
                            Buffer::Allocate(stream.device(), 2 * bytes));
    LAMINA_RETURN_IF_ERROR(transformer_internal::FillRandom(
        state.states_.data(), type, 2 * elements, 1.0f, 3, stream));
    LAMINA_ASSIGN_OR_RETURN(
        state.positions_, Buffer::Allocate(stream.device(), 4 * options.batch));
    const std::vector<int32_t> positions(static_cast<size_t>(options.batch),
                                         static_cast<int32_t>(options.context));
    LAMINA_RETURN_IF_ERROR(Copy(state.positions_.data(), positions.data(),
                                4 * options.batch, stream));
    DecoderBlockArgs& args = state.args_;
    args.tuning = layers.tuning.get();
    args.rope_table = layers.model->rope_table();
    args.positions = state.positions_.as<int32_t>();
    args.max_position = options.context;
    args.residual = {.data = state.states_.data(),
                     .dtype = type,
                     .rows = options.batch,
                     .cols = config.hidden_dim,
                     .row_stride = config.hidden_dim};
    args.delta = args.residual;
    args.delta.data = state.states_.as<char>() + bytes;
    args.workspace = state.workspace_.data();
    args.workspace_bytes = state.workspace_.bytes();
    return state;
  }

  DecoderBlockArgs Args(const Layers& layers, int64_t layer) const {
    DecoderBlockArgs args = args_;
    args.weights = &layers.model->layer(layer);
    args.cache = layers.model->layer_cache(layer);
    return args;
  }

 private:
  State() = default;
  Buffer workspace_, states_, positions_;
  DecoderBlockArgs args_;
};

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

struct Timing {
  std::array<std::vector<double>, kNumBlockStages> stages;
  std::vector<double> totals;
};

// Stages between events: on the CPU, and for a trace.
absl::StatusOr<Timing> Measure(const BlockOptions& options,
                               const Layers& layers, const Stream& stream) {
  LAMINA_ASSIGN_OR_RETURN(const State state,
                          State::Create(options, layers, stream));
  std::vector<Event> events(kNumBlockStages + 1);
  Event origin;
  LAMINA_RETURN_IF_ERROR(origin.Record(stream));
  Trace trace(std::move(origin));
  Timing timing;
  double spent = 0;
  // The first pass over the layers warms up (page tables, clocks).
  const int64_t warm_up = layers.count();
  for (int64_t i = 0;; ++i) {
    const int64_t layer = i % layers.count();
    DecoderBlockArgs args = state.Args(layers, layer);
    args.events = absl::MakeSpan(events);
    LAMINA_RETURN_IF_ERROR(layers.block().Decode(args, stream));
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

// A decoding step of the whole model: microseconds, greedy, of choices made on
// the device.
absl::StatusOr<double> MeasureModel(const BlockOptions& options, Layers& layers,
                                    const Stream& stream) {
  LAMINA_ASSIGN_OR_RETURN(
      DecodeLoop loop,
      DecodeLoop::Create(
          *layers.model,
          {.batch = options.batch, .persistent = options.persistent}, stream));
  for (int64_t s = 0; s < options.batch; ++s) {
    LAMINA_RETURN_IF_ERROR(loop.Assume(s, options.context + 1));
  }
  LAMINA_RETURN_IF_ERROR(loop.Start());
  const bool on_gpu = stream.device().backend != Backend::kCpu;
  const int64_t warm_up = on_gpu ? 8 : 1;
  const int64_t most = on_gpu ? kModelSteps - warm_up : 4;
  const int64_t steps = options.iterations > 0
                            ? std::min<int64_t>(options.iterations, most)
                            : most;
  Event start, end;
  for (int64_t i = 0; i < warm_up + steps; ++i) {
    if (i == warm_up) LAMINA_RETURN_IF_ERROR(start.Record(stream));
    LAMINA_RETURN_IF_ERROR(loop.Step());
  }
  LAMINA_RETURN_IF_ERROR(end.Record(stream));
  LAMINA_ASSIGN_OR_RETURN(const double us, Event::ElapsedMicros(start, end));
  return us / static_cast<double>(steps);
}

// What is known at the end.
struct Report {
  double bandwidth = 0;  // read, measured in this run, bytes a second
  std::array<int64_t, kNumBlockStages> bytes{};
  int64_t total_bytes = 0;
  size_t iterations = 0;
  // Microseconds. On a GPU with overlap; plain_us without; limit_us is the best
  // kernel's that reads as many bytes, in the same kind of graph.
  std::array<double, kNumBlockStages> us{}, plain_us{}, limit_us{};
  double total_us = 0, total_plain_us = 0, total_limit_us = 0;
  double persistent_us = 0;  // a block, in a chain of all; 0: not measured
  double model_us = 0;       // 0: not measured
  int64_t model_bytes = 0;

  double Limit(int64_t b) const {
    return static_cast<double>(b) / bandwidth * 1e6;
  }
  double Sum() const { return std::accumulate(us.begin(), us.end(), 0.0); }
};

// ---- On a GPU: graphs of many layers ----------------------------------------

// A call of the stages [first, last] of one layer after the other.
bench::Call StageCall(const Layers& layers, const State& state,
                      BlockStage first, BlockStage last) {
  return [&layers, &state, first, last](int64_t layer, const Stream& stream) {
    DecoderBlockArgs args = state.Args(layers, layer);
    args.first_stage = first;
    args.last_stage = last;
    return layers.block().Decode(args, stream);
  };
}

// Microseconds a layer.
absl::StatusOr<double> MeasureStages(const Layers& layers,
                                     const bench::Call& call, int64_t bytes,
                                     const Stream& stream) {
  LAMINA_ASSIGN_OR_RETURN(
      const bench::Timing timing,
      bench::MeasureGraph(call, bench::NodesFor(bytes, layers.count()),
                          layers.count(), bench::kGraphRepeats, stream));
  return timing.us;
}

absl::StatusOr<double> ReadLimit(int64_t bytes, const Stream& stream) {
  const int64_t sets = bench::SetsFor(bytes, stream);
  return bench::StreamingLimit({.units = CeilDiv(bytes, 16)},
                               bench::NodesFor(bytes, sets), sets, stream);
}

// All layers as one kernel: microseconds a layer.
absl::StatusOr<double> MeasureChain(const Layers& layers,
                                    const bench::Call& call,
                                    const Report& report,
                                    const Stream& stream) {
  LAMINA_ASSIGN_OR_RETURN(
      const PersistentChain chain,
      PersistentChain::Make(stream, [&](const Stream& recording) {
        for (int64_t layer = 0; layer < layers.count(); ++layer) {
          LAMINA_RETURN_IF_ERROR(call(layer, recording));
        }
        return absl::OkStatus();
      }));
  LAMINA_ASSIGN_OR_RETURN(
      const double us,
      MeasureStages(
          layers, [&](int64_t, const Stream& its) { return chain.Run(its); },
          report.total_bytes * layers.count(), stream));
  return us / static_cast<double>(layers.count());
}

absl::Status MeasureGraphs(const BlockOptions& options, const Layers& layers,
                           const Stream& stream, Report& report) {
  LAMINA_ASSIGN_OR_RETURN(const State state,
                          State::Create(options, layers, stream));
  const Stream overlapped = stream.WithOverlap();
  // The whole first: it leaves sensible values in the workspace.
  const bench::Call whole =
      StageCall(layers, state, BlockStage::kAttentionNorm, BlockStage::kDown);
  LAMINA_ASSIGN_OR_RETURN(
      report.total_us,
      MeasureStages(layers, whole, report.total_bytes, overlapped));
  LAMINA_ASSIGN_OR_RETURN(
      report.total_plain_us,
      MeasureStages(layers, whole, report.total_bytes, stream));
  LAMINA_ASSIGN_OR_RETURN(report.total_limit_us,
                          ReadLimit(report.total_bytes, overlapped));
  if (options.persistent) {
    LAMINA_ASSIGN_OR_RETURN(report.persistent_us,
                            MeasureChain(layers, whole, report, stream));
  }
  for (size_t i = 0; i < report.us.size(); ++i) {
    const BlockStage stage = static_cast<BlockStage>(i);
    const bool fused = stage == BlockStage::kActivation &&
                       layers.block().config().fusion.activation;
    report.us[i] = report.plain_us[i] = 0;
    if (fused) continue;
    const bench::Call call = StageCall(layers, state, stage, stage);
    const int64_t bytes = report.bytes[i];
    LAMINA_ASSIGN_OR_RETURN(report.us[i],
                            MeasureStages(layers, call, bytes, overlapped));
    LAMINA_ASSIGN_OR_RETURN(report.plain_us[i],
                            MeasureStages(layers, call, bytes, stream));
    LAMINA_ASSIGN_OR_RETURN(report.limit_us[i], ReadLimit(bytes, overlapped));
  }
  return absl::OkStatus();
}

absl::StatusOr<Report> MeasureAll(const BlockOptions& options, Layers& layers,
                                  const Stream& stream) {
  Report report;
  report.bandwidth =
      MeasureReadBandwidth(stream.device(), stream.num_threads());
  report.bytes = layers.block().StageBytes(options.batch, options.context + 1);
  report.total_bytes =
      std::accumulate(report.bytes.begin(), report.bytes.end(), int64_t{0});
  const bool on_gpu = stream.device().backend != Backend::kCpu;
  if (!on_gpu || !options.trace.empty()) {
    LAMINA_ASSIGN_OR_RETURN(const Timing timing,
                            Measure(options, layers, stream));
    report.iterations = timing.totals.size();
    report.total_us = Median(timing.totals);
    report.total_limit_us = report.Limit(report.total_bytes);
    for (size_t i = 0; i < report.us.size(); ++i) {
      report.us[i] = Median(timing.stages[i]);
      report.limit_us[i] = report.Limit(report.bytes[i]);
    }
  }
  if (on_gpu) {
    LAMINA_RETURN_IF_ERROR(MeasureGraphs(options, layers, stream, report));
  }
  if (options.lm_head) {
    LAMINA_ASSIGN_OR_RETURN(report.model_us,
                            MeasureModel(options, layers, stream));
    report.model_bytes = layers.model->DecodeBytes(
        options.batch, options.context + 1 + kModelSteps / 2);
  }
  return report;
}

nlohmann::json ToJson(const BlockOptions& options, const Layers& layers,
                      const Report& report, const Stream& stream) {
  const bool on_gpu = stream.device().backend != Backend::kCpu;
  const DecoderBlockConfig& config = layers.block().config();
  nlohmann::json stages = nlohmann::json::array();
  for (size_t i = 0; i < report.us.size(); ++i) {
    stages.push_back(
        {{"name", Name(static_cast<BlockStage>(i))},
         {"us", report.us[i]},
         {"bytes", report.bytes[i]},
         {"gb_per_s", report.us[i] > 0 ? static_cast<double>(report.bytes[i]) /
                                             report.us[i] * 1e-3
                                       : 0},
         {"limit_us", report.limit_us[i]},
         {"share", report.us[i] / report.Sum()}});
    if (on_gpu) stages.back()["plain_us"] = report.plain_us[i];
  }
  nlohmann::json json = {
      {"shape", options.model.empty() ? options.shape : options.model},
      {"weights", Name(config.weight_type)},
      {"kv", Name(config.kv_type)},
      {"activations", Name(config.activation_type)},
      {"inputs", options.inputs},
      {"fuse", options.fuse},
      {"batch", options.batch},
      {"context", options.context},
      {"layers", layers.count()},
      {"device", GetDeviceInfo(stream.device()).name},
      {"kernels", KernelsName(stream.device())},
      {"threads", stream.num_threads()},
      {"read_gb_per_s", report.bandwidth * 1e-9},
      {"stages", stages},
      {"total",
       {{"us", report.total_us},
        {"bytes", report.total_bytes},
        {"limit_us", report.total_limit_us},
        {"ratio", report.total_limit_us / report.total_us}}}};
  if (on_gpu) {
    json["total"]["plain_us"] = report.total_plain_us;
    if (report.persistent_us > 0) {
      json["total"]["persistent_us"] = report.persistent_us;
    }
  } else {
    json["iterations"] = report.iterations;
  }
  if (report.model_us > 0) {
    json["model"] = {
        {"us", report.model_us},
        {"tokens_per_s",
         static_cast<double>(options.batch) / report.model_us * 1e6},
        {"bytes", report.model_bytes},
        {"limit_us", report.Limit(report.model_bytes)},
        {"ratio", report.Limit(report.model_bytes) / report.model_us}};
  }
  return json;
}

void PrintHeading(const BlockOptions& options, const Layers& layers,
                  const Report& report, const Stream& stream) {
  const DecoderBlockConfig& config = layers.block().config();
  const bool on_gpu = stream.device().backend != Backend::kCpu;
  absl::PrintF("%s, %s weights, %s KV cache, batch %d, context %d\n",
               options.model.empty() ? options.shape : options.model,
               Name(config.weight_type), Name(config.kv_type), options.batch,
               options.context);
  if (on_gpu) {
    absl::PrintF("%s between stages, inputs %s, fused: %s, %d layers in turn\n",
                 Name(config.activation_type), options.inputs, options.fuse,
                 layers.count());
  }
  absl::PrintF("%s, %s kernels, ", GetDeviceInfo(stream.device()).name,
               KernelsName(stream.device()));
  if (!on_gpu) absl::PrintF("%d threads, ", stream.num_threads());
  absl::PrintF("read bandwidth %.1f GB/s (measured now)\n\n",
               report.bandwidth * 1e-9);
}

void PrintRows(const Report& report, bool on_gpu) {
  absl::PrintF("%-15s %10s ", "stage", "us");
  if (on_gpu) absl::PrintF("%10s %10s ", "plain us", "limit us");
  absl::PrintF("%12s %8s %9s %7s\n", "bytes", "GB/s", "of limit", "share");
  const auto row = [&](const char* stage, double us, double plain, double limit,
                       int64_t bytes, double share) {
    absl::PrintF("%-15s %10.1f ", stage, us);
    if (on_gpu) absl::PrintF("%10.1f %10.1f ", plain, limit);
    if (us <= 0) {
      absl::PrintF("%12d\n", bytes);  // part of another stage
      return;
    }
    absl::PrintF("%12d %8.1f %7.0f %% %5.1f %%\n", bytes,
                 static_cast<double>(bytes) / us * 1e-3, 100 * limit / us,
                 100 * share);
  };
  for (size_t i = 0; i < report.us.size(); ++i) {
    row(Name(static_cast<BlockStage>(i)), report.us[i], report.plain_us[i],
        report.limit_us[i], report.bytes[i], report.us[i] / report.Sum());
  }
  row("total", report.total_us, report.total_plain_us, report.total_limit_us,
      report.total_bytes, 1);
  if (report.persistent_us > 0) {
    row("persistent", report.persistent_us, 0, report.total_limit_us,
        report.total_bytes, 1);
  }
}

void PrintModel(const BlockOptions& options, const Layers& layers,
                const Report& report) {
  const double limit = report.Limit(report.model_bytes);
  absl::PrintF(
      "\nmodel of %d layers, a step: %.1f us, %.1f tokens/s; limit %.1f us "
      "(%.0f %% of it)\n",
      layers.count(), report.model_us,
      static_cast<double>(options.batch) / report.model_us * 1e6, limit,
      100 * limit / report.model_us);
}

}  // namespace

absl::StatusOr<int> RunBlock(const BlockOptions& options) {
  LAMINA_ASSIGN_OR_RETURN(const ChosenStream chosen, ChooseStream(options));
  const Stream stream = chosen.stream;
  LAMINA_RETURN_IF_ERROR(CheckCanWrite(options.trace));
  LAMINA_RETURN_IF_ERROR(CheckPersistent(options.persistent, stream.device()));
  LAMINA_ASSIGN_OR_RETURN(Layers layers, MakeLayers(options, stream));
  LAMINA_ASSIGN_OR_RETURN(const Report report,
                          MeasureAll(options, layers, stream));
  if (options.json) {
    std::printf("%s\n",
                ToJson(options, layers, report, stream).dump(2).c_str());
    return kDone;
  }
  PrintHeading(options, layers, report, stream);
  PrintRows(report, stream.device().backend != Backend::kCpu);
  if (report.model_us > 0) PrintModel(options, layers, report);
  return kDone;
}

}  // namespace lamina::cli
