// DecodeAttention against this machine's limits, measured in the same run:
// decoding against the bandwidth of reading keys and values from memory,
// prefill against the peak rate of fused multiply-adds.
//
//   limit   fraction of that limit, 1 = as fast as it can be
//   bytes_per_second, flops: 2 per multiply-add of q · K and p · V

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "bench/attention/decode_attention_bench.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
//
#include "lamina/core/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lamina {
namespace HWY_NAMESPACE {
namespace {

// 12 independent chains; returns the multiply-adds done.
int64_t FmaLoop(int64_t iterations, float* sink) {
  const DF32 d;
  VF32 sum[12];
  for (VF32& s : sum) s = hn::Set(d, 1.0f);
  const VF32 a = hn::Set(d, sink[0]);
  const VF32 b = hn::Set(d, sink[1]);
  for (int64_t i = 0; i < iterations; ++i) {
#pragma GCC unroll 12
    for (VF32& s : sum) s = FusedMulAdd(s, a, b);
  }
  for (VF32& s : sum) sink[2] += hn::GetLane(s);
  return iterations * 12 * static_cast<int64_t>(hn::Lanes(d));
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace lamina
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

#include "benchmark/benchmark.h"
#include "lamina/attention/decode_attention.h"
#include "lamina/core/device.h"
#include "lamina/core/parallel.h"

namespace lamina {

HWY_EXPORT(FmaLoop);

namespace {

double PeakFlops(int threads) {
  double best = 0;
  for (int repeat = 0; repeat < 5; ++repeat) {
    const auto start = std::chrono::steady_clock::now();
    ParallelFor(Stream::Cpu(threads), threads, 1,
                [&](int64_t begin, int64_t end, int) {
                  for (int64_t i = begin; i < end; ++i) {
                    float sink[3] = {0.5f, 0.5f, 0.0f};
                    HWY_DYNAMIC_DISPATCH(FmaLoop)(2000000, sink);
                    benchmark::DoNotOptimize(sink[2]);
                  }
                });
    const std::chrono::duration<double> elapsed =
        std::chrono::steady_clock::now() - start;
    float sink[3] = {0.5f, 0.5f, 0.0f};
    const double lanes =
        static_cast<double>(HWY_DYNAMIC_DISPATCH(FmaLoop)(1, sink)) / 12;
    best = std::max(best, 2 * lanes * 12 * 2000000 * threads / elapsed.count());
  }
  return best;
}

struct Shape {
  const char* name;
  int64_t heads, kv_heads, head_dim;
};
constexpr Shape kSmolLm2 = {"smollm2-135m", 9, 3, 64};
constexpr Shape kLlama3 = {"llama3-8b", 32, 8, 128};

// `tokens` tokens of one sequence, the last at position context - 1.
void Run(benchmark::State& state, Shape shape, DType kv_type, int64_t context,
         int64_t tokens, int threads) {
  const int64_t vector = shape.kv_heads * shape.head_dim;
  const int64_t layer_bytes = 2 * BytesFor(kv_type, context * vector);
  // Layers in turn, so that keys and values come from memory.
  const int64_t layers =
      tokens > 1 ? 1 : std::max<int64_t>(1, (int64_t{160} << 20) / layer_bytes);
  // Small codes: finite and plausible in every type.
  std::vector<uint8_t> memory(static_cast<size_t>(layers * layer_bytes), 0x2c);
  const int64_t row = shape.heads * shape.head_dim;
  std::vector<float> q(static_cast<size_t>(tokens * row), 0.1f);
  std::vector<float> y(q.size());
  std::vector<int32_t> positions, ids(static_cast<size_t>(tokens), 0);
  double attended = 0;
  for (int64_t t = 0; t < tokens; ++t) {
    positions.push_back(static_cast<int32_t>(context - tokens + t));
    attended += static_cast<double>(positions.back() + 1);
  }
  const Stream stream = Stream::Cpu(threads);
  int64_t layer = 0;
  for (auto _ : state) {
    uint8_t* k = memory.data() + layer * layer_bytes;
    const absl::Status status = DecodeAttention(
        {.q = Heads(q.data(), tokens, shape.heads, shape.head_dim),
         .cache = DenseKvCache(k, k + layer_bytes / 2, kv_type, 1, context,
                               shape.kv_heads, shape.head_dim),
         .sequence_ids = ids.data(),
         .positions = positions.data(),
         .max_position = context - 1,
         .y = Heads(y.data(), tokens, shape.heads, shape.head_dim)},
        stream);
    if (!status.ok()) state.SkipWithError(std::string(status.message()).c_str());
    layer = (layer + 1) % layers;
  }
  const double flops =
      4 * attended * static_cast<double>(row) *
      static_cast<double>(state.iterations());
  const double bytes =
      static_cast<double>(layer_bytes) * static_cast<double>(state.iterations());
  static const double bandwidth[] = {MeasureReadBandwidth({}, 1),
                                     MeasureReadBandwidth({}, 0)};
  static const double peak = PeakFlops(1);
  using benchmark::Counter;
  state.counters["flops"] = Counter(flops, Counter::kIsRate);
  if (tokens > 1) {
    state.counters["limit"] =
        Counter(flops / (peak * threads), Counter::kIsRate);
  } else {
    state.counters["bytes_per_second"] = Counter(bytes, Counter::kIsRate);
    state.counters["limit"] =
        Counter(bytes / bandwidth[threads > 1], Counter::kIsRate);
  }
}

void Register() {
  const int all = GetDeviceInfo({}).num_units;
  const auto add = [&](Shape shape, DType type, int64_t context,
                       int64_t tokens, int threads) {
    const std::string name =
        std::string(tokens == 1 ? "decode/" : "prefill/") + shape.name +
        "/kv:" + Name(type) + "/context:" + std::to_string(context) +
        "/threads:" + std::to_string(threads);
    benchmark::RegisterBenchmark(name.c_str(), [=](benchmark::State& state) {
      Run(state, shape, type, context, tokens, threads);
    })->UseRealTime()->Unit(benchmark::kMicrosecond);
  };
  for (int threads : {1, all}) {
    for (DType type : {DType::kF32, DType::kF16, DType::kBF16,
                       DType::kF8E4M3Fn}) {
      add(kSmolLm2, type, 2000, 1, threads);
    }
    add(kSmolLm2, DType::kBF16, 200, 1, threads);
    add(kLlama3, DType::kBF16, 4096, 1, threads);
    for (int64_t tokens : {512, 2000}) {
      add(kSmolLm2, DType::kBF16, tokens, tokens, threads);
    }
    add(kLlama3, DType::kBF16, 512, 512, threads);
    if (all == 1) break;
  }
}

}  // namespace
}  // namespace lamina

int main(int argc, char** argv) {
  lamina::Register();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
}
#endif  // HWY_ONCE
