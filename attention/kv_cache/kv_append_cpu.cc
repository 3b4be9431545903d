// KvAppend on the CPU: a copy with a conversion.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lamina/attention/kv_cache/kv_append_cpu.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
//
#include <array>

#include "lamina/attention/kv_cache/kv_append_cpu.h"
#include "lamina/attention/kv_cache/kv_cache_access.h"
#include "lamina/attention/kv_cache/kv_cache_policy.h"
#include "lamina/quant/fp8-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lamina {
namespace HWY_NAMESPACE {
namespace {

template <class From, class To>
HWY_INLINE void Convert(const From* from, To* to, int64_t count,
                        float inverse_scale) {
  const DF32 d;
  const VF32 inverse = hn::Set(d, inverse_scale);
  ForEachVector(d, count, [&](int64_t i, int64_t n) HWY_ATTR {
    VF32 v = LoadUpTo(d, from + i, n);
    if constexpr (IsFp8(DTypeOf<To>::value)) v = hn::Mul(v, inverse);
    StoreUpTo(v, d, to + i, n);
  });
}

template <class From, class To>
void AppendTokens(const KvAppendArgs& args, int64_t begin, int64_t end) {
  const KvCacheView& cache = args.cache;
  const attention_internal::KvTokens tokens = {args.k.batch, args.sequence_ids,
                                               args.positions};
  const float k_inverse =
      cache.k_scale == nullptr ? 1.0f : 1.0f / *cache.k_scale;
  const float v_inverse =
      cache.v_scale == nullptr ? 1.0f : 1.0f / *cache.v_scale;
  for (int64_t t = begin; t < end; ++t) {
    for (int64_t h = 0; h < cache.kv_heads; ++h) {
      const int64_t offset =
          attention_internal::FindRun(cache, tokens.Sequence(t), h,
                                      args.positions[t], 1)
              .offset;
      const int64_t row = t * cache.kv_heads + h;
      Convert(args.k.Row<From>(row), static_cast<To*>(cache.k) + offset,
              cache.head_dim, k_inverse);
      Convert(args.v.Row<From>(row), static_cast<To*>(cache.v) + offset,
              cache.head_dim, v_inverse);
    }
  }
}

void KvAppendRange(const KvAppendArgs& args, int64_t begin, int64_t end) {
  Dispatch(KvAppendTable{}, std::array{args.k.dtype},
           [&]<class From>(Types<From>) HWY_ATTR {
             Dispatch(KvCacheTable{}, std::array{args.cache.dtype},
                      [&]<class To>(Types<To>) HWY_ATTR {
                        AppendTokens<From, To>(args, begin, end);
                      });
           });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace lamina
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lamina {
HWY_EXPORT(KvAppendRange);
namespace attention_internal {
void KvAppendCpu(const KvAppendArgs& args, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(KvAppendRange)(args, begin, end);
}
}  // namespace attention_internal
}  // namespace lamina
#endif  // HWY_ONCE
