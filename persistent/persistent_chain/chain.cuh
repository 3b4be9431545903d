#pragma once

// A chain of operators by one kernel whose blocks stay, one an SM.
//
//   3 waves        w of every GEMM -> ring of stages, as far ahead as it goes
//   1 wave         x of a GEMM -> its ring, once the stage before is done
//   2, 4 warpgroups  compute stage after stage; outside of GEMMs 256 threads
//                  stand for the blocks of a launch, one after the other
//
// The schedule goes through a ring of its own, for all of these are at
// different stages. A stage is done when every block that has a part in it has
// signalled; that counter is what waits for memory stand at. Weights depend on
// no stage: in all that time they keep coming.
//
// Bytes: those of the operators. What they compute and how it is split is said
// by their arguments, so that results have the bits of their own launches.

#include <cstdint>

#include "lamina/activation/lean_swiglu.cuh"
#include "lamina/attention/decode_attention/tensor_attention.cuh"
#include "lamina/attention/rope_append/rope_append_kernel.cuh"
#include "lamina/core/ring.cuh"
#include "lamina/gemm/skinny_gemm/ring_gemm.cuh"
#include "lamina/norm/lean_norm_row.cuh"
#include "lamina/persistent/persistent_chain/chain_args.h"
#include "lamina/persistent/persistent_chain/stand_in.cuh"
#include "lamina/quant/lean_rows.cuh"
#include "lamina/quant/quantize/lean_quantize.cuh"

namespace lamina::persistent_internal {

template <int kDims>
using ChainAttention =
    attention_internal::tensor::Traits<BF16, BF16, kDims,
                                       attention_internal::kFewTensorRows>;
static_assert(ChainAttention<64>::kThreads == kStandInThreads);

template <ChainVariant kVariant>
class Chain {
 public:
  __device__ explicit Chain(const ChainArgs& args)
      : args_(args),
        shared_(gpu::SharedMemory<uint8_t>()),
        schedule_(Phasers() + kGemmPhasers(args.layout), kScheduleStages),
        block_(static_cast<int>(gpu::BlockIndex())),
        round_(0) {}

  __device__ void Run() {
    const int wave = gpu::UniformWave();
    if (wave == 0 && gpu::ElectOne()) {
      gemm_internal::InitRingGemmPhasers(
          Phasers(), args_.layout.stages, gemm_internal::kWeightThreads,
          args_.layout.x_stages,
          gemm_internal::ActivationFills(kVariant.gemm()), 4 * kConsumers);
      schedule_.Init(1, kWaves);
      gpu::PublishPhasers();
    }
    round_ = *args_.rounds;
    gpu::BlockSync();
    if (wave < 4 * kConsumers) {
      Compute(wave / 4);
    } else if (wave < kWaves - 1) {
      LoadWeights(gpu::ThreadIndex() - 128 * kConsumers);
    } else {
      LoadActivations();
    }
  }

 private:
  static constexpr int kConsumers = Consumers(kVariant.types);
  static constexpr int kComputing = 128 * kConsumers;  // threads
  static constexpr int kWaves = 4 * kConsumers + 4;
  // Stages that are fetched before they are needed.
  static constexpr int kFetchedAhead = 3;
  using Gemm = gemm_internal::RingGemm<kVariant.gemm()>;
  using GemmArgs = gemm_internal::RingGemmArgs;
  using Attention = ChainAttention<kVariant.dims>;

  __device__ static int kGemmPhasers(const ChainLayout& layout) {
    return 2 * (layout.stages + layout.x_stages) + 1;
  }
  __device__ gpu::Phaser* Phasers() const {
    return reinterpret_cast<gpu::Phaser*>(shared_ + args_.layout.phasers);
  }
  __device__ const Stage& StageAt(const gpu::Ring::Place& at) const {
    return reinterpret_cast<const Stage*>(shared_ +
                                          args_.layout.schedule)[at.stage];
  }
  // NOTE: arguments are copied from the schedule to registers: in shared memory
  // they would be read anew behind every wait.
  __device__ Gemm GemmOf(const GemmArgs& args, int index) const {
    const GemmArgs& in_memory = args_.stages[index].As<GemmArgs>();
    return Gemm(args, &in_memory.x_map, &in_memory.w_map, block_);
  }
  __device__ bool HasPart(const Stage& stage) const {
    return block_ < stage.workers;
  }
  // What stage `index` waits for. `workers`: of the stage before.
  __device__ Predecessor PredecessorOf(int index, int workers) const {
    if (index == 0) return {};
    return {args_.signals + (index - 1),
            (round_ + 1) * static_cast<uint32_t>(workers), index - 1};
  }

  // ---- The schedule ---------------------------------------------------------

  // Calls visit(stage, index, workers of the stage before) in every wave of a
  // role; ahead(index) before it.
  template <class Ahead, class Visit>
  __device__ void ForStages(Ahead&& ahead, Visit&& visit) const {
    gpu::Ring::Place at;
    int workers = 0;
    for (int i = 0; i < args_.count; ++i) {
      ahead(i);
      schedule_.AwaitFull(at);
      const Stage& stage = StageAt(at);
      visit(stage, i, workers);
      workers = stage.workers;
      gpu::WaveSync();
      if (gpu::ElectOne()) schedule_.Release(at);
      schedule_.Advance(at);
    }
  }

  // ---- Loads ----------------------------------------------------------------

  __device__ void Fetch(int stage, gpu::Ring::Place& at) const {
    schedule_.AwaitEmpty(at);
    gpu::ArriveExpecting(schedule_.full(at), sizeof(Stage));
    gpu::CopyBulk(const_cast<Stage*>(&StageAt(at)), args_.stages + stage,
                  sizeof(Stage), schedule_.full(at));
    schedule_.Advance(at);
  }

  __device__ void LoadWeights(int thread) const {
    const bool fetches = thread < 32 && gpu::ElectOne();
    int fetched = 0;
    gpu::Ring::Place fetch_at;
    gpu::Ring::Place at;
    ForStages(
        [&](int i) {
          if (!fetches) return;
          for (; fetched < args_.count && fetched <= i + kFetchedAhead;
               ++fetched) {
            Fetch(fetched, fetch_at);
          }
        },
        [&](const Stage& stage, int index, int) {
          if (stage.kind != StageKind::kGemm || !HasPart(stage)) return;
          const GemmArgs args = stage.As<GemmArgs>();
          GemmOf(args, index)
              .template LoadWeights</*kFirst=*/false>(thread, at);
        });
  }

  __device__ void LoadActivations() const {
    gpu::Ring::Place at;
    ForStages([](int) {},
              [&](const Stage& stage, int index, int workers) {
                if (stage.kind != StageKind::kGemm || !HasPart(stage)) return;
                const GemmArgs args = stage.As<GemmArgs>();
                const Gemm gemm = GemmOf(args, index);
                gemm.PrefetchActivations();
                if (gpu::ElectOne()) PredecessorOf(index, workers).Await();
                gpu::WaveSync();
                // NOTE: other threads have written x, and tensor copies read.
                gpu::PublishToAsyncEverywhere();
                gemm.LoadActivations(at);
              });
  }

  // ---- Computing ------------------------------------------------------------

  __device__ void Compute(int consumer) const {
    gemm_internal::RingGemmPlaces places;
    ForStages([](int) {},
              [&](const Stage& stage, int index, int workers) {
                if (!HasPart(stage)) return;
                const Predecessor predecessor = PredecessorOf(index, workers);
                if (stage.kind == StageKind::kGemm) {
                  RunGemm(stage, index, consumer, predecessor, places);
                } else if (consumer < kStandInThreads / 128) {
                  RunStandIns(stage, predecessor);
                }
                gpu::SyncGroup(kStageBarrier, kComputing);
                if (gpu::ThreadIndex() == 0) gpu::Signal(args_.signals + index);
              });
    // NOTE: every block has read it, or the last stage would not be done.
    if (block_ == 0 && gpu::ThreadIndex() == 0) {
      PredecessorOf(args_.count, LastWorkers()).Await();
      *args_.rounds = round_ + 1;
    }
  }
  __device__ int LastWorkers() const {
    return args_.stages[args_.count - 1].workers;
  }

  __device__ void RunGemm(const Stage& stage, int index, int consumer,
                          const Predecessor& predecessor,
                          gemm_internal::RingGemmPlaces& places) const {
    const GemmArgs args = stage.As<GemmArgs>();
    const Gemm gemm = GemmOf(args, index);
    const gemm_internal::Epilogue epilogue(args.gemm.epilogue);
    if (gpu::ThreadIndex() == 0) predecessor.Await();
    gpu::SyncGroup(kStageBarrier, kComputing);
    if (consumer < args.plan.consumers) {
      gemm.Compute(consumer, epilogue, places);
    } else {
      gemm.Skip(places);
    }
  }

  __device__ void RunStandIns(const Stage& stage,
                              const Predecessor& predecessor) const {
    switch (stage.kind) {
      case StageKind::kNorm:
        return RunNorm(stage, predecessor);
      case StageKind::kRopeAppend:
        return RunRopeAppend(stage, predecessor);
      case StageKind::kAttention:
        return RunAttention(stage, predecessor);
      case StageKind::kRows:
        return RunRows(stage, predecessor);
      case StageKind::kGemm:
        return;
    }
  }

  // Calls run(stand-in) for the launch's blocks that are this block's.
  template <class Body>
  __device__ void ForBlocks(const Stage& stage, Predecessor predecessor,
                            Body&& run) const {
    for (int i = block_; i < stage.blocks; i += args_.blocks) {
      run(StandIn{i, stage.blocks, shared_ + args_.layout.work, predecessor});
      StandIn::Sync();
      predecessor = {};
    }
  }

  // -- RmsNorm, AddRmsNorm

  __device__ void RunNorm(const Stage& stage,
                          const Predecessor& predecessor) const {
    const auto& args = stage.As<norm_internal::LeanNormArgs>();
    const bool wide = args.cols > 16 * kStandInThreads;
    if (args.residual != nullptr) {
      wide ? RunNorms<4, true>(stage, predecessor)
           : RunNorms<2, true>(stage, predecessor);
    } else {
      wide ? RunNorms<4, false>(stage, predecessor)
           : RunNorms<2, false>(stage, predecessor);
    }
  }
  template <int kOctets, bool kResidual>
  __device__ void RunNorms(const Stage& stage,
                           const Predecessor& predecessor) const {
    using norm_internal::LeanNormRow;
    using norm_internal::LeanNormVariant;
    constexpr LeanNormVariant kRow = {
        .octets = kOctets,
        .output = kVariant.types == gemm_internal::RingTypes::kF8
                      ? LeanOutput::kStatic
                      : LeanOutput::kY};
    const auto& args = stage.As<norm_internal::LeanNormArgs>();
    ForBlocks(stage, predecessor, [&](const StandIn& block) {
      LeanNormRow<BF16, kRow, kResidual, StandIn>(args, block).Run();
    });
  }

  // -- RopeAppend

  __device__ void RunRopeAppend(const Stage& stage,
                                const Predecessor& predecessor) const {
    const auto& args = stage.As<attention_internal::RopeAppendKernelArgs>();
    ForBlocks(stage, predecessor, [&](const StandIn& block) {
      const auto index = static_cast<uint32_t>(block.index);
      const uint32_t token = args.blocks.Quotient(index);
      const int part = static_cast<int>(index - token * args.blocks.divisor);
      block.WaitForPredecessor();
      attention_internal::MoveUnit<BF16, true>(
          args, args.first_token + token,
          part * kStandInThreads + gpu::ThreadIndex());
    });
  }

  // -- DecodeAttention. The last of the blocks that share a token's splits adds
  // them up, and quantizes what comes out.

  __device__ void RunAttention(const Stage& stage,
                               const Predecessor& predecessor) const {
    namespace tensor = attention_internal::tensor;
    const auto& args = stage.As<attention_internal::TensorAttentionArgs>();
    ForBlocks(stage, predecessor, [&](const StandIn& block) {
      tensor::Attend<Attention>(args, block);
      const uint32_t slots = args.slots.divisor;
      const tensor::Place place = tensor::PlaceOf(args, block.index);
      const int head = place.kv_head * args.attention.group + place.first_row;
      if (slots > 1) {
        StandIn::Sync();
        const bool last = IsLastOf(
            args_.arrivals +
                args.slots.Quotient(static_cast<uint32_t>(block.index)),
            slots, block.Shared<uint32_t>());
        if (!last) return;
        FoldSplits(args, place, head);
      }
      if (!stage.quantizes) return;
      StandIn::Sync();
      QuantizeHeads(stage, place, head, block);
    });
  }
  // Two rows at once: what they wait for is memory.
  __device__ static void FoldSplits(
      const attention_internal::TensorAttentionArgs& args,
      const attention_internal::tensor::Place& place, int head) {
    namespace tensor = attention_internal::tensor;
    constexpr int kRowsAtOnce = kStandInThreads / kVariant.dims;
    const int column = gpu::ThreadIndex() % kVariant.dims;
    if (column >= args.attention.q.cols) return;
    for (int row = gpu::ThreadIndex() / kVariant.dims; row < place.group_rows;
         row += 2 * kRowsAtOnce) {
      const int next = row + kRowsAtOnce;
      float value[2] = {};
      value[0] = tensor::FoldedValue(args, place.token, head + row, column);
      if (next < place.group_rows) {
        value[1] = tensor::FoldedValue(args, place.token, head + next, column);
      }
      tensor::StoreValue<BF16>(args.attention, place.token, head + row, column,
                               value[0]);
      if (next < place.group_rows) {
        tensor::StoreValue<BF16>(args.attention, place.token, head + next,
                                 column, value[1]);
      }
    }
  }
  // The codes of a KV head's results: those columns of the Quantize that
  // follows.
  __device__ static void QuantizeHeads(
      const Stage& stage, const attention_internal::tensor::Place& place,
      int head, const StandIn& block) {
    const auto& attention =
        stage.As<attention_internal::TensorAttentionArgs>().attention;
    const auto head_dim = static_cast<int>(attention.q.cols);
    quant_internal::LeanRowsArgs args =
        stage.As<quant_internal::LeanRowsArgs>(kSecondArgs);
    const int64_t column = int64_t{head} * head_dim;
    args.x = static_cast<const char*>(args.x) + place.token * args.x_pitch +
             column * int64_t{sizeof(BF16)};
    args.out =
        static_cast<char*>(args.out) + place.token * args.out_pitch + column;
    args.rows = 1;
    args.cols = place.group_rows * head_dim;
    args.blocks_log2 = args.blocks_mask = 0;
    constexpr quant_internal::LeanRowsVariant kCodes = {
        .output = LeanOutput::kStatic};
    ReadyStandIn stand_in{block};
    stand_in.index = 0;
    quant_internal::LeanRows<quant_internal::PlainSource<BF16>, kCodes,
                             ReadyStandIn>(args, stand_in)
        .Run();
  }
  // Whether this is the last of so many blocks.
  __device__ static bool IsLastOf(uint32_t* counter, uint32_t blocks,
                                  uint32_t* shared) {
    if (gpu::ThreadIndex() == 0) {
      const bool last = gpu::SignalAndCount(counter) + 1 == blocks;
      if (last) *counter = 0;
      *shared = last ? 1 : 0;
    }
    StandIn::Sync();
    return *shared != 0;
  }

  // -- Quantize, GatedActivation

  __device__ void RunRows(const Stage& stage,
                          const Predecessor& predecessor) const {
    const auto& args = stage.As<quant_internal::LeanRowsArgs>();
    const bool codes = args.output == LeanOutput::kStatic;
    if (args.up != nullptr) {
      using Source = activation_internal::SwiGluSource<BF16>;
      codes ? RunRowsOf<Source, LeanOutput::kStatic>(stage, predecessor)
            : RunRowsOf<Source, LeanOutput::kY>(stage, predecessor);
    } else {
      RunRowsOf<quant_internal::PlainSource<BF16>, LeanOutput::kStatic>(
          stage, predecessor);
    }
  }
  template <class Source, LeanOutput kOutput>
  __device__ void RunRowsOf(const Stage& stage,
                            const Predecessor& predecessor) const {
    const auto& args = stage.As<quant_internal::LeanRowsArgs>();
    ForBlocks(stage, predecessor, [&](const StandIn& block) {
      constexpr quant_internal::LeanRowsVariant kRows = {.output = kOutput};
      block.WaitForPredecessor();
      quant_internal::LeanRows<Source, kRows, ReadyStandIn>(args,
                                                            ReadyStandIn{block})
          .Run();
    });
  }

  const ChainArgs& args_;
  uint8_t* shared_;
  gpu::Ring schedule_;
  int block_;
  uint32_t round_;
};

}  // namespace lamina::persistent_internal
