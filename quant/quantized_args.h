#pragma once

// What kernels know of a quantised output (QuantizedOutput of quant/scale.h,
// with its defaults filled in): plain values. quant/store_quantized.cuh reads
// it; ToQuantizedArgs in quant/to_quantized_args.h makes it.

#include <cstdint>

#include "lamina/core/device/host_device.h"
#include "lamina/core/dtype.h"
#include "lamina/core/views.h"
#include "lamina/quant/scale_view.h"

namespace lamina {

// The scale of element (flat row, col) is element
//   (row >> row_shift) * row_stride + (col >> col_shift) * col_stride
// of `data`, whatever the granularity: a stride is 0 where it has one scale.
struct ScaleArgs {
  void* data = nullptr;
  DType dtype = DType::kF32;  // kF32 or kF8E8M0
  ScaleGranularity granularity = ScaleGranularity::kPerTensor;
  uint8_t row_shift = 0;
  uint8_t col_shift = 0;
  int64_t row_stride = 0;
  int64_t col_stride = 0;

  LAMINA_HD constexpr int64_t Index(int64_t row, int64_t col) const {
    return (row >> row_shift) * row_stride + (col >> col_shift) * col_stride;
  }
};

struct QuantizedArgs {
  MatrixView codes;  // flattened where the strides allow
  ScaleArgs scales;  // read if !dynamic, written if dynamic
  bool dynamic = false;
  bool round_before_quant = false;
  // Codes can be stored eight at a time: columns that are multiples of 8 are
  // aligned to 8 bytes in every row.
  bool octets = false;
  // Products are clamped to ±qmax before the conversion, because it saturates
  // to something else.
  bool clamp = false;
  float qmax = 0;
  float inverse_qmax = 0;  // 1 / qmax
  float min_scale = 0;     // MinScale(qmax)
  float scale_ub = 0;      // Inf: none

  LAMINA_HD constexpr bool has_value() const { return codes.data != nullptr; }
  // A dynamic scale a row: the whole row has to be known before it is stored.
  LAMINA_HD constexpr bool scale_of_row() const {
    return dynamic && scales.granularity == ScaleGranularity::kPerRow;
  }
};

}  // namespace lamina
