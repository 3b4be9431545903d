#pragma once

#include "lamina/core/stream.h"
#include "lamina/norm/norm_problem.h"
#include "lamina/norm/rms_norm.h"

namespace lamina {

// {x and y, weight}. Each also with a quantised output of every type in
// CodeTable (quant/scale.h).
using RmsNormTable = norm_internal::NormTable;

namespace norm_internal {

// Backends. The arguments are valid and there is something to do.
void RmsNormCpu(const NormProblem& problem, const Stream& stream);

}  // namespace norm_internal
}  // namespace lamina
