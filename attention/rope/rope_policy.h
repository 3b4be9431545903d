#pragma once

#include "lamina/core/dispatch.h"

namespace lamina {

// Types of x and y.
using RopeTable = Table<Types<float>, Types<F16>, Types<BF16>>;

}  // namespace lamina
