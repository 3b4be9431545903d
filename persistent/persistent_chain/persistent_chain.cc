#include "lamina/persistent/persistent_chain.h"

#include "lamina/core/device/built_backends.h"
#include "lamina/core/launch.h"
#include "lamina/core/status.h"
#include "lamina/persistent/persistent_chain/chain_args.h"
#include "lamina/persistent/persistent_chain/make_chain.h"

namespace lamina {

absl::StatusOr<PersistentChain> PersistentChain::Make(
    const Stream& stream, absl::FunctionRef<absl::Status(const Stream&)> body) {
  if constexpr (kHasCuda) {
    if (persistent_internal::HasChains(stream)) {
      gpu::Recording recording;
      LAMINA_RETURN_IF_ERROR(body(stream.WithRecording(&recording)));
      PersistentChain chain;
      LAMINA_ASSIGN_OR_RETURN(
          chain.args_,
          persistent_internal::MakeChain(recording, stream, &chain.memory_));
      return chain;
    }
  }
  return absl::UnimplementedError(
      "PersistentChain: needs an NVIDIA GPU of compute capability 9.0");
}

absl::Status PersistentChain::Run(const Stream& stream) const {
  if constexpr (kHasCuda) {
    if (args_ != nullptr) return persistent_internal::RunChain(*args_, stream);
  }
  return absl::FailedPreconditionError("PersistentChain: Run without Make");
}

int64_t PersistentChain::stages() const {
  return args_ == nullptr ? 0 : args_->count;
}

}  // namespace lamina
