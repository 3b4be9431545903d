#pragma once

#include "lamina/core/stream.h"
#include "lamina/norm/layer_norm.h"
#include "lamina/norm/norm_problem.h"

namespace lamina {

// {x and y, weight and bias}. Each also with a quantised output of every type
// in CodeTable (quant/scale.h).
using LayerNormTable = norm_internal::NormTable;

namespace norm_internal {

// Backends. The arguments are valid and there is something to do.
void LayerNormCpu(const NormProblem& problem, const Stream& stream);

}  // namespace norm_internal
}  // namespace lamina
