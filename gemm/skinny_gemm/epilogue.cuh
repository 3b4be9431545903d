#pragma once

// From the sums of skinny_gemm.h's rule to its outputs: bias, gate, residual, y
// and codes, bit for bit as the CPU has it.
//
//   const Epilogue epilogue(args.epilogue);   // before WaitForPredecessor
//   …
//   epilogue.Store(row, col, sum);            // sum: scaled
//
// or for some results of a thread together:
//
//   ResultInputs<4> inputs = epilogue.Load(at);  // early: it waits for memory
//   …
//   epilogue.Store(at, inputs, sums);            // sums are used up
//
// NOTE: what to do is decided once for all of them, and what they need is
// loaded together: branches and loads of a result at a time took some 1200
// cycles each (H200, 2026-11-30).
// NOTE: all inline. A call would make the compiler wait for every wgmma of a
// kernel in turn.

#include <cmath>
#include <cstdint>

#include "lamina/core/device/intrinsics.cuh"
#include "lamina/core/float16.h"
#include "lamina/core/gate.cuh"
#include "lamina/core/gate.h"
#include "lamina/gemm/skinny_gemm/gemm_args.h"
#include "lamina/quant/fp8.cuh"
#include "lamina/quant/store_quantized.cuh"

namespace lamina::gemm_internal {

// The scale of element (row, k) of an operand; 1 without scales.
__device__ inline float ScaleOrOne(const ScaleArgs& scales, int row, int k) {
  return scales.data == nullptr ? 1.0f
                                : gpu::LoadScale(scales, scales.Index(row, k));
}

// f16 or bf16, whichever `type` is, to bits and back.
__device__ inline uint16_t Encode16(DType type, float value) {
  return static_cast<uint16_t>(type == DType::kF16
                                   ? gpu::PackF16(value, 0.0f)
                                   : gpu::PackBf16(value, 0.0f));
}
__device__ inline float Decode16(DType type, uint16_t bits) {
  if (type == DType::kBF16) return ToFloat(BF16{bits});
  float value, none;
  gpu::UnpackF16(bits, value, none);
  return value;
}

// Element `index` of f32, f16 or bf16.
__device__ inline float LoadElement(DType type, const void* p, int64_t index) {
  return type == DType::kF32
             ? static_cast<const float*>(p)[index]
             : Decode16(type, static_cast<const uint16_t*>(p)[index]);
}
__device__ inline void StoreElement(DType type, float value, void* p,
                                    int64_t index) {
  if (type == DType::kF32) {
    static_cast<float*>(p)[index] = value;
  } else {
    static_cast<uint16_t*>(p)[index] = Encode16(type, value);
  }
}
__device__ inline float RoundTo(DType type, float value) {
  return type == DType::kF32 ? value : Decode16(type, Encode16(type, value));
}

// The code of an FP8 type or of kI8.
__forceinline__ __device__ uint8_t EncodeElement(DType type, float value) {
  namespace fp8 = gpu::fp8_internal;
  if (type == DTypeOf<gpu::DeviceF8>::value) {
    return static_cast<uint8_t>(gpu::EncodeDeviceF8(value, 0.0f, 0.0f, 0.0f));
  }
  switch (type) {
    case DType::kF8E4M3Fn:
      return static_cast<uint8_t>(fp8::Encode<F8E4M3Fn>(value));
    case DType::kF8E5M2:
      return static_cast<uint8_t>(fp8::Encode<F8E5M2>(value));
    case DType::kF8E4M3Fnuz:
      return static_cast<uint8_t>(fp8::Encode<F8E4M3Fnuz>(value));
    case DType::kF8E5M2Fnuz:
      return static_cast<uint8_t>(fp8::Encode<F8E5M2Fnuz>(value));
    default:
      return static_cast<uint8_t>(fp8::Encode<int8_t>(value));
  }
}

// Where a result is.
struct ResultPlace {
  int row;
  int col;
  bool exists;
};

// What results need besides their sums.
template <int kCount>
struct ResultInputs {
  float bias[kCount] = {};  // of the gate's, or the only sum
  float up_bias[kCount] = {};
  float residual[kCount] = {};
};

class Epilogue {
 public:
  // Reads a static scale of the tensor.
  __device__ explicit Epilogue(const EpilogueArgs& args)
      : args_(args),
        inverse_(gpu::Divide(1.0f, gpu::StaticScale(args.quantized))) {}

  __device__ bool gated() const { return args_.gated; }

  // The row of w behind column `col` of the results: of the gate, or of `up`.
  __device__ int WeightRow(int col, bool up) const {
    if (!args_.gated) return col;
    if (args_.gate.layout == GateLayout::kInterleaved) return 2 * col + up;
    const bool second = (args_.gate.layout == GateLayout::kGateFirst) == up;
    return second ? args_.cols + col : col;
  }

  // 0 without a bias.
  __forceinline__ __device__ float LoadBias(int weight_row) const {
    return args_.bias == nullptr
               ? 0.0f
               : LoadElement(args_.bias_type, args_.bias, weight_row);
  }
  template <int kCount>
  __forceinline__ __device__ void LoadResidual(
      const ResultPlace (&at)[kCount], float (&residual)[kCount]) const {
    if (args_.residual == nullptr) return;
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      if (!at[i].exists) continue;
      residual[i] = LoadElement(args_.y_type,
                                static_cast<const char*>(args_.residual) +
                                    at[i].row * args_.residual_pitch,
                                at[i].col);
    }
  }
  template <int kCount>
  __forceinline__ __device__ ResultInputs<kCount> Load(
      const ResultPlace (&at)[kCount]) const {
    ResultInputs<kCount> inputs;
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      if (!at[i].exists) continue;
      inputs.bias[i] = LoadBias(WeightRow(at[i].col, false));
      if (args_.gated) inputs.up_bias[i] = LoadBias(WeightRow(at[i].col, true));
    }
    LoadResidual(at, inputs.residual);
    return inputs;
  }

  // Whether results are sums, rounded to f16 or bf16.
  __device__ bool only_16_bits() const {
    return args_.bias == nullptr && args_.residual == nullptr &&
           args_.values == nullptr && !args_.gated &&
           !args_.quantized.has_value() && args_.y_type != DType::kF32;
  }

  // Results from their sums; without a gate.
  template <int kCount>
  __forceinline__ __device__ void Store(const ResultPlace (&at)[kCount],
                                        const ResultInputs<kCount>& inputs,
                                        float (&sum)[kCount]) const {
    AddBias(inputs.bias, sum);
    StoreValues(at, inputs, sum);
  }
  template <int kCount>
  __forceinline__ __device__ void StoreGated(const ResultPlace (&at)[kCount],
                                             const ResultInputs<kCount>& inputs,
                                             float (&gate)[kCount],
                                             float (&up)[kCount]) const {
    AddBias(inputs.bias, gate);
    AddBias(inputs.up_bias, up);
    MultiplyGates(gate, up);
    StoreValues(at, inputs, gate);
  }

  // The same of one result.
  __forceinline__ __device__ void Store(int row, int col, float sum) const {
    const ResultPlace at[1] = {{row, col, true}};
    float sums[1] = {sum};
    Store(at, Load(at), sums);
  }
  __forceinline__ __device__ void StoreGated(int row, int col, float gate,
                                             float up) const {
    const ResultPlace at[1] = {{row, col, true}};
    float gates[1] = {gate};
    float ups[1] = {up};
    StoreGated(at, Load(at), gates, ups);
  }

 private:
  template <int kCount>
  __forceinline__ __device__ void AddBias(const float (&bias)[kCount],
                                          float (&sum)[kCount]) const {
    // NOTE: not 0: -0 stays.
    if (args_.bias == nullptr) return;
#pragma unroll
    for (int i = 0; i < kCount; ++i) sum[i] += bias[i];
  }

  // gate = GatedProduct(gate, up).
  template <int kCount>
  __forceinline__ __device__ void MultiplyGates(
      float (&gate)[kCount], const float (&up)[kCount]) const {
    namespace quick = gpu::gate_internal;
    bool silu = args_.gate.kind == ActivationKind::kSilu && !args_.gate.clamped;
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      silu &= std::fabs(gate[i]) < quick::kQuickLimit;  // NaN: no
    }
    if (silu) {
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        gate[i] = quick::QuickTimesSigmoid(gate[i], gate[i]) * up[i];
      }
      return;
    }
#pragma unroll 1
    for (int i = 0; i < kCount; ++i) {
      const float product = GatedProduct(args_.gate, At(gate, i), At(up, i));
#pragma unroll
      for (int k = 0; k < kCount; ++k) gate[k] = k == i ? product : gate[k];
    }
  }

  // values[i] in a loop that stays one, for code that is long.
  // NOTE: an index would put the array into memory.
  template <class T, int kCount>
  __forceinline__ __device__ static T At(const T (&values)[kCount], int i) {
    T value = values[0];
#pragma unroll
    for (int k = 1; k < kCount; ++k) {
      if (k == i) value = values[k];
    }
    return value;
  }

  template <int kCount>
  __forceinline__ __device__ void StoreValues(
      const ResultPlace (&at)[kCount], const ResultInputs<kCount>& inputs,
      float (&value)[kCount]) const {
    if (args_.residual != nullptr) {
#pragma unroll
      for (int i = 0; i < kCount; ++i) value[i] += inputs.residual[i];
    }
    if (args_.y != nullptr) StoreY(at, value);
    if (args_.values != nullptr) StoreForQuantize(at, value);
    if (args_.quantized.has_value()) StoreCodes(at, value);
  }

  template <int kCount>
  __forceinline__ __device__ void StoreY(const ResultPlace (&at)[kCount],
                                         const float (&value)[kCount]) const {
    auto* const y = static_cast<char*>(args_.y);
    if (args_.y_type == DType::kF32) {
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        auto* const row =
            reinterpret_cast<float*>(y + at[i].row * args_.y_pitch);
        if (at[i].exists) row[at[i].col] = value[i];
      }
    } else {
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        auto* const row =
            reinterpret_cast<uint16_t*>(y + at[i].row * args_.y_pitch);
        const uint16_t bits = Encode16(args_.y_type, value[i]);
        if (at[i].exists) row[at[i].col] = bits;
      }
    }
  }

  // Uses `value` up.
  template <int kCount>
  __forceinline__ __device__ void StoreCodes(const ResultPlace (&at)[kCount],
                                             float (&value)[kCount]) const {
    const QuantizedArgs& out = args_.quantized;
    if (out.round_before_quant) {
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        value[i] = RoundTo(args_.y_type, value[i]);
      }
    }
    const bool per_tensor =
        out.scales.granularity == ScaleGranularity::kPerTensor;
    auto* const codes = static_cast<uint8_t*>(out.codes.data);
    const int64_t pitch = out.codes.row_stride;
    if (per_tensor && out.codes.dtype == DTypeOf<gpu::DeviceF8>::value) {
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        const auto code = static_cast<uint8_t>(
            gpu::EncodeDeviceF8(value[i] * inverse_, 0.0f, 0.0f, 0.0f));
        if (at[i].exists) codes[at[i].row * pitch + at[i].col] = code;
      }
      return;
    }
#pragma unroll 1
    for (int i = 0; i < kCount; ++i) {
      const ResultPlace place = At(at, i);
      if (!place.exists) continue;
      const float inverse =
          per_tensor
              ? inverse_
              : gpu::Divide(1.0f, ScaleOrOne(out.scales, place.row, place.col));
      codes[place.row * pitch + place.col] =
          EncodeElement(out.codes.dtype, At(value, i) * inverse);
    }
  }

  template <int kCount>
  __forceinline__ __device__ void StoreForQuantize(
      const ResultPlace (&at)[kCount], const float (&value)[kCount]) const {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      if (!at[i].exists) continue;
      args_.values[int64_t{at[i].row} * args_.cols + at[i].col] =
          args_.round_values ? RoundTo(args_.y_type, value[i]) : value[i];
    }
  }

  const EpilogueArgs& args_;
  float inverse_;  // 1 / the scale of the tensor
};

}  // namespace lamina::gemm_internal
