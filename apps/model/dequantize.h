#pragma once

// The file formats' number encodings, exactly as their definitions have them.

#include <cstdint>

#include "lamina/model/checkpoint.h"

namespace lamina::model_internal {

// Elements that are decoded at a time: a multiple of every block.
inline constexpr int64_t kDequantizeChunk = 256;

// True for the types that DequantizeChunk knows: floating point, int8 and the
// block types.
bool CanDequantize(StorageType type);

// Decodes `count` consecutive elements of a row (count <= kDequantizeChunk, a
// multiple of BlockElements(type)) from their bytes.
//
// Block types, d, m, dmin being f16 and q unsigned codes:
//   Q4_0, Q5_0   d * (q - 8), d * (q - 16)
//   Q4_1, Q5_1   d * q + m
//   Q8_0         d * q, q signed
//   Q4_K, Q5_K   (d * scale) * q - dmin * minimum, 6-bit scale and minimum for
//                each 32 elements
//   Q6_K         (d * scale) * (q - 32), int8 scale for each 16 elements
// All in fp32, every operation rounded. Only the last of each line rounds at
// all: the products before it are exact.
void DequantizeChunk(StorageType type, const uint8_t* bytes, int64_t count,
                     float* values);

}  // namespace lamina::model_internal
