#pragma once

// Bytes between the host and a device, or within one, in a stream's order.

#include <cstdint>

#include "absl/status/status.h"
#include "lamina/core/stream.h"

namespace lamina {

// Enqueues a copy. `to` and `from` are host memory or memory of the stream's
// device, do not overlap and stay valid until it is done. From or to ordinary
// (pageable) host memory the call may wait for the copy itself. On a CPU stream
// it is done when the call returns.
absl::Status EnqueueCopy(void* to, const void* from, int64_t bytes,
                         const Stream& stream);
// The same, and waits for the stream.
absl::Status Copy(void* to, const void* from, int64_t bytes,
                  const Stream& stream);
// Enqueues setting every byte to `value`.
absl::Status EnqueueFill(void* to, uint8_t value, int64_t bytes,
                         const Stream& stream);

}  // namespace lamina
