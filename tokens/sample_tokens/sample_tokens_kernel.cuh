#pragma once

// SampleTokens on a GPU: the rule of tokens/sample_tokens.h.
//
// A row belongs to a block, or to the blocks of a cluster where rows are few
// and long; a wave goes over a segment of adjacent columns, by octets, once a
// pass: the largest logit; the weight of all, or for top_k and top_p from one
// to some six passes that count tokens and weights into 256 bins of shared
// memory; the weight of each segment. The wave whose segment holds the target
// then finds the token. What the blocks of a cluster find, each writes to all
// of them, in two places by turns: one barrier is then enough.
//
// Bytes: the row, from the cache after the first pass. Limit: latency.

#include <cstdint>

#include "lamina/core/device/counters.cuh"
#include "lamina/core/octet.cuh"
#include "lamina/tokens/sample_tokens/sample_tokens_args.h"
#include "lamina/tokens/sample_tokens/sample_tokens_rule.h"

namespace lamina::tokens_internal {

inline constexpr int kMostSampleBlocks = 8;   // of a cluster
inline constexpr int kMostSampleLanes = 512;  // of a block
inline constexpr int kMostSampleWaves = kMostSampleLanes / 32;
inline constexpr int kBinGroup = 16;

// Numbers in pairs: a weight and a count.
struct TallyOfPart {
  int64_t weight;
  int64_t count;
};

// The block's shared memory, before bins of every block of the cluster, twice.
struct SampledShared {
  TallyOfPart waves[kMostSampleWaves];
  TallyOfPart lanes[64];  // of one wave
  TallyOfPart merged[kBins];
  TallyOfPart groups[kBins / kBinGroup];
  TallyOfPart totals[2][kMostSampleBlocks];
  uint32_t count[kBins];
  uint32_t low[kBins], high[kBins];  // of weights
};
constexpr int64_t SampledSharedBytes(int cluster_blocks) {
  return static_cast<int64_t>(sizeof(SampledShared)) +
         2 * cluster_blocks * kBins * static_cast<int64_t>(sizeof(TallyOfPart));
}

template <class T, int kWave>
class SampleRow {
 public:
  __device__ explicit SampleRow(const SampleTokensKernelArgs& args)
      : args_(args),
        row_index_(args.first_row + gpu::ClusterIndex()),
        blocks_(gpu::ClusterBlocks()),
        rank_(gpu::ClusterRank()),
        lane_(gpu::ThreadIndex() % kWave),
        wave_(gpu::ThreadIndex() / kWave),
        waves_(gpu::BlockThreads() / kWave),
        shared_(*gpu::SharedMemory<SampledShared>()),
        bins_(reinterpret_cast<TallyOfPart*>(&shared_ + 1)) {}

  __device__ void Run() {
    // NOTE: waited for below: a block must have started before another writes
    // to its shared memory.
    gpu::ClusterArriveRelaxed();
    gpu::WaitForPredecessor();
    row_ = static_cast<const T*>(args_.logits.data) +
           row_index_ * args_.logits.row_stride;
    const int64_t at = (int64_t{rank_} * waves_ + wave_) * args_.segment;
    begin_ = at < args_.logits.cols ? at : args_.logits.cols;
    const int64_t end = begin_ + args_.segment;
    end_ = end < args_.logits.cols ? end : args_.logits.cols;
    gpu::ClusterWait();
    // NOTE: not before: dependents that start at once would take the units from
    // clusters that have not.
    gpu::AllowDependents();

    const int64_t best = Best();
    const int64_t id = BestId(best);
    if (args_.greedy || gpu::Uniform(BestIsNan(best))) {
      if (rank_ == 0 && gpu::ThreadIndex() == 0) args_.tokens[row_index_] = id;
      return;
    }
    largest_ = LoadOne(id);
    const Cut cut = FindCut();
    const int64_t sequence = args_.sequence_ids == nullptr
                                 ? row_index_
                                 : args_.sequence_ids[row_index_];
    const uint64_t random =
        RandomBits(args_.seed, sequence, args_.positions[row_index_]);
    Pick(cut, {.target = MultiplyHigh(random, cut.weight),
               .ties = cut.ties,
               .tie_weight = cut.tie_weight});
  }

 private:
  __device__ float LoadOne(int64_t column) const {
    return gpu::LoadOctetUpTo(row_ + column, 1).v[0];
  }

  // use(id, x) for the tokens of this lane.
  template <class Use>
  __device__ void ForEach(Use&& use) const {
#pragma unroll 1
    for (int64_t first = begin_ + lane_ * gpu::kOctet; first < end_;
         first += kWave * gpu::kOctet) {
      const int64_t left = end_ - first;
      const int count =
          left < gpu::kOctet ? static_cast<int>(left) : gpu::kOctet;
      const gpu::Octet octet = args_.octets && count == gpu::kOctet
                                   ? gpu::LoadOctet(row_ + first)
                                   : gpu::LoadOctetUpTo(row_ + first, count);
#pragma unroll
      for (int i = 0; i < gpu::kOctet; ++i) {
        if (i < count) use(first + i, octet.v[i]);
      }
    }
  }

  __device__ float DistanceOf(float x) const {
    return Distance(x, largest_, args_.inverse_temperature);
  }

  template <class Combine>
  __device__ static int64_t OverWave(int64_t value, int lanes,
                                     Combine&& combine) {
#pragma unroll
    for (int mask = 1; mask < lanes; mask *= 2) {
      value = combine(value, gpu::ExchangeHalves<kWave>(value, mask));
    }
    return value;
  }
  __device__ static int64_t WaveSum(int64_t value, int lanes = kWave) {
    return OverWave(value, lanes, [](int64_t a, int64_t b) { return a + b; });
  }

  // What every block of the cluster has to tell, to all of them; returns the
  // place of the blocks' values.
  __device__ const TallyOfPart* Exchange(const TallyOfPart& mine) {
    TallyOfPart* const totals = shared_.totals[turn_];
    turn_ ^= 1;
    if (gpu::ThreadIndex() < blocks_) {
      const int to = gpu::ThreadIndex();
      gpu::StoreShared(&totals[rank_].weight, to, mine.weight);
      gpu::StoreShared(&totals[rank_].count, to, mine.count);
    }
    gpu::ClusterArrive();
    gpu::ClusterWait();
    return totals;
  }

  __device__ int64_t Best() {
    int64_t best = 0;
    const auto larger = [](int64_t a, int64_t b) { return a > b ? a : b; };
    ForEach([&](int64_t id, float x) { best = larger(best, BestOf(x, id)); });
    best = OverWave(best, kWave, larger);
    if (lane_ == 0) shared_.waves[wave_].weight = best;
    gpu::BlockSync();
    for (int w = 0; w < waves_; ++w) {
      best = larger(best, shared_.waves[w].weight);
    }
    const TallyOfPart* const blocks = Exchange({best, 0});
    for (int b = 0; b < blocks_; ++b) best = larger(best, blocks[b].weight);
    return best;
  }

  // Sums over the row: of the wave in shared_.waves, of the blocks in what is
  // returned.
  __device__ const TallyOfPart* Sum(const TallyOfPart& mine) {
    const TallyOfPart wave = {WaveSum(mine.weight), WaveSum(mine.count)};
    if (lane_ == 0) shared_.waves[wave_] = wave;
    gpu::BlockSync();
    TallyOfPart block = {0, 0};
    for (int w = 0; w < waves_; ++w) {
      block.weight += shared_.waves[w].weight;
      block.count += shared_.waves[w].count;
    }
    return Exchange(block);
  }

  __device__ uint64_t Total() {
    uint64_t total = 0;
    ForEach([&](int64_t, float x) {
      total += WeightAt(DistanceOf(x), args_.least_weight);
    });
    const TallyOfPart* const blocks = Sum({static_cast<int64_t>(total), 0});
    total = 0;
    for (int b = 0; b < blocks_; ++b) {
      total += static_cast<uint64_t>(blocks[b].weight);
    }
    return total;
  }

  __device__ Cut FindCut() {
    const bool limited = args_.top_k > 0 && args_.top_k < args_.logits.cols;
    Cut cut;
    if (!limited) cut.weight = Total();
      // NOTE: one search in the code: it takes compilers seconds.
#pragma unroll 1
    for (int step = limited ? 0 : 1; step < 2; ++step) {
      const bool by_count = step == 0;
      if (!by_count && args_.portion >> 32 != 0) break;
      uint64_t goal = static_cast<uint64_t>(args_.top_k);
      if (!by_count) {
        goal = PortionOf(cut.weight, args_.portion);
        goal = goal > 1 ? goal : 1;
      }
      cut = Find(CutSearch(by_count, goal));
    }
    return cut;
  }

  __device__ void Add(int bin, uint32_t count, uint64_t weight) {
    gpu::AddShared(&shared_.count[bin], count);
    const uint32_t low = static_cast<uint32_t>(weight);
    const uint32_t before = gpu::AddShared(&shared_.low[bin], low);
    const uint32_t high =
        static_cast<uint32_t>(weight >> 32) + (before + low < before ? 1u : 0u);
    if (high != 0) gpu::AddShared(&shared_.high[bin], high);
  }

  // The bins of this block, of the tokens that `search` looks at.
  __device__ void FillBins(const CutSearch& search) {
    for (int bin = gpu::ThreadIndex(); bin < kBins;
         bin += gpu::BlockThreads()) {
      shared_.count[bin] = shared_.low[bin] = shared_.high[bin] = 0;
    }
    gpu::BlockSync();
    // NOTE: most tokens are often in the last bin: those without a weight.
    uint32_t last = 0;
    uint64_t last_weight = 0;
    ForEach([&](int64_t, float x) {
      const float distance = DistanceOf(x);
      const int bin = search.Bin(BinOf(distance), x);
      if (bin < 0) return;
      const uint64_t weight = WeightAt(distance, args_.least_weight);
      if (bin == kBins - 1) {
        ++last;
        last_weight += weight;
      } else {
        Add(bin, 1, weight);
      }
    });
    if (last != 0) Add(kBins - 1, last, last_weight);
    gpu::BlockSync();
  }

  // The bins of the row: in shared_.merged, and by 16 in shared_.groups.
  __device__ void MergeBins() {
    TallyOfPart* const parts = bins_ + turn_ * blocks_ * kBins;
    turn_ ^= 1;
    const int bin = gpu::ThreadIndex() % kBins;
    const TallyOfPart mine = {
        static_cast<int64_t>(uint64_t{shared_.high[bin]} << 32 |
                             shared_.low[bin]),
        shared_.count[bin]};
    TallyOfPart* const place = &parts[rank_ * kBins + bin];
    for (int to = gpu::ThreadIndex() / kBins; to < blocks_;
         to += gpu::BlockThreads() / kBins) {
      gpu::StoreShared(&place->weight, to, mine.weight);
      gpu::StoreShared(&place->count, to, mine.count);
    }
    gpu::ClusterArrive();
    gpu::ClusterWait();
    TallyOfPart sum = {0, 0};
    for (int b = 0; b < blocks_; ++b) {
      sum.weight += parts[b * kBins + bin].weight;
      sum.count += parts[b * kBins + bin].count;
    }
    // NOTE: all lanes take part in exchanges, those of a second set of bins
    // too.
    const TallyOfPart group = {WaveSum(sum.weight, kBinGroup),
                               WaveSum(sum.count, kBinGroup)};
    if (gpu::ThreadIndex() < kBins) {
      shared_.merged[bin] = sum;
      if (bin % kBinGroup == 0) shared_.groups[bin / kBinGroup] = group;
    }
    gpu::BlockSync();
  }

  __device__ Cut Find(CutSearch search) {
    Cut cut;
    bool found = false;
    while (!found) {
      FillBins(search);
      MergeBins();
      Tally before;
      // NOTE: the last one reaches the goal.
      const auto skip = [&](const TallyOfPart* parts, int first, int last) {
        for (; first < last; ++first) {
          const int64_t count = before.count + parts[first].count;
          const uint64_t weight =
              before.weight + static_cast<uint64_t>(parts[first].weight);
          if (search.Reaches(count, weight)) break;
          before = {count, weight};
        }
        return first;
      };
      const int group = skip(shared_.groups, 0, kBins / kBinGroup - 1);
      const int bin = skip(shared_.merged, group * kBinGroup,
                           group * kBinGroup + kBinGroup - 1);
      const TallyOfPart& within = shared_.merged[bin];
      const bool done = search.Descend(
          bin, before, {within.count, static_cast<uint64_t>(within.weight)},
          largest_, args_.temperature, cut);
      found = gpu::Uniform(done);
    }
    return cut;
  }

  // A token's part of the choice: its weight, or that it is one of the equals.
  __device__ void AddPart(const Cut& cut, float x, TallyOfPart& part) const {
    const float distance = DistanceOf(x);
    if (distance < kFarthest) return;
    const Cut::Place place = cut.Of(BinOf(distance), OrderKey(x));
    if (place == Cut::Place::kTie) ++part.count;
    if (place == Cut::Place::kIn) {
      part.weight +=
          static_cast<int64_t>(WeightAt(distance, args_.least_weight));
    }
  }

  // The first of `parts` that the walk ends in, or `last`.
  __device__ static int Follow(Walk& walk, const TallyOfPart* parts, int last) {
    int part = 0;
    while (part < last &&
           !walk.EndsIn(static_cast<uint64_t>(parts[part].weight),
                        parts[part].count)) {
      ++part;
    }
    return part;
  }

  __device__ void Pick(const Cut& cut, Walk walk) {
    TallyOfPart mine = {0, 0};
    ForEach([&](int64_t, float x) { AddPart(cut, x, mine); });
    const TallyOfPart* const blocks = Sum(mine);
    if (Follow(walk, blocks, blocks_ - 1) != rank_) return;
    if (Follow(walk, shared_.waves, waves_ - 1) != wave_) return;

    // The lanes take adjacent columns of the segment now.
    const int64_t step = CeilDiv(args_.segment, kWave);
    const int64_t at = begin_ + lane_ * step;
    const int64_t begin = at < end_ ? at : end_;
    const int64_t end = begin + step < end_ ? begin + step : end_;
    mine = {0, 0};
    for (int64_t id = begin; id < end; ++id) AddPart(cut, LoadOne(id), mine);
    shared_.lanes[lane_] = mine;
    gpu::WaveSync();
    if (Follow(walk, shared_.lanes, kWave - 1) != lane_) return;
    int64_t id = begin;
    for (; id < end - 1; ++id) {
      TallyOfPart part = {0, 0};
      AddPart(cut, LoadOne(id), part);
      if (walk.EndsIn(static_cast<uint64_t>(part.weight), part.count)) break;
    }
    args_.tokens[row_index_] = id;
  }

  const SampleTokensKernelArgs& args_;
  const int64_t row_index_;
  const int blocks_, rank_;
  const int lane_, wave_, waves_;
  SampledShared& shared_;
  TallyOfPart* const bins_;  // [2][blocks][kBins], of all blocks
  int turn_ = 0;
  const T* row_ = nullptr;
  int64_t begin_ = 0, end_ = 0;  // this wave's segment
  float largest_ = 0;
};

}  // namespace lamina::tokens_internal
