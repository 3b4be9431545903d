// Rope on the CPU: one token after the other, all heads of a token against
// one row of the table.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lamina/attention/rope/rope_cpu.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
//
#include <cstring>

#include "lamina/attention/rope/rope_cpu.h"
#include "lamina/attention/rope/rope_policy.h"
#include "lamina/core/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lamina {
namespace HWY_NAMESPACE {
namespace {

struct Pair {
  VF32 x0;
  VF32 x1;
};

HWY_INLINE Pair Rotate(Pair x, VF32 c, VF32 s) {
  return {hn::Sub(hn::Mul(x.x0, c), hn::Mul(x.x1, s)),
          hn::Add(hn::Mul(x.x1, c), hn::Mul(x.x0, s))};
}

// `table` holds `half` cosines, then `half` sines.
template <class T>
HWY_INLINE void RotateHalfSplit(const T* x, T* y, const float* table,
                                int64_t half) {
  const DF32 d;
  ForEachVector(d, half, [&](int64_t i, int64_t n) HWY_ATTR {
    const Pair rotated =
        Rotate({LoadUpTo(d, x + i, n), LoadUpTo(d, x + half + i, n)},
               LoadUpTo(d, table + i, n), LoadUpTo(d, table + half + i, n));
    StoreUpTo(rotated.x0, d, y + i, n);
    StoreUpTo(rotated.x1, d, y + half + i, n);
  });
}

template <class T>
HWY_INLINE void RotateAdjacent(const T* x, T* y, const float* table,
                               int64_t half) {
  const DF32 d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  HWY_ALIGN float pairs[2 * hn::MaxLanes(DF32())] = {};
  ForEachVector(d, half, [&](int64_t i, int64_t n) HWY_ATTR {
    const T* from = x + 2 * i;
    T* to = y + 2 * i;
    // 2n elements: a first vector of min(2n, lanes), the rest in a second.
    const int64_t first = std::min(2 * n, lanes);
    const int64_t rest = 2 * n - first;
    hn::Store(LoadUpTo(d, from, first), d, pairs);
    if (rest > 0) hn::Store(LoadUpTo(d, from + first, rest), d, pairs + lanes);
    Pair v;
    hn::LoadInterleaved2(d, pairs, v.x0, v.x1);
    v = Rotate(v, LoadUpTo(d, table + i, n), LoadUpTo(d, table + half + i, n));
    hn::StoreInterleaved2(v.x0, v.x1, d, pairs);
    StoreUpTo(hn::Load(d, pairs), d, to, first);
    if (rest > 0) StoreUpTo(hn::Load(d, pairs + lanes), d, to + first, rest);
  });
}

template <class T>
void RopeTokens(const RopeArgs& args, int64_t begin, int64_t end) {
  const int64_t rotary_dim = args.table.cols;
  const int64_t heads = args.x.rows;
  for (int64_t t = begin; t < end; ++t) {
    const float* table = args.table.Row<float>(args.positions[t]);
    for (int64_t h = 0; h < heads; ++h) {
      const T* x = args.x.Row<T>(t * heads + h);
      T* y = args.y.Row<T>(t * heads + h);
      if (args.pairing == RopePairing::kHalfSplit) {
        RotateHalfSplit(x, y, table, rotary_dim / 2);
      } else {
        RotateAdjacent(x, y, table, rotary_dim / 2);
      }
      if (x != y && rotary_dim < args.x.cols) {
        std::memcpy(y + rotary_dim, x + rotary_dim,
                    static_cast<size_t>(args.x.cols - rotary_dim) * sizeof(T));
      }
    }
  }
}

void RopeRange(const RopeArgs& args, int64_t begin, int64_t end) {
  Dispatch(RopeTable{}, std::array{args.x.dtype},
           [&]<class T>(Types<T>)
               HWY_ATTR { RopeTokens<T>(args, begin, end); });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace lamina
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lamina {
HWY_EXPORT(RopeRange);
namespace attention_internal {
void RopeCpu(const RopeArgs& args, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(RopeRange)(args, begin, end);
}
}  // namespace attention_internal
}  // namespace lamina
#endif  // HWY_ONCE
