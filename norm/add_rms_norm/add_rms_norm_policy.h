#pragma once

#include "lamina/core/stream.h"
#include "lamina/norm/add_rms_norm.h"
#include "lamina/norm/norm_problem.h"

namespace lamina {

// {x, residual and y; weight}. Each also with a quantised output of every type
// in CodeTable (quant/scale.h).
using AddRmsNormTable = norm_internal::NormTable;

namespace norm_internal {

// Backends. The arguments are valid and there is something to do.
void AddRmsNormCpu(const AddRmsNormProblem& problem, const Stream& stream);

}  // namespace norm_internal
}  // namespace lamina
