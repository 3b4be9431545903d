#include "lamina/persistent/persistent_chain/chain_launch.cuh"

namespace lamina::persistent_internal {

gpu::Error LaunchChainBF16(const ChainArgs& args,
                           const gpu::LaunchTarget& target) {
  return LaunchChainOf<gemm_internal::RingTypes::kBF16>(args, target);
}

}  // namespace lamina::persistent_internal
