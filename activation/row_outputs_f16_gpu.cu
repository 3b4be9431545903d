#include "lamina/activation/row_outputs_launch.cuh"

namespace lamina::activation_internal {

gpu::Error LaunchRowKernelF16(const RowKernelArgs& args,
                              const RowKernelPlan& plan,
                              const gpu::LaunchTarget& target) {
  return LaunchRowKernelOf<F16>(args, plan, target);
}

}  // namespace lamina::activation_internal
