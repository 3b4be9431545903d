// For builds without cuBLASLt's header.

#include "bench/peers/cublaslt_peer.h"

namespace lamina::bench {

std::vector<Peer> CublasLtPeer(const CublasLtProblem&, int64_t,
                               const std::function<CublasLtOperands(int64_t)>&,
                               const Stream&) {
  return {};
}

}  // namespace lamina::bench
