#pragma once

// Launch(kernel, shape, target, args): the one place where kernels are
// launched. A kernel takes one plain struct by value.

#include "lamina/core/launch.h"

#if defined(LAMINA_SIMT)
#include "lamina/core/device/simt/launch.cuh"
#elif defined(__HIP__)
#include "lamina/core/device/hip/launch.cuh"
#else
#include "lamina/core/device/cuda/launch.cuh"
#endif
