#pragma once

// y = act(x) or act(gate) * up on a GPU: y, codes or both (core/gate.h,
// quant/scale.h).
//
// A lane owns an octet of results. Static scales and scales of column blocks:
// small blocks of threads over (row, span of columns). One dynamic scale a row:
// the lanes of a row (reduce/row_reduce.cuh) keep it in registers; a row that
// does not fit is computed twice. Bytes for each result: 1 or 2 elements of x
// read once, y and codes written once. About 31 instructions for a result of
// bf16 SwiGLU with codes: as long as its 5 bytes take on an H200.

#include <cstdint>

#include "lamina/activation/row_outputs_args.h"
#include "lamina/core/gate.cuh"
#include "lamina/core/octet.cuh"
#include "lamina/core/span_lanes.cuh"
#include "lamina/quant/store_quantized.cuh"
#include "lamina/reduce/row_reduce.cuh"

namespace lamina::activation_internal {

using gpu::kOctet;
using gpu::Octet;

// x that makes an octet of results. A plain activation is gated by 1.
struct GateAndUp {
  Octet gate;
  Octet up;
};

__device__ inline GateAndUp Deinterleave(const Octet& low, const Octet& high) {
  GateAndUp v;
#pragma unroll
  for (int i = 0; i < kOctet / 2; ++i) {
    v.gate.v[i] = low.v[2 * i];
    v.up.v[i] = low.v[2 * i + 1];
    v.gate.v[i + kOctet / 2] = high.v[2 * i];
    v.up.v[i + kOctet / 2] = high.v[2 * i + 1];
  }
  return v;
}

template <bool kWhole, class T>
__device__ inline Octet LoadColumns(const T* p, int count) {
  if constexpr (kWhole) {
    return gpu::LoadOctet(p);
  } else {
    return gpu::LoadOctetUpTo(p, count);
  }
}

// Where the input and the outputs of an octet are. Those at `offset` columns
// from it are found with one instruction each.
template <class T>
struct Places {
  const T* first;   // gate; kInterleaved: four pairs
  const T* second;  // up; kInterleaved: the other four
  T* y = nullptr;
  uint8_t* codes = nullptr;

  __device__ Places(const RowKernelArgs& args, int64_t row, int64_t col) {
    const T* const x = args.x.Row<T>(row);
    if (args.input == RowInput::kInterleaved) {
      first = x + 2 * col;
      second = first + kOctet;
    } else {
      first = x + (args.gate_begin + col);
      second = x + (args.up_begin + col);
    }
    if (args.y.has_value()) y = args.y.Row<T>(row) + col;
    if (args.quantized.has_value()) {
      codes = args.quantized.codes.Row<uint8_t>(row) + col;
    }
  }
};

// kWhole: always a whole octet, from where there is one.
template <class T, bool kWhole>
__device__ inline GateAndUp LoadInput(const RowKernelArgs& args,
                                      const Places<T>& at, int offset,
                                      int count) {
  if (args.input == RowInput::kInterleaved) {
    const Octet low = LoadColumns<kWhole>(at.first + 2 * offset, 2 * count);
    const Octet high =
        LoadColumns<kWhole>(at.second + 2 * offset, 2 * count - kOctet);
    return Deinterleave(low, high);
  }
  GateAndUp v;
  v.gate = LoadColumns<kWhole>(at.first + offset, count);
  if (args.input == RowInput::kHalves) {
    v.up = LoadColumns<kWhole>(at.second + offset, count);
  } else {
    v.up = gpu::Map(v.gate, [](float) { return 1.0f; });
  }
  return v;
}

template <class T, bool kWhole>
__device__ inline void StoreY(const RowKernelArgs& args, T* y, int offset,
                              int count, const Octet& values) {
  if (!args.y.has_value() || count <= 0) return;
  if constexpr (kWhole) {
    gpu::StoreOctet(values, y + offset);
  } else {
    gpu::StoreOctetUpTo(values, y + offset, count);
  }
}

// ---- Spans ------------------------------------------------------------------

template <class T, RowKernelVariant kVariant>
__device__ inline void RunSpans(const RowKernelArgs& args) {
  constexpr int kWave = kVariant.wave_size;
  constexpr bool kWhole = kVariant.whole;
  const QuantizedArgs& out = args.quantized;
  gpu::AllowDependents();
  const float static_scale = gpu::StaticScale(out);
  const gpu::SpanLane lane(args.span, args.x.total_rows(), args.cols);
  int left = lane.left();
  // NOTE: lanes past the end stay, for the exchanges between lanes, and load
  // what the first octet is made of.
  const Places<T> at(args, left > 0 ? lane.row() : args.span.first_row,
                     left > 0 ? lane.col() : 0);
  const bool one_scale =
      !out.dynamic && out.scales.granularity == ScaleGranularity::kPerTensor;
  gpu::WaitForPredecessor();
  int offset = 0;
  GateAndUp v = LoadInput<T, kWhole>(args, at, offset, left);
  const float inverse = one_scale ? gpu::Divide(1.0f, static_scale) : 0.0f;
  for (int k = 0;;) {
    const int count = left < kOctet ? left : kOctet;
    const Octet values = gpu::GatedProduct(args.gate, v.gate, v.up);
    StoreY<T, kWhole>(args, at.y, offset, count, values);
    if (out.has_value() && one_scale) {
      gpu::StoreCodes<kWhole>(out, at.codes + offset, count,
                              gpu::QuantizedValues<T>(out, values), inverse);
    } else if (out.has_value()) {
      gpu::StoreQuantizedOctet<T, kWave, kWhole>(
          out, static_scale, lane.row(), lane.col() + offset, count, values,
          args.span.lanes < kWave ? args.span.lanes : kWave);
    }
    left -= lane.step();
    if (++k >= args.span.octets || (left <= 0 && !out.dynamic)) return;
    if (left > 0) offset += lane.step();
    v = LoadInput<T, kWhole>(args, at, offset, left);
  }
}

// ---- Rows -------------------------------------------------------------------

template <RowKernelVariant kVariant>
using Lanes =
    gpu::RowLanes<kVariant.wave_size, kVariant.scope, kVariant.octets>;

template <class T, RowKernelVariant kVariant>
__device__ inline void RunRow(const RowKernelArgs& args) {
  constexpr int kOctets = kVariant.octets;
  constexpr bool kWhole = kVariant.whole;
  gpu::AllowDependents();
  Lanes<kVariant> lanes(args.lanes, args.cols, args.first_row);
  const int64_t row = lanes.row();
  // NOTE: lanes of rows past the end stay, for the exchanges between lanes.
  const bool exists = row < args.x.total_rows();

  gpu::WaitForPredecessor();
  GateAndUp input[kOctets];
#pragma unroll
  for (int k = 0; k < kOctets; ++k) {
    // NOTE: as in RunSpans.
    const int count = exists ? lanes.Count(k) : 0;
    const Places<T> at(args, exists ? row : args.first_row,
                       count > 0 ? lanes.Column(k) : 0);
    input[k] = LoadInput<T, kWhole>(args, at, 0, count);
  }
  Octet values[kOctets];
#pragma unroll
  for (int k = 0; k < kOctets; ++k) {
    values[k] = gpu::GatedProduct(args.gate, input[k].gate, input[k].up);
    if (args.y.has_value() && exists && lanes.Count(k) > 0) {
      StoreY<T, kWhole>(args, args.y.Row<T>(row) + lanes.Column(k), 0,
                        lanes.Count(k), values[k]);
    }
  }
  gpu::StoreQuantizedRow<T, kWhole>(args.quantized, 1.0f, lanes, values, 0);
}

// x may be y, so nothing but the scale is stored before the second pass, and a
// lane reads an octet before it writes it.
template <class T, RowKernelVariant kVariant>
__device__ inline void RunLongRow(const RowKernelArgs& args) {
  gpu::AllowDependents();
  Lanes<kVariant> lanes(args.lanes, args.cols, args.first_row);
  const int64_t row = lanes.row();
  const QuantizedArgs& out = args.quantized;
  const auto for_each_octet = [&](auto&& f) {
    for (int64_t begin = 0; begin < args.cols; begin += lanes.columns()) {
      lanes.MoveTo(begin);
#pragma unroll 1
      for (int k = 0; k < kVariant.octets; ++k) {
        const int count = lanes.Count(k);
        if (count <= 0) continue;
        const Places<T> at(args, row, lanes.Column(k));
        const GateAndUp v = LoadInput<T, kVariant.whole>(args, at, 0, count);
        f(at, count, gpu::GatedProduct(args.gate, v.gate, v.up));
      }
    }
  };

  gpu::WaitForPredecessor();
  float amax = 0.0f;
  for_each_octet([&](const Places<T>&, int count, const Octet& values) {
    amax = gpu::FiniteAbsMax<kVariant.whole>(
        gpu::QuantizedValues<T>(out, values), count, amax);
  });
  const float scale =
      gpu::DynamicScale(out, lanes.Reduce(amax, 0, gpu::Larger{}));
  if (lanes.lane() == 0) gpu::StoreDynamicScale(out, row, 0, scale);
  const float inverse = gpu::DynamicInverse(scale);
  for_each_octet([&](const Places<T>& at, int count, const Octet& values) {
    StoreY<T, kVariant.whole>(args, at.y, 0, count, values);
    gpu::StoreCodes<kVariant.whole>(
        out, at.codes, count, gpu::QuantizedValues<T>(out, values), inverse);
  });
}

template <class T, RowKernelVariant kVariant>
__device__ inline void RunVariant(RowKernelArgs args) {
  if constexpr (kVariant.swiglu) {
    args.input = RowInput::kHalves;
    args.gate.clamped = false;
    args.gate.kind = ActivationKind::kSilu;
  }
  if constexpr (!gpu::kWaveRunsHere<kVariant.wave_size>) {
    return;
  } else if constexpr (kVariant.kernel == RowKernel::kSpans) {
    RunSpans<T, kVariant>(args);
  } else if constexpr (kVariant.kernel == RowKernel::kRow) {
    RunRow<T, kVariant>(args);
  } else {
    RunLongRow<T, kVariant>(args);
  }
}

}  // namespace lamina::activation_internal
