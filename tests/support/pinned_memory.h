#pragma once

// Memory for the tests of a GPU build: one implementation a vendor.

#include <cstdint>

#include "tests/support/sparse_memory.h"  // AllocateManaged, FreeManaged

namespace lamina::testing {

// Host memory that the GPU reaches at the same address; null when there is
// none. Never freed.
void* AllocatePinned(int64_t bytes);

// A launch returns when its kernel has ended. Before the first use of the GPU.
void MakeLaunchesSynchronous();

}  // namespace lamina::testing
