#pragma once

// What Quantize's results are made of: quant/lean_rows.cuh.

#include "lamina/quant/lean_rows.cuh"

namespace lamina::quant_internal {

template <class T>
struct PlainSource {
  using Type = T;
  static constexpr int kInputs = 1;

  template <int kColumns>
  __device__ static Lane<kColumns> Results(const Lane<kColumns> (&inputs)[1]) {
    return inputs[0];
  }
};

}  // namespace lamina::quant_internal
