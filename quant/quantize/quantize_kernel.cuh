#pragma once

// code = convert(x / scale), scale = amax / qmax: see quant/quantize.h.
//
// A lane owns octets. Static scales and scales of blocks: small blocks of
// threads over (row, span of columns). A dynamic scale a row, or a tile of 128
// x 128: its lanes keep it in registers; a longer row is read twice. A dynamic
// scale of the tensor: one kernel for the maxima of its parts, then every block
// takes the largest of them. Bytes per element: 4 or 2 read (twice for the
// tensor), 1 written.

#include <cstdint>

#include "lamina/core/octet.cuh"
#include "lamina/core/span_lanes.cuh"
#include "lamina/quant/quantize/quantize_args.h"
#include "lamina/quant/store_quantized.cuh"
#include "lamina/reduce/row_reduce.cuh"

namespace lamina::quant_internal {

using gpu::kOctet;
using gpu::Octet;

// The first `count` columns of an octet of x; nothing is read for none.
template <class T, bool kWhole>
__device__ inline Octet LoadX(const QuantizeKernelArgs& args, int64_t row,
                              int64_t col, int count) {
  if (count <= 0) return {};
  const T* const p = args.x.Row<T>(row) + col;
  if constexpr (kWhole) {
    return gpu::LoadOctet(p);
  } else {
    return gpu::LoadOctetUpTo(p, count);
  }
}

// The lanes of a block, for a reduction over all of them.
template <int kWave>
using BlockLanes = gpu::RowLanes<kWave, gpu::RowScope::kBlock, 1>;

// The dynamic scale of the tensor, from the maxima of its parts. Block 0 stores
// it.
template <int kWave>
__device__ inline float TensorScale(const QuantizeKernelArgs& args) {
  BlockLanes<kWave> lanes(gpu::BlockThreads(), 0);
  float amax = 0.0f;
  for (int i = gpu::ThreadIndex(); i < args.num_partials;
       i += gpu::BlockThreads()) {
    amax = gpu::Larger{}(amax, args.partials[i]);
  }
  const float scale =
      gpu::DynamicScale(args.out, lanes.Reduce(amax, 0, gpu::Larger{}));
  if (gpu::BlockIndex() == 0 && gpu::ThreadIndex() == 0) {
    gpu::StoreDynamicScale(args.out, 0, 0, scale);
  }
  return scale;
}

template <class T, QuantizeVariant kVariant>
__device__ inline void RunSpans(const QuantizeKernelArgs& args) {
  constexpr int kWave = kVariant.wave_size;
  constexpr bool kWhole = kVariant.whole;
  const QuantizedArgs& out = args.out;
  gpu::AllowDependents();
  const float static_scale = gpu::StaticScale(out);
  const gpu::SpanLane lane(args.span, args.x.total_rows(), args.x.cols);
  int left = lane.left();
  int64_t col = lane.col();

  gpu::WaitForPredecessor();
  float inverse = 0.0f;
  const bool per_tensor =
      out.scales.granularity == ScaleGranularity::kPerTensor;
  if (per_tensor) {
    inverse = out.dynamic ? gpu::DynamicInverse(TensorScale<kWave>(args))
                          : gpu::Divide(1.0f, static_scale);
  }
#pragma unroll 1
  for (int k = 0; k < args.span.octets; ++k) {
    const int count = left < kOctet ? left : kOctet;
    const Octet values = LoadX<T, kWhole>(args, lane.row(), col, count);
    if (per_tensor) {
      gpu::StoreCodes<kWhole>(out, lane.row(), col, count, values, inverse);
    } else {
      gpu::StoreQuantizedOctet<T, kWave, kWhole>(
          out, static_scale, lane.row(), col, count, values,
          args.span.lanes < kWave ? args.span.lanes : kWave);
    }
    col += lane.step();
    left -= lane.step();
  }
}

template <class T, QuantizeVariant kVariant>
__device__ inline void RunRow(const QuantizeKernelArgs& args) {
  constexpr int kOctets = kVariant.octets;
  gpu::AllowDependents();
  gpu::RowLanes<kVariant.wave_size, kVariant.scope, kOctets> lanes(
      args.lanes, args.x.cols, args.first_row);
  const bool exists = lanes.row() < args.x.total_rows();
  gpu::WaitForPredecessor();
  Octet values[kOctets];
#pragma unroll
  for (int k = 0; k < kOctets; ++k) {
    values[k] = LoadX<T, kVariant.whole>(args, lanes.row(), lanes.Column(k),
                                         exists ? lanes.Count(k) : 0);
  }
  gpu::StoreQuantizedRow<T, kVariant.whole>(args.out, 1.0f, lanes, values, 0);
}

template <class T, QuantizeVariant kVariant>
__device__ inline void RunLongRow(const QuantizeKernelArgs& args) {
  constexpr bool kWhole = kVariant.whole;
  gpu::AllowDependents();
  gpu::RowLanes<kVariant.wave_size, kVariant.scope, kVariant.octets> lanes(
      args.lanes, args.x.cols, args.first_row);
  const int64_t row = lanes.row();
  const auto for_each_octet = [&](auto&& f) {
    for (int64_t begin = 0; begin < args.x.cols; begin += lanes.columns()) {
      lanes.MoveTo(begin);
#pragma unroll
      for (int k = 0; k < kVariant.octets; ++k) {
        const int64_t col = lanes.Column(k);
        const int count = lanes.Count(k);
        f(col, count, LoadX<T, kWhole>(args, row, col, count));
      }
    }
  };
  gpu::WaitForPredecessor();
  float amax = 0.0f;
  for_each_octet([&](int64_t, int count, const Octet& values) {
    amax = gpu::FiniteAbsMax<kWhole>(values, count, amax);
  });
  const float scale =
      gpu::DynamicScale(args.out, lanes.Reduce(amax, 0, gpu::Larger{}));
  if (lanes.lane() == 0) gpu::StoreDynamicScale(args.out, row, 0, scale);
  const float inverse = gpu::DynamicInverse(scale);
  for_each_octet([&](int64_t col, int count, const Octet& values) {
    gpu::StoreCodes<kWhole>(args.out, row, col, count, values, inverse);
  });
}

// Tiles of 128 x 128: 16 lanes for a row, 8 octets a lane.
template <class T, QuantizeVariant kVariant>
__device__ inline void RunTile(const QuantizeKernelArgs& args) {
  constexpr int kTile = 128;
  constexpr int kRowLanes = kTile / kOctet;
  constexpr int kRowStep = kTileThreads / kRowLanes;
  constexpr int kOctets = kTile / kRowStep;
  gpu::AllowDependents();
  BlockLanes<kVariant.wave_size> lanes(kTileThreads, 0);
  const int64_t tile_cols = CeilDiv(args.x.cols, kTile);
  const int64_t tile_row = gpu::BlockIndex() / tile_cols;
  const int64_t tile_col = gpu::BlockIndex() - tile_row * tile_cols;
  const int64_t row = tile_row * kTile + gpu::ThreadIndex() / kRowLanes;
  const int64_t col =
      tile_col * kTile + gpu::ThreadIndex() % kRowLanes * kOctet;
  const int64_t left = args.x.cols - col;
  const int cols = left < kOctet ? static_cast<int>(left) : kOctet;
  const auto count = [&](int k) {
    return row + k * kRowStep < args.x.total_rows() ? cols : 0;
  };

  gpu::WaitForPredecessor();
  Octet values[kOctets];
  float amax = 0.0f;
#pragma unroll
  for (int k = 0; k < kOctets; ++k) {
    values[k] =
        LoadX<T, kVariant.whole>(args, row + k * kRowStep, col, count(k));
  }
#pragma unroll
  for (int k = 0; k < kOctets; ++k) {
    amax = gpu::FiniteAbsMax<kVariant.whole>(values[k], count(k), amax);
  }
  const float scale =
      gpu::DynamicScale(args.out, lanes.Reduce(amax, 0, gpu::Larger{}));
  if (gpu::ThreadIndex() == 0) {
    gpu::StoreDynamicScale(args.out, row, col, scale);
  }
  const float inverse = gpu::DynamicInverse(scale);
#pragma unroll
  for (int k = 0; k < kOctets; ++k) {
    gpu::StoreCodes<kVariant.whole>(args.out, row + k * kRowStep, col, count(k),
                                    values[k], inverse);
  }
}

template <class T, QuantizeVariant kVariant>
__device__ inline void RunAmax(const QuantizeKernelArgs& args) {
  gpu::AllowDependents();
  BlockLanes<kVariant.wave_size> lanes(kTileThreads, 0);
  gpu::WaitForPredecessor();
  float amax = 0.0f;
  for (int64_t block = gpu::BlockIndex(); block < args.span_blocks;
       block += gpu::BlockCount()) {
    const gpu::SpanLane lane(args.span, args.x.total_rows(), args.x.cols,
                             block);
    const int count = lane.left() < kOctet ? lane.left() : kOctet;
    amax = gpu::FiniteAbsMax<kVariant.whole>(
        LoadX<T, kVariant.whole>(args, lane.row(), lane.col(), count), count,
        amax);
  }
  amax = lanes.Reduce(amax, 0, gpu::Larger{});
  if (gpu::ThreadIndex() == 0) args.partials[gpu::BlockIndex()] = amax;
}

template <class T, QuantizeVariant kVariant>
__device__ inline void RunQuantize(const QuantizeKernelArgs& args) {
  // NOTE: not a switch: only one of them is compiled.
  if constexpr (!gpu::kWaveRunsHere<kVariant.wave_size>) {
    return;
  } else if constexpr (kVariant.kernel == QuantizeKernel::kSpans) {
    RunSpans<T, kVariant>(args);
  } else if constexpr (kVariant.kernel == QuantizeKernel::kRow) {
    RunRow<T, kVariant>(args);
  } else if constexpr (kVariant.kernel == QuantizeKernel::kLongRow) {
    RunLongRow<T, kVariant>(args);
  } else if constexpr (kVariant.kernel == QuantizeKernel::kTile) {
    RunTile<T, kVariant>(args);
  } else {
    RunAmax<T, kVariant>(args);
  }
}

}  // namespace lamina::quant_internal
