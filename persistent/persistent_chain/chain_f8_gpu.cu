#include "lamina/persistent/persistent_chain/chain_launch.cuh"

namespace lamina::persistent_internal {

gpu::Error LaunchChainF8(const ChainArgs& args,
                         const gpu::LaunchTarget& target) {
  return LaunchChainOf<gemm_internal::RingTypes::kF8>(args, target);
}

}  // namespace lamina::persistent_internal
