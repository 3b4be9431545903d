#include "lamina/core/profile_range.h"

#include "lamina/core/device/built_backends.h"
#include "lamina/core/device/runtime.h"

namespace lamina {

ProfileRange::ProfileRange(const Stream& stream, const char* name)
    : open_(stream.device().backend != Backend::kCpu) {
  if constexpr (kHasGpu) {
    if (open_) gpu_runtime::PushRange(name);
  }
}

ProfileRange::~ProfileRange() {
  if constexpr (kHasGpu) {
    if (open_) gpu_runtime::PopRange();
  }
}

}  // namespace lamina
