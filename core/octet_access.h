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
  if (!view.has_value()) return true;
  const int64_t alignment = OctetAlignment(view.dtype);
  const auto aligned = [&](int64_t stride) {
    return BytesFor(view.dtype, stride) % alignment == 0;
  };
  return view.cols % 8 == 0 &&
         static_cast<int64_t>(reinterpret_cast<uintptr_t>(view.data)) %
                 alignment ==
             0 &&
         (view.rows <= 1 || aligned(view.row_stride)) &&
         (view.batch <= 1 || aligned(view.batch_stride));
}
inline bool MovesOctets(const ConstVectorView& view) {
  return MovesOctets(ConstMatrixView{
      .data = view.data, .dtype = view.dtype, .rows = 1, .cols = view.size});
}

}  // namespace lamina::gpu
