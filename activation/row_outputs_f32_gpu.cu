#include "lamina/activation/row_outputs_launch.cuh"

namespace lamina::activation_internal {

gpu::Error LaunchRowKernelF32(const RowKernelArgs& args,
                              const RowKernelPlan& plan,
                              const gpu::LaunchTarget& target) {
  return LaunchRowKernelOf<float>(args, plan, target);
}

}  // namespace lamina::activation_internal
