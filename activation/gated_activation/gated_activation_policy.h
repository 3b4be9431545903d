#pragma once

#include "lamina/core/dispatch.h"
#include "lamina/core/dtype.h"

namespace lamina {

// Element types of x and y.
using GatedActivationTable = Table<Types<float>, Types<F16>, Types<BF16>>;

}  // namespace lamina
