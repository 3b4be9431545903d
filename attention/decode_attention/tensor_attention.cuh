#pragma once

// DecodeAttention on the tensor cores of a wave (mma.sync), for BF16 and F16 q
// with a cache of q's type or of F8E4M3Fn.
//
//   s_j = (q . K_j) * (scale * k_scale)          fp32 sums of exact products
//   p_j = e^(s_j - m),  l = sum p_j,  o = sum p_j V_j,  y = o / l * v_scale
//
// A tile is 16 positions from a multiple of 16; a context is cut into splits of
// whole tiles (SplitRule). A block has a KV head, up to 16 rows (the query
// heads of that KV head, of one token or of a few neighbouring ones), and some
// of the splits, one after another. Each of its waves takes every
// kTensorWaves-th tile of a split, with a running maximum, and copies its own
// tiles ahead: keys and values go through a ring of stages that is the wave's
// alone and runs ahead into the next splits. At the end of a split the waves'
// (m, l, o) are added in the order of the waves, and at the end the splits' in
// the order of the splits: by the cluster of blocks that share a token's
// splits, each of which takes a slice of the columns, or by FoldSplits. So bits
// depend neither on who has which split nor on how many of them a block has.
//
// p_j goes to the tensor cores as the sum of two numbers of the 16-bit type, so
// that 16 bits of it (BF16) or 22 (F16) are kept. With a cache of F8E4M3Fn all
// products are of F16; q is scaled by a power of two, row by row, to fit.
//
// Bytes moved: K and V of a KV head once for each block of rows. A tile of 128
// bf16 columns takes a wave some 400 instructions for 8 KiB with up to 8 rows.

#include "lamina/attention/decode_attention/tensor_copies.cuh"
#include "lamina/attention/decode_attention/tensor_sums.cuh"
#include "lamina/core/block.cuh"

namespace lamina::attention_internal::tensor {

template <class S>
LAMINA_HD constexpr TensorLayout LayoutOf(const TensorAttentionArgs& args) {
  const bool receives =
      args.cluster_blocks == static_cast<int>(args.slots.divisor);
  return TensorLayoutOf(
      {.dims = S::kDims,
       .value_bytes = S::kRowBytes / S::kDims,
       .rows = args.rows(),
       .stages = args.stages,
       .run_ahead = args.run_ahead,
       .received_splits = receives ? args.max_splits : 0,
       .received_columns = receives ? 1 << args.slice_shift : 0});
}
template <class S>
__device__ inline Sums SumsOf(const TensorAttentionArgs& args, int rows,
                              char* shared) {
  const TensorLayout layout = LayoutOf<S>(args);
  const auto at = [&](int64_t bytes) {
    return reinterpret_cast<float*>(shared + bytes);
  };
  Sums sums;
  sums.o = at(layout.sums);
  sums.wave_m = at(layout.waves);
  sums.wave_l = sums.wave_m + rows * kTensorWaves;
  sums.split_ml = reinterpret_cast<Pair*>(at(layout.received));
  sums.split_o = at(layout.received) + 2 * args.max_splits * rows;
  sums.phaser = reinterpret_cast<gpu::Phaser*>(at(layout.phaser));
  return sums;
}

// The block's splits. `send(split)`: the waves' sums of that split are shared.
template <class S, class Block, class Send>
__device__ inline void AttendSplits(const TensorAttentionArgs& args,
                                    Block block, const Place& place,
                                    const Queries<S>& queries, const Sums& sums,
                                    Send&& send) {
  const int wave = gpu::ThreadIndex() / kWave;
  const int stages = args.stages;
  char* const ring =
      block.template Shared<char>() + wave * stages * S::kStageBytes;
  TileCopier<S> copier(args, place);
  State<S> state;
  int split = place.first_split;
  int stage = 0;
  int begin = place.tile;
  while (begin < place.tile_end) {
    // The splits that the ring goes through without a stop.
    const int ring_end = args.run_ahead || begin + place.length > place.tile_end
                             ? place.tile_end
                             : begin + place.length;
    TileWalk ahead(place, wave, begin, ring_end);
    const auto copy = [&](int to) {
      if (ahead.valid()) copier.Copy(ahead.tile(), ring + to * S::kStageBytes);
      gpu::CommitAsyncCopies();
      ahead.Next();
      if (ahead.valid()) copier.Find(ahead.tile());
    };
    if (ahead.valid()) copier.Find(ahead.tile());
#pragma unroll 1
    for (int i = 0; i < stages; ++i) copy(i);
    stage = 0;
#pragma unroll 1
    for (; begin < ring_end; begin += place.length) {
      const int end =
          begin + place.length < ring_end ? begin + place.length : ring_end;
      state.Clear();
#pragma unroll 1
      for (int tile = begin + wave; tile < end; tile += kTensorWaves) {
        WaitForOldest(stages);
        gpu::WaveSync();
        AddTile<S>(args, place, tile, ring + stage * S::kStageBytes, queries,
                   state);
        gpu::WaveSync();
        copy(stage);
        stage = stage + 1 == stages ? 0 : stage + 1;
      }
      // NOTE: the sums of the split before have been added, or the rings in
      // their place have been read.
      if (split != place.first_split || !args.run_ahead) block.Sync();
      ShareState<S>(place, sums, state);
      block.Sync();
      send(split);
      ++split;
    }
    gpu::WaitAsyncCopies();
    if (begin < place.tile_end) block.Sync();  // the rings are free again
  }
}

template <class S, class Block = gpu::LaunchedBlock>
__device__ inline void Attend(const TensorAttentionArgs& args,
                              Block block = {}) {
  Place place = PlaceOf(args, block.Index());
  if (args.prefetch_rows > 0) PrefetchTiles<S>(args, place);
  block.WaitForPredecessor();
  const TokenPlace token = LoadToken(args, place.token);
  Queries<S> queries;
  // NOTE: one token's queries are on their way while its position is read.
  if constexpr (S::kGroups == 1) {
    place.tokens = 1;
    place.rows = place.group_rows;
    queries.Load(args.attention, place);
  }
  Complete(args, token, place);
  if (!place.works) return;  // the whole cluster
  if constexpr (S::kGroups > 1) queries.Load(args.attention, place);
  const Sums sums = SumsOf<S>(args, place.rows, block.template Shared<char>());
  const int slots = static_cast<int>(args.slots.divisor);
  const bool meets = args.cluster_blocks == slots;
  const bool clustered = meets && slots > 1;
  bool waits = clustered;  // until all blocks of the cluster have begun
  const auto await_all = [&] {
    if (waits) gpu::ClusterWait();
    waits = false;
  };
  if (clustered) {
    if (gpu::ThreadIndex() == 0) {
      gpu::InitPhaser(sums.phaser, 1);
      gpu::PublishPhasers();
      gpu::ArriveExpecting(sums.phaser, BytesOfSlice(args, place));
    }
    gpu::WaveSync();
    gpu::ClusterArriveRelaxed();
  }
  queries.Scale(args.attention);
  AttendSplits<S>(args, block, place, queries, sums, [&](int split) {
    if (!meets) return StorePartial<S>(args, place, sums, split);
    await_all();
    SendSplit<S>(args, place, sums, split);
  });
  if (!meets) return StoreAbsent(args, place);
  await_all();
  if (clustered) {
    gpu::Await(sums.phaser, 0);
  } else {
    block.Sync();
  }
  StoreSlice<S>(args, place, sums);
}

}  // namespace lamina::attention_internal::tensor
