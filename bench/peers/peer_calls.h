#pragma once

// The peers of bench/peers/row_peers.h as calls of a case: none on the CPU and
// in a build without CUDA.

#include <functional>
#include <memory>
#include <vector>

#include "bench/peers/row_peers.h"
#include "bench/support/harness.h"
#include "lamina/core/buffer.h"
#include "lamina/core/device/built_backends.h"
#include "lamina/core/device/runtime.h"

namespace lamina::bench {

inline bool HasGpuPeers(const Stream& stream) {
  return kHasCuda && stream.device().backend == Backend::kCuda;
}

// One peer a kind; args_of(set) gives the arguments of `launch`.
template <class Args>
std::vector<Peer> GpuPeers(const Stream& stream,
                           const std::vector<PeerKind>& kinds,
                           gpu::Error (*launch)(PeerKind, const Args&,
                                                const gpu::LaunchTarget&),
                           const std::function<Args(int64_t)>& args_of) {
  std::vector<Peer> peers;
  if (!HasGpuPeers(stream)) return peers;
  if constexpr (kHasCuda) {
    for (const PeerKind kind : kinds) {
      peers.push_back({Name(kind), [=](int64_t set, const Stream& on) {
                         return ToStatus(Name(kind), launch(kind, args_of(set),
                                                            TargetOf(on)));
                       }});
    }
  }
  return peers;
}

}  // namespace lamina::bench
