#include "lamina/attention/decode_attention/tensor_attention_launch.cuh"

namespace lamina::attention_internal {

gpu::Error LaunchTensorAttentionF16(const AttentionKernelArgs& args,
                                    int64_t tokens,
                                    const TensorAttentionPlan& plan,
                                    const gpu::LaunchTarget& target) {
  return LaunchTensorAttentionOf<F16>(args, tokens, plan, target);
}

}  // namespace lamina::attention_internal
