#pragma once

// Host side of quant/quantized_args.h.

#include "lamina/quant/quantized_args.h"
#include "lamina/quant/scale.h"

namespace lamina {

// `scales` and `out` have been checked; `out` may be absent.
ScaleArgs ToScaleArgs(const ScaleView& scales);
ScaleArgs ToScaleArgs(const ConstScaleView& scales);  // for reading
QuantizedArgs ToQuantizedArgs(const QuantizedOutput& out);

}  // namespace lamina
