#pragma once

// CUDA kernels as one would write them without this library, to be timed
// beside it: one block a row, the sum of the row by shuffles, every value read
// a second time for the result.
//   naive       one element at a time
//   vectorised  16 bytes at a time
//   CUB         vectorised, the sum by cub::BlockReduce; rows of fp32 by
//               cub::DeviceSegmentedReduce
// They are written for the shapes of the benchmarks: dense rows, columns a
// multiple of 8.

#include <cstdint>

#include "lamina/core/dtype.h"
#include "lamina/core/launch.h"

namespace lamina::bench {

enum class PeerKind { kNaive, kVectorised, kCub };
constexpr const char* Name(PeerKind kind) {
  switch (kind) {
    case PeerKind::kNaive:
      return "naive";
    case PeerKind::kVectorised:
      return "vectorised";
    case PeerKind::kCub:
      return "CUB";
  }
  return "invalid";
}

// y = norm(x) * weight; with `residual`: residual = x + residual, y of that.
// bf16 also to e4m3fn codes with one scale instead of y.
struct NormPeerArgs {
  DType dtype = DType::kBF16;  // kF32, kF16, kBF16
  const void* x = nullptr;
  void* residual = nullptr;
  const void* weight = nullptr;
  void* y = nullptr;
  void* codes = nullptr;
  const float* scale = nullptr;
  int64_t rows = 0;
  int64_t cols = 0;
  float epsilon = 0;
};
gpu::Error LaunchNormPeer(PeerKind kind, const NormPeerArgs& args,
                          const gpu::LaunchTarget& target);

// codes = e4m3fn(silu(gate) * up / scale); x is [rows, gate | up], bf16.
struct GatedPeerArgs {
  const void* x = nullptr;
  void* codes = nullptr;
  const float* scale = nullptr;
  int64_t rows = 0;
  int64_t cols = 0;
};
gpu::Error LaunchGatedPeer(PeerKind kind, const GatedPeerArgs& args,
                           const gpu::LaunchTarget& target);

// codes = e4m3fn(x / scale), scale = amax(row) / 448; x is bf16.
struct QuantizePeerArgs {
  const void* x = nullptr;
  void* codes = nullptr;
  float* scales = nullptr;
  int64_t rows = 0;
  int64_t cols = 0;
};
gpu::Error LaunchQuantizePeer(PeerKind kind, const QuantizePeerArgs& args,
                              const gpu::LaunchTarget& target);

// Sums of rows of fp32. With null scratch only *scratch_bytes is set.
struct SegmentedSumArgs {
  const float* x = nullptr;
  float* y = nullptr;
  int64_t rows = 0;
  int64_t cols = 0;
  void* scratch = nullptr;
};
gpu::Error LaunchSegmentedSum(const SegmentedSumArgs& args,
                              size_t* scratch_bytes,
                              const gpu::LaunchTarget& target);

}  // namespace lamina::bench
