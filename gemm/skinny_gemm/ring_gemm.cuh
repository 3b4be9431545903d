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
//   1 wave         x -> ring of stages: all rows, that part of K, by TMA, or by
//                  cp.async up to 8 rows
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

// Where a block is in its rings. Zeros at first; in a kernel that runs several
// GEMMs (persistent/) one goes on where the last one has stopped.
struct RingGemmPlaces {
  gpu::Ring::Place w = {};
  gpu::Ring::Place x = {};
  uint32_t scales_parity = 0;  // of the phase in which scales of x come
};

// Few rows of x are copied by a wave's lanes: the boxes of a tensor copy, of
// which one thread can ask for one in some 130 cycles, take longer.
constexpr bool CopiesActivations(const RingGemmVariant& variant) {
  return variant.rows == 8;
}
// Arrivals that fill a stage of x.
constexpr int ActivationFills(const RingGemmVariant& variant) {
  return CopiesActivations(variant) ? 32 : 1;
}

// By one thread, before all else. The stages of w, how many arrivals fill one;
// those of x, and how many releases empty one of these.
__device__ inline void InitRingGemmPhasers(gpu::Phaser* phasers, int stages,
                                           int fills, int x_stages, int x_fills,
                                           int x_releases) {
  gpu::Ring(phasers, stages).Init(fills, 4);
  gpu::Ring(phasers + 2 * stages, x_stages).Init(x_fills, x_releases);
  gpu::InitPhaser(phasers + 2 * (stages + x_stages), 32);
  gpu::PublishPhasers();
}

template <RingGemmVariant kVariant>
class RingGemm {
 public:
  // x_map, w_map: the arguments', in memory that is no block's.
  __device__ RingGemm(const RingGemmArgs& args, const gpu::TensorMap* x_map,
                      const gpu::TensorMap* w_map, int block)
      : args_(args),
        plan_(args.plan),
        steps_(args.steps),
        stage_bytes_(args.layout.stage_bytes),
        x_(args.layout.x),
        x_map_(x_map),
        w_map_(w_map),
        shared_(gpu::SharedMemory<uint8_t>()),
        w_ring_(Phasers(), plan_.stages),
        x_ring_(Phasers() + 2 * plan_.stages, plan_.x_stages) {
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
      if (wave == 0 && gpu::ElectOne()) {
        InitRingGemmPhasers(
            Phasers(), plan_.stages, plan_.tensor_copies ? 1 : kWeightThreads,
            plan_.x_stages, ActivationFills(kVariant), 4 * plan_.tiles);
      }
      const Epilogue epilogue(args_.gemm.epilogue);
      gpu::BlockSync();
      gpu::WaitForPredecessor();
      RingGemmPlaces places;
      Compute(wave / 4, epilogue, places);
    } else {
      if constexpr (kTakesRegisters) gpu::GiveRegisters<56>();
      if (wave < computing_waves + kWeightThreads / 32) {
        if (!plan_.tensor_copies) {
          gpu::Ring::Place at;
          LoadWeights</*kFirst=*/true>(
              gpu::ThreadIndex() - 32 * computing_waves, at);
        } else if (wave == computing_waves) {
          LoadWeightBoxes();
        } else {
          gpu::BlockSync();
        }
      } else {
        PrefetchActivations();
        gpu::BlockSync();
        gpu::WaitForPredecessor();
        gpu::Ring::Place at;
        LoadActivations(at);
      }
      if (InCluster()) {
        gpu::WaveSync();
        JoinExchange();
      }
    }
  }

  // ---- The parts that waves play; a kernel of several GEMMs calls them. -----

  // The `thread`-th of kWeightThreads threads. kFirst: the barrier of the block
  // behind InitRingGemmPhasers is in here.
  template <bool kFirst>
  __device__ void LoadWeights(int thread, gpu::Ring::Place& at) const {
    const RingWeightLoader<kVariant> loader(args_, thread);
    const int64_t tile_bytes = plan_.tile_cols * args_.rows.next;
    bool first = kFirst;
    for (int group = 0; group < plan_.groups; ++group) {
      const RingTile first_tile = Tile(group, 0);
      const char* from_step = loader.Column(first_tile.first_col) +
                              int64_t{first_step_} * kStepBytes;
      for (int i = 0; i < steps_; ++i) {
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

  // By a wave, before x is there, and then once it is.
  __device__ void PrefetchActivations() const {
    if (!kCopiesOfX && gpu::ElectOne()) gpu::PrefetchTensorMap(x_map_);
  }
  __device__ void LoadActivations(gpu::Ring::Place& at) const {
    const int stages = plan_.groups * steps_;
    const int free_stages = Smaller(plan_.x_stages, stages);
    float scales[kScalesALane];
    FetchActivationScales(scales);
    int step = 0;
    LoadActivationStages(free_stages, at, step);
    // NOTE: behind the first stages, which more depends on.
    StoreActivationScales(scales);
    LoadActivationStages(stages - free_stages, at, step);
  }

  // By warpgroup `consumer`, once x, bias and residual are there.
  __device__ void Compute(int consumer, const Epilogue& epilogue,
                          RingGemmPlaces& places) const {
    LoadBlockScales();
    const float* const x_scales =
        ActivationScales() - first_step_ * kScalesAStep;
    const int share = consumer / plan_.tiles;
    const int x_releases = args_.x_releases;
    gpu::Ring::Place w_at = places.w;
    gpu::Ring::Place x_at = places.x;
    w_ring_.Skip(w_at, consumer);
    x_ring_.Skip(x_at, share);
    for (int group = 0; group < plan_.groups; ++group) {
      const RingTile tile = Tile(group, consumer % plan_.tiles);
      RingTileSums<kVariant> sums(args_, epilogue, tile, x_scales);
      RingTileResults<kVariant> results(args_, epilogue, tile, consumer);
      for (int step = share; step < steps_; step += plan_.shares) {
        sums.LoadScalesAhead(first_step_ + step);
        x_ring_.AwaitFull(x_at);
        w_ring_.AwaitFull(w_at);
        gpu::PublishToAsync();  // what cp.async has brought
        sums.Add(first_step_ + step, WeightStage(w_at), ActivationStage(x_at));
        if (gpu::ElectOne()) {
          w_ring_.Release(w_at);
          x_ring_.Release(x_at, x_releases);
        }
        w_ring_.Advance(w_at, plan_.consumers);
        x_ring_.Advance(x_at, plan_.shares);
      }
      sums.Join();
      Finish(results, sums, places.scales_parity);
    }
    Skip(places);
  }
  // By warpgroups that have no part in it.
  __device__ void Skip(RingGemmPlaces& places) const {
    w_ring_.Skip(places.w, plan_.groups * steps_ * plan_.tiles);
    x_ring_.Skip(places.x, plan_.groups * steps_);
    places.scales_parity ^= 1;
  }

 private:
  static constexpr int kStepBytes = StageStepBytes(kVariant);
  static constexpr int kXStageBytes = ActivationStageBytes(kVariant);
  static constexpr int kXBoxBytes = kVariant.rows * kSegmentBytes;
  static constexpr int kXBoxes = kXStageBytes / kXBoxBytes;
  static constexpr bool kCopiesOfX = CopiesActivations(kVariant);
  static constexpr int kSegmentColumns = kSegmentBytes / 16;
  static constexpr int kScalesALane = kVariant.rows == 64 ? 2 : 1;
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
    return shared_ + at.stage * stage_bytes_;
  }
  __device__ uint8_t* ActivationStage(const gpu::Ring::Place& at) const {
    return shared_ + x_ + at.stage * kXStageBytes;
  }
  __device__ float* ActivationScales() const {
    return reinterpret_cast<float*>(shared_ + args_.layout.x_scales);
  }
  // Its phase ends when they are there.
  __device__ gpu::Phaser* ActivationScalesPhaser() const {
    return Phasers() + 2 * (plan_.stages + plan_.x_stages);
  }

  __device__ RingTile Tile(int group, int tile) const {
    const int first =
        first_col_ + (group * plan_.tiles + tile) * plan_.tile_cols;
    return {first, Smaller(plan_.tile_cols, end_col_ - first)};
  }

  // ---- Loads ----------------------------------------------------------------

  // LoadWeights by boxes. Columns past a tile come along, to rows nobody uses.
  __device__ void LoadWeightBoxes() const {
    const bool elected = gpu::ElectOne();
    if (elected) gpu::PrefetchTensorMap(w_map_);
    gpu::BlockSync();
    if (!elected) return;
    constexpr int kSegments = StageSegments(kVariant);
    constexpr int kBoxCols = kSegmentBytes / WeightBytes(kVariant.types);
    gpu::Ring::Place at;
    for (int group = 0; group < plan_.groups; ++group) {
      for (int step = 0; step < steps_; ++step) {
        for (int tile = 0; tile < plan_.tiles; ++tile) {
          w_ring_.AwaitEmpty(at);
          gpu::ArriveExpecting(w_ring_.full(at),
                               plan_.tile_cols * kSegmentBytes * kSegments);
#pragma unroll
          for (int segment = 0; segment < kSegments; ++segment) {
            gpu::CopyTensor2D(
                WeightStage(at) + segment * args_.layout.segment_bytes, w_map_,
                ((first_step_ + step) * kSegments + segment) * kBoxCols,
                Tile(group, tile).first_col, w_ring_.full(at));
          }
          w_ring_.Advance(at);
        }
      }
    }
  }

  __device__ void LoadActivationStages(int count, gpu::Ring::Place& at,
                                       int& step) const {
    const int lane = gpu::ThreadIndex() % 32;
    const ActivationRows rows = {
        static_cast<const char*>(args_.gemm.x), args_.gemm.x_pitch,
        args_.gemm.m, args_.gemm.k * ActivationBytes(kVariant.types)};
    for (; count > 0; --count) {
      x_ring_.AwaitEmpty(at);
      if constexpr (kCopiesOfX) {
        CopyActivations(rows, first_step_ + step, lane, ActivationStage(at));
        gpu::ArriveWhenCopied(x_ring_.full(at));
      } else if (gpu::ElectOne()) {
        gpu::ArriveExpecting(x_ring_.full(at), kXStageBytes);
#pragma unroll
        for (int box = 0; box < kXBoxes; ++box) {
          gpu::CopyTensor2D(ActivationStage(at) + box * kXBoxBytes, x_map_,
                            ((first_step_ + step) * kXBoxes + box) * kXBoxCols,
                            0, x_ring_.full(at));
        }
      }
      x_ring_.Advance(at);
      if (++step == steps_) step = 0;
    }
  }

  struct ActivationRows {
    const char* first;
    int64_t pitch;
    int count;
    int bytes;
  };
  // A stage of the rows that there are: others are products of nobody.
  __device__ static void CopyActivations(const ActivationRows& rows, int step,
                                         int lane, uint8_t* stage) {
    constexpr int kColumns = kXStageBytes / kVariant.rows / 16;
#pragma unroll
    for (int column = lane; column < kColumns; column += 32) {
      const int byte = (step * kColumns + column) * 16;
      const int left = rows.bytes - byte;
      const int bytes = left >= 16 ? 16 : left > 0 ? left : 0;
      uint8_t* const to = stage + column / kSegmentColumns * kXBoxBytes;
      const char* from = rows.first + byte;
      for (int row = 0; row < rows.count; ++row) {
        // NOTE: of nothing, from an address that there is.
        gpu::CopyAsync16(to + Swizzled(row, column % kSegmentColumns),
                         bytes > 0 ? from : rows.first, bytes);
        from += rows.pitch;
      }
    }
  }

  __device__ void FetchActivationScales(float (&scales)[kScalesALane]) const {
    if constexpr (!kVariant.block_scales) {
#pragma unroll
      for (int i = 0; i < kScalesALane; ++i) {
        const int row = gpu::ThreadIndex() % 32 + 32 * i;
        scales[i] =
            ScaleOrOne(args_.gemm.x_scales, Smaller(row, args_.gemm.m - 1), 0);
      }
    }
  }
  __device__ void StoreActivationScales(
      const float (&scales)[kScalesALane]) const {
    if constexpr (!kVariant.block_scales) {
#pragma unroll
      for (int i = 0; i < kScalesALane; ++i) {
        const int row = gpu::ThreadIndex() % 32 + 32 * i;
        if (row < kVariant.rows) ActivationScales()[row] = scales[i];
      }
      gpu::Arrive(ActivationScalesPhaser());
    }
  }

  // ---- Results --------------------------------------------------------------

  // Scales of blocks of x, of all of this block's K, by all that compute: in
  // the time that the first stages take.
  __device__ void LoadBlockScales() const {
    if constexpr (kVariant.block_scales) {
      if (!args_.layout.has_x_scales) return;
      for (int i = gpu::ThreadIndex(); i < steps_ * kScalesAStep;
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
                         const RingTileSums<kVariant>& sums,
                         uint32_t scales_parity) const {
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
      gpu::Await(ActivationScalesPhaser(), scales_parity);
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
  // NOTE: what loops need is copied: where the arguments are in shared memory
  // they would be read anew behind every wait.
  const RingGemmPlan plan_;
  const int steps_;
  const int stage_bytes_;
  const int x_;
  const gpu::TensorMap* x_map_;
  const gpu::TensorMap* w_map_;
  uint8_t* shared_;
  gpu::Ring w_ring_;
  gpu::Ring x_ring_;
  int first_col_;
  int end_col_;
  int first_step_ = 0;
};

}  // namespace lamina::gemm_internal
