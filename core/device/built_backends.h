#pragma once

// Which GPU backend this build has. For our own sources: what it reads are
// private compile definitions.

#include "lamina/core/device.h"

namespace lamina {

// The host executor of the tests (LAMINA_SIMT) runs the kernels of both
// vendors: with waves of 32 lanes as kCuda, of 64 as kHip. NOTE: not inline: a
// test links objects compiled with and without it.
#if defined(LAMINA_SIMT)
constexpr bool kHasCuda = true;
constexpr bool kHasHip = true;
#elif defined(LAMINA_GPU_CUDA)
constexpr bool kHasCuda = true;
constexpr bool kHasHip = false;
#elif defined(LAMINA_GPU_HIP)
constexpr bool kHasCuda = false;
constexpr bool kHasHip = true;
#else
constexpr bool kHasCuda = false;
constexpr bool kHasHip = false;
#endif
constexpr bool kHasGpu = kHasCuda || kHasHip;

constexpr bool IsBuilt(Backend backend) {
  switch (backend) {
    case Backend::kCpu:
      return true;
    case Backend::kCuda:
      return kHasCuda;
    case Backend::kHip:
      return kHasHip;
  }
  return false;
}

// "cpu, cuda": for error messages.
constexpr const char* kBuiltBackends = kHasCuda && kHasHip ? "cpu, cuda, hip"
                                       : kHasCuda          ? "cpu, cuda"
                                       : kHasHip           ? "cpu, hip"
                                                           : "cpu";

}  // namespace lamina
