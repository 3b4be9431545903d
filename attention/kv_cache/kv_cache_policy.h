#pragma once

#include <type_traits>

#include "lamina/core/dispatch.h"

namespace lamina {

// Types that a cache can hold.
using KvCacheTable =
    Table<Types<float>, Types<F16>, Types<BF16>, Types<F8E4M3Fn>, Types<F8E5M2>,
          Types<F8E4M3Fnuz>, Types<F8E5M2Fnuz>>;

// Types of new keys and values; each goes into each type of the cache.
using KvAppendTable = Table<Types<float>, Types<F16>, Types<BF16>>;

}  // namespace lamina
