#pragma once

// y = epilogue(x · wᵀ) on Hopper's tensor cores for up to 64 rows of x.
//
// Bytes: w once from memory, x once a group of tiles and block from L2.
// Mapping: blocks stay, one an SM, and share the columns of y evenly, to a
// column. A block's columns are cut into groups of `tiles` tiles of up to 64
// rows of w, so that a stage of x serves `tiles` stages of w. w is the 64-row
// operand of wgmma, x the other.
//
//   3 waves        w -> ring of stages: a tile x 512 bytes of K, by cp.async;
//                  tiles of few rows by TMA
//   1 wave         x -> ring of stages: all rows, that part of K, by TMA
//   2, 4 warpgroups  take the stages of w in turn: warpgroup i has tile
//                    i % tiles of the group, every shares-th stage along K
//
// In the end the shares of a tile meet in shared memory and are added in their
// order; then each result takes the epilogue. Weights depend on no other
// kernel: their loads start before WaitForPredecessor.
//
// The rule here: products of FP8 by FP8 and those with scales of blocks are
// summed in the tensor core over 128 of K, these sums in fp32 in the order of K
// within a share; without, a share's are the tensor core's in up to four sums.
// The bits of a row of y depend on that row and on the plan, thus on m only
// through its band: up to 8, 16, 32, 64.

#include <cstdint>

#include "lamina/core/device/async.cuh"
#include "lamina/core/device/intrinsics.cuh"
#include "lamina/core/ring.cuh"
#include "lamina/gemm/skinny_gemm/epilogue.cuh"
#include "lamina/gemm/skinny_gemm/ring_gemm_args.h"
#include "lamina/gemm/skinny_gemm/ring_gemm_sums.cuh"
#include "lamina/gemm/skinny_gemm/ring_gemm_weights.cuh"

namespace lamina::gemm_internal {

template <RingGemmVariant kVariant>
class RingGemm {
 public:
  __device__ explicit RingGemm(const RingGemmArgs& args)
      : args_(args),
        plan_(args.plan),
        shared_(gpu::SharedMemory<uint8_t>()),
        w_ring_(Phasers(), plan_.stages),
        x_ring_(Phasers() + 2 * plan_.stages, plan_.x_stages) {
    const int block = static_cast<int>(gpu::BlockIndex());
    first_col_ = block * args.cols + Smaller(block, args.more_cols);
    end_col_ = first_col_ + args.cols + (block < args.more_cols ? 1 : 0);
  }

  __device__ void Run() const {
    gpu::AllowDependents();
    const int wave = gpu::UniformWave();
    const int computing_waves = 4 * plan_.consumers;
    if (wave < computing_waves) {
      if constexpr (kTakesRegisters) gpu::TakeRegisters<104>();
      if (wave == 0) InitRings();
      Compute(wave / 4);
    } else {
      if constexpr (kTakesRegisters) gpu::GiveRegisters<56>();
      if (wave < computing_waves + kWeightThreads / 32) {
        if (!plan_.tensor_copies) {
          LoadWeights(gpu::ThreadIndex() - 32 * computing_waves);
        } else if (wave == computing_waves) {
          LoadWeightBoxes();
        } else {
          gpu::BlockSync();
        }
      } else {
        LoadActivations();
      }
    }
  }

 private:
  static constexpr int kStepBytes = StageStepBytes(kVariant);
  static constexpr int kXStageBytes = ActivationStageBytes(kVariant);
  static constexpr int kXBoxBytes = kVariant.rows * kSegmentBytes;
  static constexpr int kXBoxes = kXStageBytes / kXBoxBytes;
  static constexpr int kXBoxCols =
      kSegmentBytes / ActivationBytes(kVariant.types);
  static constexpr int kExchange = ExchangeRows(kVariant);
  // 96 registers are too few for the sums of 64 rows.
  static constexpr bool kTakesRegisters =
      kVariant.rows == 64 && MaxConsumers(kVariant) == 4;

  __device__ static int Smaller(int a, int b) { return a < b ? a : b; }

  // ---- Shared memory --------------------------------------------------------

  __device__ gpu::Phaser* Phasers() const {
    return reinterpret_cast<gpu::Phaser*>(shared_ + args_.layout.phasers);
  }
  __device__ uint8_t* WeightStage(const gpu::Ring::Place& at) const {
    return shared_ + at.stage * args_.layout.stage_bytes;
  }
  __device__ uint8_t* ActivationStage(const gpu::Ring::Place& at) const {
    return shared_ + args_.layout.x + at.stage * kXStageBytes;
  }
  // What a warpgroup shows the others: [kExchange, kExchangePitch].
  __device__ float* Exchanged(int consumer) const {
    return reinterpret_cast<float*>(shared_ + args_.layout.sums) +
           consumer * kExchange * kExchangePitch;
  }

  __device__ void InitRings() const {
    if (!gpu::ElectOne()) return;
    w_ring_.Init(plan_.tensor_copies ? 1 : kWeightThreads, 4);
    x_ring_.Init(1, 4 * plan_.tiles);
    gpu::PublishPhasers();
  }

  __device__ RingTile Tile(int group, int tile) const {
    const int first =
        first_col_ + (group * plan_.tiles + tile) * plan_.tile_cols;
    return {first, Smaller(plan_.tile_cols, end_col_ - first)};
  }

  // ---- Loads ----------------------------------------------------------------

  __device__ void LoadWeights(int thread) const {
    const RingWeightLoader<kVariant> loader(args_, thread);
    const int64_t tile_bytes = plan_.tile_cols * args_.rows.next;
    gpu::Ring::Place at;
    bool first = true;
    for (int group = 0; group < plan_.groups; ++group) {
      const RingTile first_tile = Tile(group, 0);
      const char* from_step = loader.Column(first_tile.first_col);
      for (int step = 0; step < args_.steps; ++step) {
        const char* from = from_step;
        int cols = end_col_ - first_tile.first_col;  // left
        for (int tile = 0; tile < plan_.tiles; ++tile) {
          // NOTE: the first loads are on their way before there are phasers.
          if (!first) w_ring_.AwaitEmpty(at);
          loader.Load(from, Smaller(cols, plan_.tile_cols), step,
                      WeightStage(at));
          if (first) gpu::BlockSync();
          first = false;
          gpu::ArriveWhenCopied(w_ring_.full(at));
          w_ring_.Advance(at);
          from += tile_bytes;
          cols -= plan_.tile_cols;
        }
        from_step += kStepBytes;
      }
    }
  }

  // The same by boxes. Columns past a tile come along, to rows nobody uses.
  __device__ void LoadWeightBoxes() const {
    const bool elected = gpu::ElectOne();
    if (elected) gpu::PrefetchTensorMap(&args_.w_map);
    gpu::BlockSync();
    if (!elected) return;
    constexpr int kSegments = StageSegments(kVariant);
    constexpr int kBoxCols = kSegmentBytes / WeightBytes(kVariant.types);
    gpu::Ring::Place at;
    for (int group = 0; group < plan_.groups; ++group) {
      for (int step = 0; step < args_.steps; ++step) {
        for (int tile = 0; tile < plan_.tiles; ++tile) {
          w_ring_.AwaitEmpty(at);
          gpu::ArriveExpecting(w_ring_.full(at),
                               plan_.tile_cols * kSegmentBytes * kSegments);
#pragma unroll
          for (int segment = 0; segment < kSegments; ++segment) {
            gpu::CopyTensor2D(
                WeightStage(at) + segment * args_.layout.segment_bytes,
                &args_.w_map, (step * kSegments + segment) * kBoxCols,
                Tile(group, tile).first_col, w_ring_.full(at));
          }
          w_ring_.Advance(at);
        }
      }
    }
  }

  __device__ void LoadActivations() const {
    const bool elected = gpu::ElectOne();
    if (elected) gpu::PrefetchTensorMap(&args_.x_map);
    gpu::BlockSync();
    if (!elected) return;
    gpu::WaitForPredecessor();
    gpu::Ring::Place at;
    for (int group = 0; group < plan_.groups; ++group) {
      for (int step = 0; step < args_.steps; ++step) {
        x_ring_.AwaitEmpty(at);
        gpu::ArriveExpecting(x_ring_.full(at), kXStageBytes);
#pragma unroll
        for (int box = 0; box < kXBoxes; ++box) {
          gpu::CopyTensor2D(ActivationStage(at) + box * kXBoxBytes,
                            &args_.x_map, (step * kXBoxes + box) * kXBoxCols, 0,
                            x_ring_.full(at));
        }
        x_ring_.Advance(at);
      }
    }
  }

  // ---- Results --------------------------------------------------------------

  __device__ void Compute(int consumer) const {
    const Epilogue epilogue(args_.gemm.epilogue);
    gpu::BlockSync();
    gpu::WaitForPredecessor();
    const int share = consumer / plan_.tiles;
    gpu::Ring::Place w_at = {.stage = consumer};
    gpu::Ring::Place x_at = {.stage = share};
    for (int group = 0; group < plan_.groups; ++group) {
      const RingTile tile = Tile(group, consumer % plan_.tiles);
      RingTileSums<kVariant> sums(args_, epilogue, tile);
      const ResultScales scales = LoadScales(epilogue, tile, consumer);
      for (int step = share; step < args_.steps; step += plan_.shares) {
        sums.LoadScalesAhead(step);
        x_ring_.AwaitFull(x_at);
        w_ring_.AwaitFull(w_at);
        gpu::PublishToAsync();  // what cp.async has brought
        sums.Add(step, WeightStage(w_at), ActivationStage(x_at));
        if (gpu::ElectOne()) {
          w_ring_.Release(w_at);
          x_ring_.Release(x_at);
        }
        w_ring_.Advance(w_at, plan_.consumers);
        x_ring_.Advance(x_at, plan_.shares);
      }
      sums.Join();
      Finish(epilogue, tile, consumer, scales, sums);
    }
  }

  // The warpgroups of a tile store its results: a thread those of one column,
  // of every n-th row.
  struct Share {
    int col;
    int row;   // the first
    int rows;  // n
  };
  __device__ Share ShareOf(const Epilogue& epilogue, int consumer) const {
    const int thread = consumer / plan_.tiles * 128 + gpu::ThreadIndex() % 128;
    const int lanes =
        kRingTileRows / RowsOfColumn(epilogue.gated());  // of a row
    return {thread % lanes, thread / lanes, 128 * plan_.shares / lanes};
  }

  // Of the gate's, or the only, and of up's weights; of the first row of x.
  struct ResultScales {
    float w[2];
    float x;
  };
  // NOTE: before the stages, or a block would wait for memory once more when it
  // has all else.
  __device__ ResultScales LoadScales(const Epilogue& epilogue,
                                     const RingTile& tile, int consumer) const {
    ResultScales scales = {{1.0f, 1.0f}, 1.0f};
    if constexpr (!kVariant.block_scales) {
      const Share share = ShareOf(epilogue, consumer);
      // NOTE: what does not exist has the scale of something that does.
      const int col = share.col < tile.cols ? tile.first_col + share.col : 0;
      scales.w[0] =
          ScaleOrOne(args_.gemm.w_scales, epilogue.WeightRow(col, false), 0);
      if (epilogue.gated()) {
        scales.w[1] =
            ScaleOrOne(args_.gemm.w_scales, epilogue.WeightRow(col, true), 0);
      }
      scales.x = ScaleOrOne(args_.gemm.x_scales,
                            Smaller(share.row, args_.gemm.m - 1), 0);
    }
    return scales;
  }

  __device__ void Finish(const Epilogue& epilogue, const RingTile& tile,
                         int consumer, const ResultScales& scales,
                         const RingTileSums<kVariant>& sums) const {
    const int barrier = 1 + consumer % plan_.tiles;
    const int threads = 128 * plan_.shares;
#pragma unroll 1
    for (int part = 0; part < kVariant.rows / kExchange; ++part) {
      sums.Put(part, Exchanged(consumer));
      gpu::SyncGroup(barrier, threads);
      StoreResults(epilogue, tile, consumer, scales, part * kExchange);
      gpu::SyncGroup(barrier, threads);
    }
  }

  __device__ void StoreResults(const Epilogue& epilogue, const RingTile& tile,
                               int consumer, const ResultScales& scales,
                               int first_row) const {
    const Share share = ShareOf(epilogue, consumer);
    const int col = share.col;
    if (col >= tile.cols) return;
    const int tile_index = consumer % plan_.tiles;
    const int end = Smaller(kExchange, args_.gemm.m - first_row);
    for (int row = share.row; row < end; row += share.rows) {
      const bool first = first_row + row == share.row;
      const auto sum = [&](bool up) {
        const int tile_row = up ? args_.layout.up_row + col : col;
        const float value = SumOfShares(tile_index, row, tile_row);
        if constexpr (kVariant.block_scales) return value;
        const float x_scale =
            first ? scales.x
                  : ScaleOrOne(args_.gemm.x_scales, first_row + row, 0);
        return (value * x_scale) * scales.w[up ? 1 : 0];
      };
      if (epilogue.gated()) {
        epilogue.StoreGated(first_row + row, tile.first_col + col, sum(false),
                            sum(true));
      } else {
        epilogue.Store(first_row + row, tile.first_col + col, sum(false));
      }
    }
  }

  __device__ float SumOfShares(int tile, int row, int tile_row) const {
    const float* const first =
        Exchanged(tile) + row * kExchangePitch + tile_row;
    float sum = *first;
    for (int share = 1; share < plan_.shares; ++share) {
      sum += first[share * plan_.tiles * kExchange * kExchangePitch];
    }
    return sum;
  }

  const RingGemmArgs& args_;
  const RingGemmPlan& plan_;
  uint8_t* shared_;
  gpu::Ring w_ring_;
  gpu::Ring x_ring_;
  int first_col_;
  int end_col_;
};

}  // namespace lamina::gemm_internal
