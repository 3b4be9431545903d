// SkinnyGemm: on the CPU projections of Llama-3-8B and SmolLM2-135M; on a GPU
// those of Llama-3.1 8B, 70B and one of eight shards of 405B, beside the time
// to read the weights and, where it has the types, cuBLASLt.

#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "bench/cases.h"
#include "bench/peers/cublaslt_peer.h"
#include "bench/support/working_sets.h"
#include "lamina/core/device/built_backends.h"
#include "lamina/core/math.h"
#include "lamina/gemm/skinny_gemm.h"

namespace lamina::bench {
namespace {

struct Shape {
  int64_t n;
  int64_t k;
};

// Of FP8 operands: one scale each; one a row of x and of w; one for 1 x 128 of
// x and 128 x 128 of w.
enum class Scaling { kNone, kPerTensor, kPerRow, kPerBlock };
const char* Name(Scaling scaling) {
  switch (scaling) {
    case Scaling::kNone:
    case Scaling::kPerTensor:
      return "";
    case Scaling::kPerRow:
      return "/per_row";
    case Scaling::kPerBlock:
      return "/per_block";
  }
  return "invalid";
}

// What follows the product.
enum class Ending { kPlain, kResidual, kGated, kQuantized };
const char* Name(Ending ending) {
  switch (ending) {
    case Ending::kPlain:
      return "";
    case Ending::kResidual:
      return "/residual";
    case Ending::kGated:
      return "/gated";
    case Ending::kQuantized:
      return "/quantized";
  }
  return "invalid";
}

struct GemmSpec {
  int64_t m = 1;
  Shape shape = {};
  Scaling x_scaling = Scaling::kNone;
  Scaling w_scaling = Scaling::kNone;
  Ending ending = Ending::kPlain;

  int64_t out_cols() const {
    return ending == Ending::kGated ? shape.n / 2 : shape.n;
  }
};

ConstScaleView ScalesOf(const WorkingSets<float>& scales, Scaling scaling,
                        int64_t cols, bool tiles) {
  switch (scaling) {
    case Scaling::kNone:
      return {};
    case Scaling::kPerTensor:
      return PerTensor(scales[0]);
    case Scaling::kPerRow:
      return PerRow(scales[0]);
    case Scaling::kPerBlock:
      return tiles ? PerTile(scales[0], cols) : PerBlock(scales[0], cols, 128);
  }
  return {};
}

template <class X, class W>
Calls Prepare(const GemmSpec& spec, int64_t sets, const Stream& stream) {
  const int64_t m = spec.m;
  const auto [n, k] = spec.shape;
  const int64_t cols = spec.out_cols();
  const WorkingSets<X> x(stream, 1, m * k);
  const WorkingSets<W> w(stream, sets, n * k);
  const WorkingSets<float> x_scales(stream, 1, m * CeilDiv(k, 128), 0.5f, 1.5f);
  const WorkingSets<float> w_scales(stream, 1, n + CeilDiv(n * k, 16384), 0.5f,
                                    1.5f);
  const WorkingSets<BF16> residual(stream, 1, m * cols);
  const WorkingSets<BF16> y(stream, 1, m * cols);
  const WorkingSets<F8E4M3Fn> codes(stream, 1, m * cols);
  const SkinnyGemmProblem problem{
      .m = m,
      .n = n,
      .k = k,
      .x_type = DTypeOf<X>::value,
      .w_type = DTypeOf<W>::value,
      .gated = spec.ending == Ending::kGated,
      .quantized = spec.ending == Ending::kQuantized};
  const int64_t workspace_bytes =
      SkinnyGemmWorkspaceBytes(problem, GetDeviceInfo(stream.device()),
                               stream.num_threads())
          .value_or(0);
  const WorkingSets<F8E4M3Fn> workspace(stream, 1, workspace_bytes);
  Calls calls;
  calls.ours = [=](int64_t set, const Stream& on) {
    SkinnyGemmArgs args{
        .x = Matrix(x[0], m, k),
        .x_scales = ScalesOf(x_scales, spec.x_scaling, k, /*tiles=*/false),
        .w = Matrix(w[set], n, k),
        .w_scales = ScalesOf(w_scales, spec.w_scaling, k, /*tiles=*/true),
        .y = Matrix(y[0], m, cols),
        .workspace = workspace[0],
        .workspace_bytes = workspace_bytes};
    if (spec.ending == Ending::kGated) args.gate = GateSpec{};
    if (spec.ending == Ending::kResidual) {
      args.residual = Matrix(residual[0], m, cols);
    }
    if (spec.ending == Ending::kQuantized) {
      args.y.data = nullptr;
      args.quantized = {.codes = Matrix(codes[0], m, cols),
                        .scales = PerTensor(x_scales[0])};
    }
    return SkinnyGemm(args, on);
  };
  if constexpr (kHasCuda && std::is_same_v<X, W>) {
    if (stream.device().backend == Backend::kCuda &&
        spec.ending == Ending::kPlain &&
        spec.w_scaling <= Scaling::kPerTensor) {
      calls.peers = CublasLtPeer(
          {.type = DTypeOf<X>::value,
           .m = m,
           .n = n,
           .k = k,
           .x_scale = x_scales[0],
           .w_scale = w_scales[0]},
          sets,
          [=](int64_t set) {
            return CublasLtOperands{.x = x[0], .w = w[set], .y = y[0]};
          },
          stream);
      calls.output = [=](int64_t) { return Vector(y[0], m * n); };
    }
  }
  return calls;
}

// The limit is the time to read the weights; on the CPU all that is read and
// written.
template <class X, class W>
Case SkinnyGemmCase(const GemmSpec& spec, Backend backend) {
  const DType w_type = DTypeOf<W>::value;
  const auto [n, k] = spec.shape;
  const std::string dtype =
      std::string(lamina::Name(DTypeOf<X>::value)) + "_" + lamina::Name(w_type);
  int64_t bytes = BytesFor(w_type, n * k);
  if (backend == Backend::kCpu) {
    bytes +=
        (spec.w_scaling == Scaling::kPerRow ? 4 * n : 0) + 2 * spec.m * (n + k);
  }
  return {.op = "skinny_gemm",
          .name = dtype + Name(spec.w_scaling) + Name(spec.ending) +
                  "/m:" + std::to_string(spec.m) + "/n:" + std::to_string(n) +
                  "/k:" + std::to_string(k),
          .dtype = dtype,
          .m = spec.m,
          .n = n,
          .k = k,
          .bytes = bytes,
          .prepare = [=](int64_t sets, const Stream& stream) {
            return Prepare<X, W>(spec, sets, stream);
          }};
}

std::vector<Case> CpuCases() {
  const auto bf16 = [](int64_t m, Shape shape) {
    return SkinnyGemmCase<BF16, BF16>({.m = m, .shape = shape}, Backend::kCpu);
  };
  const auto fp8 = [](int64_t m, Shape shape) {
    return SkinnyGemmCase<BF16, F8E4M3Fn>(
        {.m = m, .shape = shape, .w_scaling = Scaling::kPerRow}, Backend::kCpu);
  };
  std::vector<Case> cases;
  for (const int64_t m : {1, 8, 64}) {
    cases.push_back(bf16(m, {4096, 4096}));
    cases.push_back(fp8(m, {4096, 4096}));
  }
  cases.push_back(bf16(1, {3072, 576}));
  cases.push_back(fp8(1, {3072, 576}));
  return cases;
}

// qkv, o, gate + up and down; of 405B with n or k in eight parts.
constexpr Shape kGpuShapes[] = {
    {6144, 4096},  {4096, 4096},   {28672, 4096}, {4096, 14336},
    {10240, 8192}, {57344, 8192},  {8192, 28672}, {2304, 16384},
    {16384, 2048}, {13312, 16384}, {16384, 6656},
};

std::vector<Case> GpuCases(Backend backend) {
  constexpr auto kPerTensor = Scaling::kPerTensor;
  std::vector<Case> cases;
  for (const Shape shape : kGpuShapes) {
    for (const int64_t m : {1, 2, 4, 8, 16, 32, 64}) {
      cases.push_back(
          SkinnyGemmCase<F8E4M3Fn, F8E4M3Fn>({.m = m,
                                              .shape = shape,
                                              .x_scaling = kPerTensor,
                                              .w_scaling = kPerTensor},
                                             backend));
      cases.push_back(SkinnyGemmCase<BF16, F8E4M3Fn>(
          {.m = m, .shape = shape, .w_scaling = kPerTensor}, backend));
      cases.push_back(
          SkinnyGemmCase<BF16, BF16>({.m = m, .shape = shape}, backend));
    }
  }
  // Other scales and endings, beside the plain cases above.
  for (const Shape shape : {Shape{28672, 4096}, Shape{4096, 14336}}) {
    for (const int64_t m : {1, 8, 16}) {
      for (const Scaling scaling : {Scaling::kPerRow, Scaling::kPerBlock}) {
        cases.push_back(
            SkinnyGemmCase<F8E4M3Fn, F8E4M3Fn>({.m = m,
                                                .shape = shape,
                                                .x_scaling = scaling,
                                                .w_scaling = scaling},
                                               backend));
      }
      for (const Ending ending :
           {Ending::kResidual, Ending::kGated, Ending::kQuantized}) {
        cases.push_back(
            SkinnyGemmCase<F8E4M3Fn, F8E4M3Fn>({.m = m,
                                                .shape = shape,
                                                .x_scaling = kPerTensor,
                                                .w_scaling = kPerTensor,
                                                .ending = ending},
                                               backend));
      }
    }
  }
  return cases;
}

}  // namespace

std::vector<Case> SkinnyGemmCases(Backend backend) {
  return backend == Backend::kCpu ? CpuCases() : GpuCases(backend);
}

}  // namespace lamina::bench
