#pragma once

// Whether a GPU kernel can move a matrix by octets (core/octet.cuh).

#include <cstdint>

#include "lamina/core/views.h"

namespace lamina::gpu {

// Bytes that an octet of the type is moved by at once.
constexpr int64_t OctetAlignment(DType type) {
  return BitsOf(type) >= 16 ? 16 : BitsOf(type);
}

// True when every row begins at a multiple of OctetAlignment and is a whole
// number of octets long. An absent matrix is fine.
inline bool MovesOctets(const ConstMatrixView& view) {
  return !view.has_value() ||
         (view.cols % 8 == 0 &&
          RowsAreAligned(view, OctetAlignment(view.dtype)));
}
inline bool MovesOctets(const ConstVectorView& view) {
  return MovesOctets(ConstMatrixView{
      .data = view.data, .dtype = view.dtype, .rows = 1, .cols = view.size});
}

}  // namespace lamina::gpu
