#pragma once

// From the sums of skinny_gemm.h's rule to its outputs, one result at a time:
// bias, gate, residual, y and codes, bit for bit as the CPU has it.
//
//   const Epilogue epilogue(args.epilogue);   // before WaitForPredecessor
//   …
//   epilogue.Store(row, col, sum);            // sum: scaled
//
// NOTE: all inline. A call would make the compiler wait for every wgmma of a
// kernel in turn.

#include <cstdint>

#include "lamina/core/device/intrinsics.cuh"
#include "lamina/core/float16.h"
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

  // The results of column `col` of a row, from its sum; without a gate.
  __forceinline__ __device__ void Store(int row, int col, float sum) const {
    StoreValue(row, col, Biased(col, sum));
  }
  __forceinline__ __device__ void StoreGated(int row, int col, float gate,
                                             float up) const {
    StoreValue(row, col,
               GatedProduct(args_.gate, Biased(WeightRow(col, false), gate),
                            Biased(WeightRow(col, true), up)));
  }

 private:
  __forceinline__ __device__ float Biased(int weight_row, float sum) const {
    if (args_.bias == nullptr) return sum;
    return sum + LoadElement(args_.bias_type, args_.bias, weight_row);
  }

  __forceinline__ __device__ void StoreValue(int row, int col,
                                             float value) const {
    if (args_.residual != nullptr) {
      value += LoadElement(
          args_.y_type,
          static_cast<const char*>(args_.residual) + row * args_.residual_pitch,
          col);
    }
    if (args_.y != nullptr) {
      StoreElement(args_.y_type, value,
                   static_cast<char*>(args_.y) + row * args_.y_pitch, col);
    }
    if (args_.quantized.has_value()) StoreCode(row, col, value);
    if (args_.values != nullptr) {
      args_.values[int64_t{row} * args_.cols + col] =
          args_.round_values ? RoundTo(args_.y_type, value) : value;
    }
  }

  __forceinline__ __device__ void StoreCode(int row, int col,
                                            float value) const {
    const QuantizedArgs& out = args_.quantized;
    const float rounded =
        out.round_before_quant ? RoundTo(args_.y_type, value) : value;
    float inverse = inverse_;
    if (out.scales.granularity != ScaleGranularity::kPerTensor) {
      inverse = gpu::Divide(1.0f, ScaleOrOne(out.scales, row, col));
    }
    static_cast<uint8_t*>(out.codes.data)[row * out.codes.row_stride + col] =
        EncodeElement(out.codes.dtype, rounded * inverse);
  }

  const EpilogueArgs& args_;
  float inverse_;  // 1 / the scale of the tensor
};

}  // namespace lamina::gemm_internal
