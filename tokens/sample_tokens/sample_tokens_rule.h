#pragma once

// The rule of tokens/sample_tokens.h in pieces, for every backend: weights,
// random bits, the search for what top_k and top_p leave, the walk to the
// choice. Integers throughout but for a weight's exponential.

#include <bit>
#include <cstdint>

#include "lamina/core/device/host_device.h"
#include "lamina/core/elementary.h"

namespace lamina::tokens_internal {

inline constexpr int64_t kMostTokens = int64_t{1} << 22;
inline constexpr float kWeightOne = 0x1p40f;

// ---- Random bits ------------------------------------------------------------

struct PhiloxWords {
  uint32_t v[4];
};
LAMINA_HD inline PhiloxWords Philox4x32(PhiloxWords counter, uint64_t key) {
  uint32_t low_key = static_cast<uint32_t>(key);
  uint32_t high_key = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xd2511f53u} * counter.v[0];
    const uint64_t b = uint64_t{0xcd9e8d57u} * counter.v[2];
    counter = {{static_cast<uint32_t>(b >> 32) ^ counter.v[1] ^ low_key,
                static_cast<uint32_t>(b),
                static_cast<uint32_t>(a >> 32) ^ counter.v[3] ^ high_key,
                static_cast<uint32_t>(a)}};
    low_key += 0x9e3779b9u;
    high_key += 0xbb67ae85u;
  }
  return counter;
}

LAMINA_HD inline uint64_t RandomBits(uint64_t seed, int64_t sequence,
                                     int32_t position) {
  const uint64_t bits = static_cast<uint64_t>(sequence);
  const PhiloxWords words = Philox4x32(
      {{static_cast<uint32_t>(position), 0u, static_cast<uint32_t>(bits),
        static_cast<uint32_t>(bits >> 32)}},
      seed);
  return words.v[0] | uint64_t{words.v[1]} << 32;
}

// floor(a * b / 2^64).
LAMINA_HD constexpr uint64_t MultiplyHigh(uint64_t a, uint64_t b) {
  const uint64_t a_low = a & 0xffffffffu, a_high = a >> 32;
  const uint64_t b_low = b & 0xffffffffu, b_high = b >> 32;
  const uint64_t middle = a_high * b_low + ((a_low * b_low) >> 32);
  const uint64_t other = a_low * b_high + (middle & 0xffffffffu);
  return a_high * b_high + (middle >> 32) + (other >> 32);
}

// floor(total * portion / 2^32); total < 2^63, portion <= 2^32.
LAMINA_HD constexpr uint64_t PortionOf(uint64_t total, uint64_t portion) {
  return (total >> 32) * portion + (((total & 0xffffffffu) * portion) >> 32);
}

// ---- One logit --------------------------------------------------------------

// Ordered as the logits are, which are not NaN; of +0 and -0 alike.
LAMINA_HD inline uint32_t OrderKey(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x + 0.0f);
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}

// The row's likeliest token: larger keys first, then lower ids, NaN before all.
LAMINA_HD inline int64_t BestOf(float x, int64_t id) {
  const int64_t key = x != x ? int64_t{1} << 32 : int64_t{OrderKey(x)};
  return key << 22 | (kMostTokens - 1 - id);
}
LAMINA_HD inline bool BestIsNan(int64_t best) { return best >> 54 != 0; }
LAMINA_HD inline int64_t BestId(int64_t best) {
  return kMostTokens - 1 - (best & (kMostTokens - 1));
}

// The rule's d: 0 for the largest logit, else negative, perhaps -Inf.
LAMINA_HD inline float Distance(float x, float largest,
                                float inverse_temperature) {
  return x == largest ? 0.0f : (x - largest) * inverse_temperature;
}

// floor(2^40 * e), where that is not below the least.
LAMINA_HD inline uint64_t WeightOf(float e, uint64_t least) {
  const uint64_t weight = static_cast<uint64_t>(e * kWeightOne);
  return weight < least ? 0 : weight;
}
// Distances below have no weight: exp(-28) < 2^-40.
inline constexpr float kFarthest = -28.0f;
LAMINA_HD inline uint64_t WeightAt(float distance, uint64_t least) {
  return distance < kFarthest ? 0 : WeightOf(Exp(distance), least);
}

// ---- What top_k and top_p leave ---------------------------------------------

inline constexpr int kBins = 256;
inline constexpr float kBinsAUnit = 8.0f;  // of distance

// Bin 0 has the largest logits. The last, from 31.9 on, has no weight.
LAMINA_HD inline int BinOf(float distance) {
  const float bin = distance * -kBinsAUnit;
  return bin < static_cast<float>(kBins - 1) ? static_cast<int>(bin)
                                             : kBins - 1;
}

// The first tokens of the order: whole bins below `bin`, and of it the keys
// from `from` on; besides the first `ties` ids whose key is `tie`.
struct Cut {
  int bin = kBins - 1;
  int64_t from = 0;
  int64_t tie = -1;
  int64_t ties = 0;
  uint64_t tie_weight = 0;
  uint64_t weight = 0;  // of them all

  enum class Place { kOut, kIn, kTie };
  LAMINA_HD Place Of(int token_bin, uint32_t key) const {
    if (token_bin != bin) return token_bin < bin ? Place::kIn : Place::kOut;
    if (key == tie) return Place::kTie;
    return key >= from ? Place::kIn : Place::kOut;
  }
};

struct Tally {
  int64_t count = 0;
  uint64_t weight = 0;
};

// Finds the cut at the fewest tokens that reach a goal, a count or a weight:
// bin by bin of the distance first, of the keys within the bin then, 256 at a
// time. The goal can be reached.
class CutSearch {
 public:
  LAMINA_HD CutSearch(bool by_count, uint64_t goal)
      : by_count_(by_count), goal_(goal) {}

  // The bin of the present pass that a token belongs to, -1 for none.
  LAMINA_HD int Bin(int token_bin, float x) const {
    if (bin_ < 0) return token_bin;
    if (token_bin != bin_) return -1;
    const int64_t key = OrderKey(x);
    if (key < low_ || key > high_) return -1;
    if (key < begin_) return kBins - 1;
    const int64_t step = (key - begin_) >> shift_;
    return step < kBins - 1 ? kBins - 1 - static_cast<int>(step) : 0;
  }

  // Whether the tally of tokens up to some point reaches the goal.
  LAMINA_HD bool Reaches(int64_t count, uint64_t weight) const {
    return by_count_ ? static_cast<uint64_t>(above_.count + count) >= goal_
                     : above_.weight + weight >= goal_;
  }

  // The goal is reached in `bin`; `before` are the bins before it, `within` is
  // its own tally. Returns whether `cut` is found; else there is another pass.
  LAMINA_HD bool Descend(int bin, const Tally& before, const Tally& within,
                         float largest, float temperature, Cut& cut) {
    above_.count += before.count;
    above_.weight += before.weight;
    if (bin_ < 0) {
      bin_ = bin;
      if (within.count <= 1) return One(within, cut);
      Guess(largest, temperature);
      return false;
    }
    const int64_t step = kBins - 1 - bin;
    const int64_t first = begin_ + (step << shift_);
    const int64_t last = first + (int64_t{1} << shift_) - 1;
    // NOTE: the outer bins also hold what was not guessed.
    if (bin != kBins - 1) low_ = low_ > first ? low_ : first;
    if (bin != 0) high_ = high_ < last ? high_ : last;
    if (within.count <= 1) return One(within, cut);
    // NOTE: not just equal: ends whatever happens, if somebody writes to the
    // row.
    if (low_ >= high_) {
      // Equals: as many as the goal takes.
      const uint64_t each = within.weight / static_cast<uint64_t>(within.count);
      const uint64_t ties = by_count_
                                ? goal_ - static_cast<uint64_t>(above_.count)
                                : (goal_ - above_.weight + each - 1) / each;
      cut = {.bin = bin_,
             .from = low_ + 1,
             .tie = low_,
             .ties = static_cast<int64_t>(ties),
             .tie_weight = each,
             .weight = above_.weight + ties * each};
      return true;
    }
    Spread(low_, high_);
    return false;
  }

 private:
  // The goal is reached with the only token that is left, if any.
  LAMINA_HD bool One(const Tally& within, Cut& cut) const {
    cut = {.bin = bin_, .from = low_, .weight = above_.weight + within.weight};
    return true;
  }
  // Where the keys of the bin are likely to be: only speed depends on it.
  LAMINA_HD void Guess(float largest, float temperature) {
    const float width = temperature / kBinsAUnit;
    const float high = largest - width * static_cast<float>(bin_);
    const float low = largest - width * static_cast<float>(bin_ + 1);
    const bool useful =
        bin_ < kBins - 1 && low < high && OrderKey(low) < OrderKey(high);
    Spread(useful ? int64_t{OrderKey(low)} : low_,
           useful ? int64_t{OrderKey(high)} : high_);
  }
  LAMINA_HD void Spread(int64_t low, int64_t high) {
    begin_ = low;
    shift_ = 0;
    while ((high - low) >> shift_ >= kBins) ++shift_;
  }

  bool by_count_;
  uint64_t goal_;
  Tally above_;
  int bin_ = -1;
  int64_t low_ = 0, high_ = 0xffffffff;  // of the keys in question
  int64_t begin_ = 0;                    // of the pass's bins
  int shift_ = 0;
};

// ---- The choice -------------------------------------------------------------

// Goes over parts of a row in the order of their ids to the one that holds the
// target.
struct Walk {
  uint64_t target = 0;
  int64_t ties = 0;  // left
  uint64_t tie_weight = 0;

  // Whether it is in this part, of this weight besides so many equals of the
  // cut. If not, goes past it.
  LAMINA_HD bool EndsIn(uint64_t weight, int64_t equals) {
    const int64_t taken = equals < ties ? equals : ties;
    const uint64_t all = weight + static_cast<uint64_t>(taken) * tie_weight;
    if (target < all) return true;
    target -= all;
    ties -= taken;
    return false;
  }
};

}  // namespace lamina::tokens_internal
