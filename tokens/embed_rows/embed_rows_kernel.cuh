#pragma once

// EmbedRows on a GPU: y[t] = round_T(table[ids[t]]).
//
// A lane moves an octet of eight columns; blocks of 128 lanes, CeilDiv(cols,
// 1024) of them a row. Bytes: the rows that are named, once read and once
// written. Limit: latency, of an id and then a row.

#include <cstdint>

#include "lamina/core/octet.cuh"
#include "lamina/tokens/embed_rows/embed_rows_args.h"

namespace lamina::tokens_internal {

__device__ inline int64_t LoadId(const ConstVectorView& ids, int64_t t) {
  return ids.dtype == DType::kI32 ? static_cast<const int32_t*>(ids.data)[t]
                                  : static_cast<const int64_t*>(ids.data)[t];
}

template <class From, class To>
__device__ inline void EmbedOctet(const EmbedRowsKernelArgs& args) {
  gpu::AllowDependents();
  const int64_t row = args.first_row + gpu::BlockIndex() / args.row_blocks;
  const int64_t column =
      (gpu::BlockIndex() % args.row_blocks * kEmbedRowsLanes +
       gpu::ThreadIndex()) *
      gpu::kOctet;
  const int64_t count = args.y.cols - column;
  gpu::WaitForPredecessor();
  if (count <= 0) return;
  const int64_t id = LoadId(args.ids, row);
  const bool known = id >= 0 && id < args.table.rows;
  const From* const from = args.table.Row<From>(known ? id : 0) + column;
  To* const to = args.y.Row<To>(row) + column;
  gpu::Octet octet;
  if (!known) {
#pragma unroll
    for (float& v : octet.v) v = std::bit_cast<float>(0x7fc00000u);
  } else if (args.octets) {
    octet = gpu::LoadOctet(from);
  } else {
    octet = gpu::LoadOctetUpTo(from, count);
  }
  if (args.octets) {
    gpu::StoreOctet(octet, to);
  } else {
    gpu::StoreOctetUpTo(octet, to, count);
  }
}

}  // namespace lamina::tokens_internal
