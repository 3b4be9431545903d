#pragma once

// What the results of lean_swiglu.h are made of: quant/lean_rows.cuh.

#include "lamina/core/gate.cuh"
#include "lamina/quant/lean_rows.cuh"

namespace lamina::activation_internal {

template <class T>
struct SwiGluSource {
  using Type = T;
  static constexpr int kInputs = 2;

  template <int kColumns>
  __device__ static quant_internal::Lane<kColumns> Results(
      const quant_internal::Lane<kColumns> (&inputs)[2]) {
    return gpu::SwiGlu(inputs[0], inputs[1]);
  }
};

}  // namespace lamina::activation_internal
