#pragma once

// From recorded launches to the schedule of PersistentChain.

#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lamina/core/buffer.h"
#include "lamina/core/launch.h"
#include "lamina/core/stream.h"
#include "lamina/persistent/persistent_chain/chain_args.h"

namespace lamina::persistent_internal {

bool HasChains(const Stream& stream);

// The schedule goes to `memory`, and the arguments point into it.
absl::StatusOr<std::shared_ptr<const ChainArgs>> MakeChain(
    const gpu::Recording& recording, const Stream& stream, Buffer* memory);

absl::Status RunChain(const ChainArgs& args, const Stream& stream);

}  // namespace lamina::persistent_internal
