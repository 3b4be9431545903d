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
// A tile of up to 32 rows of w would leave half of a wgmma's 64 to nobody. With
// `pairs` these are the same rows of w, 128 bytes of K further, and x has twice
// the rows: half of the instructions, and of the reads of shared memory.
//
// With 64 rows and few columns, x is more than a block's part of w. There two
// blocks, a cluster, have columns together and half of K each.
//
// In the end the shares of a tile meet in shared memory, where the stages have
// been, and are added in their order; then results take the epilogue. Weights
// depend on no other kernel: their loads start before WaitForPredecessor.
//
// The rule here: products of FP8 by FP8 and those with scales of blocks are
// summed in the tensor core over 128 of K (FP8 without these scales, more than
// 32 rows: 256), these sums in fp32 in the order of K within a share; of other
// types a share's are the tensor core's in up to four sums.
// The bits of a row of y depend on that row and on the plan, thus on m only
// through its band: up to 8, 16, 32, 64.

#include <cstdint>

#include "lamina/core/device/async.cuh"
#include "lamina/core/device/intrinsics.cuh"
#include "lamina/core/ring.cuh"
#include "lamina/gemm/skinny_gemm/epilogue.cuh"
#include "lamina/gemm/skinny_gemm/ring_gemm_args.h"
#include "lamina/gemm/skinny_gemm/ring_gemm_results.cuh"
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
    int owner = block;
    if constexpr (kTakesClusters) {
      owner /= plan_.cluster;
      first_step_ = block % plan_.cluster * args.steps;
    }
    first_col_ = owner * args.cols + Smaller(owner, args.more_cols);
    end_col_ = first_col_ + args.cols + (owner < args.more_cols ? 1 : 0);
  }

  __device__ void Run() const {
    gpu::AllowDependents();
    if (InCluster()) gpu::ClusterArriveRelaxed();
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
      if (InCluster()) {
        gpu::WaveSync();
        JoinExchange();
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
  // 96 registers are too few for the sums of 64 rows.
  static constexpr int kScalesAStep = StageSegments(kVariant) * kVariant.rows;
  static constexpr bool kTakesClusters = TakesClusters(kVariant);
  static constexpr bool kTakesRegisters =
      kVariant.rows == 64 && MaxConsumers(kVariant) == 4;

  __device__ static int Smaller(int a, int b) { return a < b ? a : b; }
  __device__ bool InCluster() const {
    return kTakesClusters && plan_.cluster > 1;
  }

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
  __device__ float* ActivationScales() const {
    return reinterpret_cast<float*>(shared_ + args_.layout.x_scales);
  }
  // Its first phase ends when they are there.
  __device__ gpu::Phaser* ActivationScalesPhaser() const {
    return Phasers() + 2 * (plan_.stages + plan_.x_stages);
  }

  __device__ void InitRings() const {
    if (!gpu::ElectOne()) return;
    w_ring_.Init(plan_.tensor_copies ? 1 : kWeightThreads, 4);
    x_ring_.Init(1, 4 * plan_.tiles);
    gpu::InitPhaser(ActivationScalesPhaser(), 32);
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
      const char* from_step = loader.Column(first_tile.first_col) +
                              int64_t{first_step_} * kStepBytes;
      for (int i = 0; i < args_.steps; ++i) {
        const int step = first_step_ + i;
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
                &args_.w_map,
                ((first_step_ + step) * kSegments + segment) * kBoxCols,
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
    gpu::WaitForPredecessor();
    const int stages = plan_.groups * args_.steps;
    const int free_stages = Smaller(plan_.x_stages, stages);
    gpu::Ring::Place at;
    int step = 0;
    if (elected) LoadActivationStages(free_stages, at, step);
    // NOTE: behind the first stages, which more depends on.
    LoadActivationScales();
    if (elected) LoadActivationStages(stages - free_stages, at, step);
  }

  __device__ void LoadActivationStages(int count, gpu::Ring::Place& at,
                                       int& step) const {
    for (; count > 0; --count) {
      x_ring_.AwaitEmpty(at);
      gpu::ArriveExpecting(x_ring_.full(at), kXStageBytes);
#pragma unroll
      for (int box = 0; box < kXBoxes; ++box) {
        gpu::CopyTensor2D(ActivationStage(at) + box * kXBoxBytes, &args_.x_map,
                          ((first_step_ + step) * kXBoxes + box) * kXBoxCols, 0,
                          x_ring_.full(at));
      }
      x_ring_.Advance(at);
      if (++step == args_.steps) step = 0;
    }
  }

  __device__ void LoadActivationScales() const {
    if constexpr (!kVariant.block_scales) {
      for (int row = gpu::ThreadIndex() % 32; row < kVariant.rows; row += 32) {
        ActivationScales()[row] =
            ScaleOrOne(args_.gemm.x_scales, Smaller(row, args_.gemm.m - 1), 0);
      }
      gpu::Arrive(ActivationScalesPhaser());
    }
  }

  // ---- Results --------------------------------------------------------------

  __device__ void Compute(int consumer) const {
    const Epilogue epilogue(args_.gemm.epilogue);
    gpu::BlockSync();
    gpu::WaitForPredecessor();
    LoadBlockScales();
    const float* const x_scales =
        ActivationScales() - first_step_ * kScalesAStep;
    const int share = consumer / plan_.tiles;
    gpu::Ring::Place w_at = {.stage = consumer};
    gpu::Ring::Place x_at = {.stage = share};
    for (int group = 0; group < plan_.groups; ++group) {
      const RingTile tile = Tile(group, consumer % plan_.tiles);
      RingTileSums<kVariant> sums(args_, epilogue, tile, x_scales);
      RingTileResults<kVariant> results(args_, epilogue, tile, consumer);
      for (int step = share; step < args_.steps; step += plan_.shares) {
        sums.LoadScalesAhead(first_step_ + step);
        x_ring_.AwaitFull(x_at);
        w_ring_.AwaitFull(w_at);
        gpu::PublishToAsync();  // what cp.async has brought
        sums.Add(first_step_ + step, WeightStage(w_at), ActivationStage(x_at));
        if (gpu::ElectOne()) {
          w_ring_.Release(w_at);
          x_ring_.Release(x_at);
        }
        w_ring_.Advance(w_at, plan_.consumers);
        x_ring_.Advance(x_at, plan_.shares);
      }
      sums.Join();
      Finish(results, sums);
    }
  }

  // Scales of blocks of x, of all of this block's K, by all that compute: in
  // the time that the first stages take.
  __device__ void LoadBlockScales() const {
    if constexpr (kVariant.block_scales) {
      if (!args_.layout.has_x_scales) return;
      for (int i = gpu::ThreadIndex(); i < args_.steps * kScalesAStep;
           i += 128 * plan_.consumers) {
        const int k =
            (first_step_ * kScalesAStep + i) / kVariant.rows * kSegmentBytes;
        ActivationScales()[i] = ScaleOrOne(
            args_.gemm.x_scales, Smaller(i % kVariant.rows, args_.gemm.m - 1),
            Smaller(k, args_.gemm.k - 1));
      }
      gpu::SyncGroup(1, 128 * plan_.consumers);
    }
  }

  __device__ void Finish(RingTileResults<kVariant>& results,
                         const RingTileSums<kVariant>& sums) const {
    auto* const exchanged =
        reinterpret_cast<float*>(shared_ + args_.layout.exchange);
    if (InCluster()) {
      gpu::WaveSync();
      gpu::ClusterWait();  // all blocks have begun
      results.ShowCluster(sums, exchanged);
      gpu::ClusterArrive();
      gpu::ClusterWait();
    } else if (PartialSums(plan_) > 1) {
      // NOTE: all of them need their stages no more, and there is one group.
      gpu::SyncGroup(1, 128 * plan_.consumers);
      results.Show(sums, exchanged);
      gpu::SyncGroup(1, 128 * plan_.consumers);
    }
    if constexpr (!kVariant.block_scales) {
      gpu::Await(ActivationScalesPhaser(), 0);
    }
    results.Store(sums, exchanged, ActivationScales());
  }

  // The part of waves that have nothing to exchange.
  __device__ void JoinExchange() const {
    gpu::ClusterWait();
    gpu::ClusterArrive();
    gpu::ClusterWait();
  }

  const RingGemmArgs& args_;
  const RingGemmPlan& plan_;
  uint8_t* shared_;
  gpu::Ring w_ring_;
  gpu::Ring x_ring_;
  int first_col_;
  int end_col_;
  int first_step_ = 0;
};

}  // namespace lamina::gemm_internal
