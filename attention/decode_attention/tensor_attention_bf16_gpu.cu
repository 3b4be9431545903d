#include "lamina/attention/decode_attention/tensor_attention_launch.cuh"

namespace lamina::attention_internal {

gpu::Error LaunchTensorAttentionBF16(const AttentionKernelArgs& args,
                                     int64_t tokens,
                                     const TensorAttentionPlan& plan,
                                     const gpu::LaunchTarget& target) {
  return LaunchTensorAttentionOf<BF16>(args, tokens, plan, target);
}

}  // namespace lamina::attention_internal
