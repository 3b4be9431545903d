#include "lamina/attention/rope_append/rope_append_gpu.h"

#include "lamina/attention/rope_append/rope_append_kernel_args.h"
#include "lamina/core/device/runtime.h"
#include "lamina/core/octet_access.h"
#include "lamina/core/status.h"

namespace lamina::attention_internal {
namespace {

// K (or V) of a cache as one matrix a dimension, to ask for its alignment.
bool MovesOctets(const KvCacheView& cache) {
  const auto moves = [&](int64_t count, int64_t stride) {
    for (const void* data : {cache.k, cache.v}) {
      if (!gpu::MovesOctets(ConstMatrixView{.data = data,
                                            .dtype = cache.dtype,
                                            .rows = count,
                                            .cols = cache.head_dim,
                                            .row_stride = stride})) {
        return false;
      }
    }
    return true;
  };
  return moves(cache.num_pages, cache.page_stride) &&
         moves(cache.page_tokens, cache.token_stride) &&
         moves(cache.kv_heads, cache.head_stride);
}

absl::Status Run(const char* op, const RopeAppendKernelArgs& args,
                 const ConstMatrixView& table, const Stream& stream) {
  const bool octets = args.head_dim % 16 == 0 && args.rotary_dim % 16 == 0 &&
                      gpu::MovesOctets(args.q) && gpu::MovesOctets(args.y) &&
                      gpu::MovesOctets(args.k) && gpu::MovesOctets(args.v) &&
                      gpu::MovesOctets(args.k_out) &&
                      (args.rotary_dim == 0 || RowsAreAligned(table, 16)) &&
                      (args.cache.k == nullptr || MovesOctets(args.cache));
  const bool has_q = args.q.has_value();
  return ToStatus(op,
                  LaunchRopeAppend(args, has_q ? args.q.dtype : args.k.dtype,
                                   has_q ? args.q.batch : args.k.batch, octets,
                                   TargetOf(stream)));
}

RopeAppendKernelArgs Rotation(const ConstMatrixView& x,
                              const ConstMatrixView& table, RopePairing pairing,
                              const int32_t* positions) {
  return {.table = static_cast<const float*>(table.data),
          .table_stride = table.row_stride,
          .rotary_dim = static_cast<int32_t>(table.cols),
          .head_dim = static_cast<int32_t>(x.cols),
          .adjacent = pairing == RopePairing::kAdjacent,
          .positions = positions};
}

}  // namespace

absl::Status RopeGpu(const RopeArgs& args, const Stream& stream) {
  RopeAppendKernelArgs kernel =
      Rotation(args.x, args.table, args.pairing, args.positions);
  kernel.q = args.x;
  kernel.y = args.y;
  return Run("Rope", kernel, args.table, stream);
}

absl::Status KvAppendGpu(const KvAppendArgs& args, const Stream& stream) {
  const RopeAppendKernelArgs kernel{
      .k = args.k,
      .v = args.v,
      .cache = args.cache,
      .head_dim = static_cast<int32_t>(args.cache.head_dim),
      .sequence_ids = args.sequence_ids,
      .positions = args.positions};
  return Run("KvAppend", kernel, {}, stream);
}

absl::Status RopeAppendGpu(const RopeAppendArgs& args, const Stream& stream) {
  RopeAppendKernelArgs kernel =
      Rotation(args.q, args.table, args.pairing, args.positions);
  kernel.q = args.q;
  kernel.y = args.y;
  kernel.k = args.k;
  kernel.v = args.v;
  kernel.k_out = args.k;
  kernel.cache = args.cache;
  kernel.sequence_ids = args.sequence_ids;
  return Run("RopeAppend", kernel, args.table, stream);
}

}  // namespace lamina::attention_internal
