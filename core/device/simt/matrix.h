#pragma once

// Host SIMT's model of the products of core/device/matrix.cuh.
//
// A product gives its result when its waves wait for it; until then the result
// is NaN. Operands are read when the product starts and when it ends: what has
// changed in between, or cannot be seen (async.h), is NaN. Faults that end the
// program: a product without WarpgroupFence before it, a result that is written
// while its product is under way, descriptors that point outside of the block's
// shared memory, waves of a warpgroup that make different products, products
// that nothing waits for.
//
// Sums of FP8 products keep 14 bits, as sm_90 does: what is added is cut to the
// 13 bits behind the leading one of the largest. Others are exact and rounded
// once for each product.
//
// Not modelled: `a` in registers is read when the product starts; on the GPU it
// must not change before the wait.

#include <cstdint>

#include "lamina/core/dtype.h"

namespace lamina::simt {

uint64_t SwizzledTile(const void* shared);
uint64_t PlainTile(const void* shared, int column_bytes, int group_bytes);

struct WarpgroupProduct {
  DType type;
  int columns;                          // of the result
  float* d;                             // columns / 2
  const uint32_t* registers = nullptr;  // four, instead of a
  uint64_t a = 0;
  uint64_t b = 0;
  bool accumulate = false;
};
void StartProduct(const WarpgroupProduct& product);

void WarpgroupFence();
void WarpgroupCommit();
void WarpgroupWait(int pending_groups);

void WaveProduct(DType type, float* d, const uint32_t* a, const uint32_t* b);

// `r`: four words of the lane that runs.
void LoadMatrices(uint32_t* r, const void* row, bool transposed);
uint32_t TransposeMatrix(uint32_t r);

}  // namespace lamina::simt
