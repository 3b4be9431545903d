// SwiGLU into FP8 and quantisation with a scale a row, plain:
// bench/peers/row_peers.h.

#include "bench/peers/row_peers.cuh"
#include "bench/peers/row_peers.h"

namespace lamina::bench {
namespace {

template <int kSize>
struct alignas(kSize * 2) Values {
  __nv_bfloat16 value[kSize];
};
template <int kSize>
struct alignas(kSize) Codes {
  uint8_t value[kSize];
};

__device__ inline float Silu(float v) { return v / (1.0f + __expf(-v)); }

// Naive: a block has a row and goes along it. Vectorised: a block has a part of
// a row, a thread eight columns.
template <int kSize>
__global__ void GatedPeerKernel(GatedPeerArgs args) {
  gpu::AllowDependents();
  gpu::WaitForPredecessor();
  const int64_t items = args.cols / kSize;
  const int64_t blocks_a_row = gridDim.x / args.rows;
  const int64_t row = blockIdx.x / blocks_a_row;
  const auto* gate =
      static_cast<const Values<kSize>*>(args.x) + 2 * row * items;
  const auto* up = gate + items;
  auto* out = static_cast<Codes<kSize>*>(args.codes) + row * items;
  const float inverse = 1.0f / *args.scale;
  const int64_t first = blockIdx.x % blocks_a_row * blockDim.x + threadIdx.x;
  for (int64_t i = first; i < items; i += blocks_a_row * blockDim.x) {
    const Values<kSize> g = gate[i];
    const Values<kSize> u = up[i];
    Codes<kSize> codes;
#pragma unroll
    for (int j = 0; j < kSize; ++j) {
      codes.value[j] = ToCode(Silu(static_cast<float>(g.value[j])) *
                              static_cast<float>(u.value[j]) * inverse);
    }
    out[i] = codes;
  }
}

template <int kSize>
__global__ void QuantizePeerKernel(QuantizePeerArgs args) {
  gpu::AllowDependents();
  gpu::WaitForPredecessor();
  const int64_t items = args.cols / kSize;
  const auto* x =
      static_cast<const Values<kSize>*>(args.x) + blockIdx.x * items;
  auto* out = static_cast<Codes<kSize>*>(args.codes) + blockIdx.x * items;
  float amax = 0;
  for (int64_t i = threadIdx.x; i < items; i += blockDim.x) {
    const Values<kSize> in = x[i];
#pragma unroll
    for (int j = 0; j < kSize; ++j) {
      amax = fmaxf(amax, fabsf(static_cast<float>(in.value[j])));
    }
  }
  const float scale = fmaxf(BlockReduce(amax, Max()) / 448.0f, 1e-10f);
  const float inverse = 1.0f / scale;
  if (threadIdx.x == 0) args.scales[blockIdx.x] = scale;
  for (int64_t i = threadIdx.x; i < items; i += blockDim.x) {
    const Values<kSize> in = x[i];
    Codes<kSize> codes;
#pragma unroll
    for (int j = 0; j < kSize; ++j) {
      codes.value[j] = ToCode(static_cast<float>(in.value[j]) * inverse);
    }
    out[i] = codes;
  }
}

}  // namespace

gpu::Error LaunchGatedPeer(PeerKind kind, const GatedPeerArgs& args,
                           const gpu::LaunchTarget& target) {
  if (kind == PeerKind::kNaive) {
    return gpu::Launch(
        &GatedPeerKernel<1>,
        {.blocks = args.rows, .threads = RowThreads(args.rows, args.cols)},
        target, args);
  }
  if (kind == PeerKind::kVectorised) {
    constexpr int kThreads = 128;
    const int64_t blocks_a_row = (args.cols / 8 + kThreads - 1) / kThreads;
    return gpu::Launch(
        &GatedPeerKernel<8>,
        {.blocks = args.rows * blocks_a_row, .threads = kThreads}, target,
        args);
  }
  return gpu::kNoKernel;
}

gpu::Error LaunchQuantizePeer(PeerKind kind, const QuantizePeerArgs& args,
                              const gpu::LaunchTarget& target) {
  if (kind == PeerKind::kNaive) {
    return gpu::Launch(
        &QuantizePeerKernel<1>,
        {.blocks = args.rows, .threads = RowThreads(args.rows, args.cols)},
        target, args);
  }
  if (kind == PeerKind::kVectorised) {
    return gpu::Launch(
        &QuantizePeerKernel<8>,
        {.blocks = args.rows, .threads = RowThreads(args.rows, args.cols / 8)},
        target, args);
  }
  return gpu::kNoKernel;
}

}  // namespace lamina::bench
