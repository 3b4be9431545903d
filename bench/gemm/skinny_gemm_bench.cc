// SkinnyGemm at the shapes of SmolLM2-135M, with cold weights: each call takes
// the next of a set of matrices of more than three times the last-level cache.
//
//   skinny_gemm_bench [--benchmark_filter=decode/bf16]
//
// decode: bytes_per_second counts the weights; `of_limit` is its ratio to the
// read bandwidth measured by the same run. prefill: `gflops`.

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "lamina/core/device.h"
#include "lamina/gemm/skinny_gemm.h"

namespace lamina {
namespace {

struct Shape {
  const char* name;
  int64_t n;
  int64_t k;
};
constexpr Shape kShapes[] = {{"qkv", 960, 576},
                             {"o", 576, 576},
                             {"gate_up", 3072, 576},
                             {"down", 576, 1536},
                             {"lm_head", 49152, 576}};

double Limit() {
  static const double limit = MeasureReadBandwidth({});
  return limit;
}

// Bytes that are no NaN in any type.
char* Weights(int64_t bytes) {
  static std::vector<char> pool;
  if (static_cast<int64_t>(pool.size()) < bytes) {
    pool.resize(static_cast<size_t>(bytes));
    uint32_t state = 1;
    for (char& byte : pool) {
      state = state * 1664525u + 1013904223u;
      byte = static_cast<char>((state >> 24) & 0xbfu);
    }
  }
  return pool.data();
}

struct Call {
  SkinnyGemmArgs args;
  std::vector<char> workspace;
  std::vector<BF16> x, y;
  std::vector<float> scales;

  Call(int64_t m, const Shape& shape, DType w_type)
      : x(static_cast<size_t>(m * shape.k), BF16{0x3f80}),
        y(static_cast<size_t>(m * shape.n)),
        scales(static_cast<size_t>(shape.n), 0.01f) {
    const auto bytes = SkinnyGemmWorkspaceBytes(
        {.m = m, .n = shape.n, .k = shape.k, .w_type = w_type},
        GetDeviceInfo({}));
    workspace.resize(static_cast<size_t>(*bytes));
    args.x = Matrix<const BF16>(x.data(), m, shape.k);
    args.w = {.dtype = w_type, .rows = shape.n, .cols = shape.k,
              .row_stride = shape.k};
    if (IsFp8(w_type)) args.w_scales = PerRow<const float>(scales.data());
    args.y = Matrix(y.data(), m, shape.n);
    args.workspace = workspace.data();
    args.workspace_bytes = *bytes;
  }
};

void Run(benchmark::State& state, int64_t m, const Shape& shape,
         DType w_type) {
  Call call(m, shape, w_type);
  const int64_t bytes = BytesFor(w_type, shape.n * shape.k);
  const int64_t pool =
      std::max(3 * GetDeviceInfo({}).cache_bytes, int64_t{270} << 20);
  const int64_t copies = std::max<int64_t>(1, pool / bytes);
  char* weights = Weights(copies * bytes);
  int64_t copy = 0;
  const Stream stream = Stream::Cpu();
  const double limit = Limit();
  for (auto _ : state) {
    call.args.w.data = weights + copy * bytes;
    copy = (copy + 1) % copies;
    const absl::Status status = SkinnyGemm(call.args, stream);
    if (!status.ok()) state.SkipWithError(status.ToString().c_str());
  }
  state.SetBytesProcessed(state.iterations() * bytes);
  const double calls = static_cast<double>(state.iterations());
  state.counters["of_limit"] =
      benchmark::Counter(calls * static_cast<double>(bytes) / limit,
                         benchmark::Counter::kIsRate);
  state.counters["gflops"] = benchmark::Counter(
      calls * 2e-9 * static_cast<double>(m * shape.n * shape.k),
      benchmark::Counter::kIsRate);
}

// All weights that one token of SmolLM2-135M needs, in order.
void RunModel(benchmark::State& state, DType w_type) {
  constexpr int kLayers = 30;
  std::vector<std::unique_ptr<Call>> calls;
  for (const Shape& shape : kShapes) {
    calls.push_back(std::make_unique<Call>(1, shape, w_type));
  }
  int64_t bytes = 0;
  for (int i = 0; i < 4; ++i) {
    bytes += kLayers * BytesFor(w_type, kShapes[i].n * kShapes[i].k);
  }
  bytes += BytesFor(w_type, kShapes[4].n * kShapes[4].k);
  char* weights = Weights(2 * bytes);
  const Stream stream = Stream::Cpu();
  const double limit = Limit();
  bool second = false;
  for (auto _ : state) {
    char* next = second ? weights + bytes : weights;
    second = !second;
    const auto run = [&](Call& call) {
      call.args.w.data = next;
      next += BytesFor(w_type, call.args.w.rows * call.args.w.cols);
      const absl::Status status = SkinnyGemm(call.args, stream);
      if (!status.ok()) state.SkipWithError(status.ToString().c_str());
    };
    for (int layer = 0; layer < kLayers; ++layer) {
      for (int i = 0; i < 4; ++i) run(*calls[static_cast<size_t>(i)]);
    }
    run(*calls[4]);
  }
  state.SetBytesProcessed(state.iterations() * bytes);
  state.counters["of_limit"] = benchmark::Counter(
      static_cast<double>(state.iterations() * bytes) / limit,
      benchmark::Counter::kIsRate);
}

void Register(const std::string& name, int64_t m, const Shape& shape,
              DType type) {
  benchmark::RegisterBenchmark(
      name.c_str(),
      [=](benchmark::State& state) { Run(state, m, shape, type); })
      ->UseRealTime()
      ->Unit(benchmark::kMicrosecond);
}

void RegisterAll() {
  for (const DType type : {DType::kBF16, DType::kF8E4M3Fn, DType::kF16,
                           DType::kF8E5M2, DType::kF8E4M3Fnuz,
                           DType::kF8E5M2Fnuz}) {
    const std::string suffix = std::string("/") + Name(type) + "/";
    benchmark::RegisterBenchmark(
        ("model" + suffix + "1").c_str(),
        [=](benchmark::State& state) { RunModel(state, type); })
        ->UseRealTime()
        ->Unit(benchmark::kMicrosecond);
    for (const Shape& shape : kShapes) {
      for (const int64_t m : {1, 2, 3, 4, 5, 6, 8, 12, 16}) {
        Register("decode" + suffix + shape.name + "/" + std::to_string(m), m,
                 shape, type);
      }
      Register("prefill" + suffix + shape.name + "/512", 512, shape, type);
    }
  }
}

}  // namespace
}  // namespace lamina

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  lamina::RegisterAll();
  const auto& cpu = lamina::GetDeviceInfo({});
  std::printf("%s, %s, %d threads: reads %.2f GB/s\n", cpu.name.c_str(),
              lamina::CpuTargetName(), cpu.num_units, lamina::Limit() / 1e9);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
