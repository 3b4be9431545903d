#pragma once

#include "lamina/activation/activation.h"

namespace lamina::activation_internal {

// `args` has been checked and is not empty.
void ActivationCpu(const ActivationArgs& args, const Stream& stream);

}  // namespace lamina::activation_internal
