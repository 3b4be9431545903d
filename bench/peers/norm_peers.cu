// RmsNorm and AddRmsNorm, plain: bench/peers/row_peers.h.

#include <cub/block/block_reduce.cuh>
#include <type_traits>

#include "bench/peers/row_peers.cuh"
#include "bench/peers/row_peers.h"

namespace lamina::bench {
namespace {

template <bool kCub>
__device__ inline float BlockSum(float value) {
  if constexpr (kCub) {
    using Reduce = cub::BlockReduce<float, kCubThreads>;
    __shared__ typename Reduce::TempStorage storage;
    __shared__ float total;
    value = Reduce(storage).Sum(value);
    if (threadIdx.x == 0) total = value;
    __syncthreads();
    return total;
  } else {
    return BlockReduce(value, Add());
  }
}

// kSize values at once: 1 is the naive kernel.
template <class T, int kSize, bool kAdd, bool kCodes, bool kCub>
__global__ void NormPeerKernel(NormPeerArgs args) {
  struct alignas(kSize * sizeof(T)) Values {
    T value[kSize];
  };
  struct alignas(kSize) Codes {
    uint8_t value[kSize];
  };
  gpu::AllowDependents();
  gpu::WaitForPredecessor();
  const int64_t items = args.cols / kSize;
  const int64_t row = blockIdx.x * items;
  const auto* x = static_cast<const Values*>(args.x) + row;
  const auto* weight = static_cast<const Values*>(args.weight);
  auto* residual = static_cast<Values*>(args.residual) + row;

  float sum = 0;
  for (int64_t i = threadIdx.x; i < items; i += blockDim.x) {
    Values in = x[i];
    Values old = {};
    if constexpr (kAdd) old = residual[i];
#pragma unroll
    for (int j = 0; j < kSize; ++j) {
      if constexpr (kAdd) {
        in.value[j] = static_cast<T>(static_cast<float>(in.value[j]) +
                                     static_cast<float>(old.value[j]));
      }
      const float v = static_cast<float>(in.value[j]);
      sum += v * v;
    }
    if constexpr (kAdd) residual[i] = in;
  }
  const float mean = BlockSum<kCub>(sum) / static_cast<float>(args.cols);
  const float k = rsqrtf(mean + args.epsilon);

  const float inverse = kCodes ? 1.0f / *args.scale : 1.0f;
  for (int64_t i = threadIdx.x; i < items; i += blockDim.x) {
    const Values in = kAdd ? residual[i] : x[i];
    const Values w = weight[i];
    Values y;
    Codes codes;
#pragma unroll
    for (int j = 0; j < kSize; ++j) {
      const float v =
          static_cast<float>(in.value[j]) * k * static_cast<float>(w.value[j]);
      if constexpr (kCodes) {
        codes.value[j] = ToCode(v * inverse);
      } else {
        y.value[j] = static_cast<T>(v);
      }
    }
    if constexpr (kCodes) {
      static_cast<Codes*>(args.codes)[row + i] = codes;
    } else {
      static_cast<Values*>(args.y)[row + i] = y;
    }
  }
}

template <class T, int kSize, bool kCub>
gpu::Error Run(const NormPeerArgs& args, const gpu::LaunchTarget& target) {
  const gpu::LaunchShape shape{
      .blocks = args.rows,
      .threads = kCub ? kCubThreads : RowThreads(args.rows, args.cols / kSize)};
  if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    if (args.codes != nullptr) {
      return args.residual != nullptr
                 ? gpu::Launch(&NormPeerKernel<T, kSize, true, true, kCub>,
                               shape, target, args)
                 : gpu::Launch(&NormPeerKernel<T, kSize, false, true, kCub>,
                               shape, target, args);
    }
  }
  return args.residual != nullptr
             ? gpu::Launch(&NormPeerKernel<T, kSize, true, false, kCub>, shape,
                           target, args)
             : gpu::Launch(&NormPeerKernel<T, kSize, false, false, kCub>, shape,
                           target, args);
}

template <class T>
gpu::Error RunKind(PeerKind kind, const NormPeerArgs& args,
                   const gpu::LaunchTarget& target) {
  constexpr int kVector = 16 / sizeof(T);
  switch (kind) {
    case PeerKind::kNaive:
      return Run<T, 1, false>(args, target);
    case PeerKind::kVectorised:
      return Run<T, kVector, false>(args, target);
    case PeerKind::kCub:
      return Run<T, kVector, true>(args, target);
  }
  return gpu::kNoKernel;
}

}  // namespace

gpu::Error LaunchNormPeer(PeerKind kind, const NormPeerArgs& args,
                          const gpu::LaunchTarget& target) {
  switch (args.dtype) {
    case DType::kF32:
      return RunKind<float>(kind, args, target);
    case DType::kF16:
      return RunKind<__half>(kind, args, target);
    case DType::kBF16:
      return RunKind<__nv_bfloat16>(kind, args, target);
    default:
      return gpu::kNoKernel;
  }
}

}  // namespace lamina::bench
