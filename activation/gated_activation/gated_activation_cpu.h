#pragma once

#include "lamina/activation/gated_activation.h"

namespace lamina::activation_internal {

// `args` has been checked and is not empty.
void GatedActivationCpu(const GatedActivationArgs& args, const Stream& stream);

}  // namespace lamina::activation_internal
