// SampleTokens on the CPU (the rule: tokens/sample_tokens.h). A thread a row,
// which it goes over from two to some eight times, a span at a time: the
// largest logit, the bins that top_k and top_p look at, the walk to the choice.
// Exponentials are the vectors' where a pass needs them all.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lamina/tokens/sample_tokens/sample_tokens_cpu.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
//
#include <algorithm>
#include <array>
#include <cstdint>

#include "lamina/core/elementary-inl.h"
#include "lamina/core/parallel.h"
#include "lamina/tokens/sample_tokens/sample_tokens_policy.h"
#include "lamina/tokens/sample_tokens/sample_tokens_rule.h"

HWY_BEFORE_NAMESPACE();
namespace lamina {
namespace HWY_NAMESPACE {

using tokens_internal::BinOf;
using tokens_internal::Cut;
using tokens_internal::CutSearch;
using tokens_internal::kBins;
using tokens_internal::SampleTokensKernelArgs;
using tokens_internal::Tally;
using tokens_internal::Walk;
using tokens_internal::WeightAt;
using tokens_internal::WeightOf;

inline constexpr int64_t kSampledSpan = 1024;

template <class T>
class SampledRow {
 public:
  SampledRow(const SampleTokensKernelArgs& args, int64_t row)
      : args_(args), row_(args.logits.Row<T>(row)) {}

  int64_t Choose(uint64_t random) {
    const int64_t best = Best();
    const int64_t id = tokens_internal::BestId(best);
    if (args_.greedy || tokens_internal::BestIsNan(best)) return id;
    largest_ = ToFloat(row_[id]);
    const int64_t cols = args_.logits.cols;
    Cut cut;
    bool all = args_.top_k == 0 || args_.top_k >= cols;
    if (!all) cut = Find(true, static_cast<uint64_t>(args_.top_k));
    if (args_.portion >> 32 == 0) {
      const uint64_t whole = all ? Total() : cut.weight;
      const uint64_t goal = tokens_internal::PortionOf(whole, args_.portion);
      cut = Find(false, std::max<uint64_t>(goal, 1));
      all = false;
    }
    if (all) cut.weight = Total();
    Walk walk{.target = tokens_internal::MultiplyHigh(random, cut.weight),
              .ties = cut.ties,
              .tie_weight = cut.tie_weight};
    return Pick(cut, walk);
  }

 private:
  int64_t Best() const {
    const DF32 d;
    int64_t best = 0;
    HWY_ALIGN float x[kSampledSpan];
    for (int64_t begin = 0; begin < args_.logits.cols; begin += kSampledSpan) {
      const int64_t size = Load(d, begin, x);
      for (int64_t i = 0; i < size; ++i) {
        best = std::max(best, tokens_internal::BestOf(x[i], begin + i));
      }
    }
    return best;
  }

  int64_t Load(DF32 d, int64_t begin, float* x) const {
    const int64_t size = std::min(kSampledSpan, args_.logits.cols - begin);
    ForEachVector(d, size, [&](int64_t i, int64_t n) HWY_ATTR {
      StoreUpTo(LoadUpTo(d, row_ + begin + i, n), d, x + i, n);
    });
    return size;
  }

  // use(id, x, distance, exp(distance)) for the tokens from the first one,
  // until it returns true. The last is there with kWeights only.
  template <bool kWeights, class Use>
  HWY_INLINE void ForEach(Use&& use) const {
    const DF32 d;
    HWY_ALIGN float x[kSampledSpan], distance[kSampledSpan], e[kSampledSpan];
    const auto largest = hn::Set(d, largest_);
    const auto inverse = hn::Set(d, args_.inverse_temperature);
    for (int64_t begin = 0; begin < args_.logits.cols; begin += kSampledSpan) {
      const int64_t size = Load(d, begin, x);
      ForEachVector(d, size, [&](int64_t i, int64_t n) HWY_ATTR {
        const auto v = LoadUpTo(d, x + i, n);
        const auto far = hn::Mul(hn::Sub(v, largest), inverse);
        const auto v_distance =
            hn::IfThenElse(hn::Eq(v, largest), hn::Zero(d), far);
        StoreUpTo(v_distance, d, distance + i, n);
        if constexpr (kWeights) StoreUpTo(Exp(d, v_distance), d, e + i, n);
      });
      for (int64_t i = 0; i < size; ++i) {
        if (use(begin + i, x[i], distance[i], kWeights ? e[i] : 0.0f)) return;
      }
    }
  }

  uint64_t Total() const {
    uint64_t total = 0;
    ForEach<true>([&](int64_t, float, float, float e) {
      total += WeightOf(e, args_.least_weight);
      return false;
    });
    return total;
  }

  Cut Find(bool by_count, uint64_t goal) const {
    CutSearch search(by_count, goal);
    Cut cut;
    for (bool first = true;; first = false) {
      std::array<Tally, kBins> bins{};
      const auto add = [&](int bin, uint64_t weight) {
        if (bin < 0) return;
        Tally& tally = bins[static_cast<size_t>(bin)];
        ++tally.count;
        tally.weight += weight;
      };
      if (first) {
        ForEach<true>([&](int64_t, float, float distance, float e) {
          add(BinOf(distance), WeightOf(e, args_.least_weight));
          return false;
        });
      } else {
        ForEach<false>([&](int64_t, float x, float distance, float) {
          const int bin = search.Bin(BinOf(distance), x);
          if (bin >= 0) add(bin, WeightAt(distance, args_.least_weight));
          return false;
        });
      }
      Tally before;
      int bin = 0;
      for (; bin < kBins - 1; ++bin) {
        const Tally& tally = bins[static_cast<size_t>(bin)];
        if (search.Reaches(before.count + tally.count,
                           before.weight + tally.weight)) {
          break;
        }
        before.count += tally.count;
        before.weight += tally.weight;
      }
      if (search.Descend(bin, before, bins[static_cast<size_t>(bin)], largest_,
                         args_.temperature, cut)) {
        return cut;
      }
    }
  }

  int64_t Pick(const Cut& cut, Walk walk) const {
    int64_t chosen = 0;
    ForEach<false>([&](int64_t id, float x, float distance, float) {
      if (distance < tokens_internal::kFarthest) return false;
      const Cut::Place place =
          cut.Of(BinOf(distance), tokens_internal::OrderKey(x));
      if (place == Cut::Place::kOut) return false;
      const bool tie = place == Cut::Place::kTie;
      chosen = id;
      return walk.EndsIn(tie ? 0 : WeightAt(distance, args_.least_weight),
                         tie ? 1 : 0);
    });
    return chosen;
  }

  const SampleTokensKernelArgs& args_;
  const T* row_;
  float largest_ = 0;
};

template <class T>
HWY_NOINLINE void SampleRows(const SampleTokensKernelArgs& args,
                             const Stream& stream) {
  ParallelFor(
      stream, args.logits.rows, /*grain=*/1,
      [&](int64_t begin, int64_t end, int) HWY_ATTR {
        for (int64_t row = begin; row < end; ++row) {
          const int64_t sequence =
              args.sequence_ids == nullptr ? row : args.sequence_ids[row];
          args.tokens[row] =
              SampledRow<T>(args, row).Choose(tokens_internal::RandomBits(
                  args.seed, sequence, args.positions[row]));
        }
      });
}

void SampleTokensRows(const SampleTokensKernelArgs& args,
                      const Stream& stream) {
  Dispatch(SampleTokensTable{}, std::array{args.logits.dtype},
           [&]<class T>(Types<T>) { SampleRows<T>(args, stream); });
}

}  // namespace HWY_NAMESPACE
}  // namespace lamina
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lamina::tokens_internal {

HWY_EXPORT(SampleTokensRows);

void SampleTokensCpu(const SampleTokensKernelArgs& args, const Stream& stream) {
  HWY_DYNAMIC_DISPATCH(SampleTokensRows)(args, stream);
}

}  // namespace lamina::tokens_internal
#endif  // HWY_ONCE
