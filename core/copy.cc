#include "lamina/core/copy.h"

#include <cstring>
#include <string>

#include "lamina/core/device/built_backends.h"
#include "lamina/core/device/runtime.h"
#include "lamina/core/status.h"

namespace lamina {
namespace {

absl::Status Check(const char* op, const void* to, const void* from,
                   int64_t bytes, const Stream& stream) {
  if (bytes < 0) return InvalidArgument(op, "bytes", bytes, ">= 0");
  if (bytes > 0 && to == nullptr) {
    return InvalidArgument(op, "to", std::string("null"), "a pointer");
  }
  if (bytes > 0 && from == nullptr) {
    return InvalidArgument(op, "from", std::string("null"), "a pointer");
  }
  return CheckStream(op, stream);
}

}  // namespace

absl::Status EnqueueCopy(void* to, const void* from, int64_t bytes,
                         const Stream& stream) {
  LAMINA_RETURN_IF_ERROR(Check("Copy", to, from, bytes, stream));
  if (bytes == 0) return absl::OkStatus();
  if (stream.device().backend == Backend::kCpu) {
    std::memcpy(to, from, static_cast<size_t>(bytes));
  } else if constexpr (kHasGpu) {
    return ToStatus("Copy", gpu_runtime::Copy(to, from, bytes, stream));
  }
  return absl::OkStatus();
}

absl::Status Copy(void* to, const void* from, int64_t bytes,
                  const Stream& stream) {
  LAMINA_RETURN_IF_ERROR(EnqueueCopy(to, from, bytes, stream));
  return Synchronize(stream);
}

absl::Status EnqueueFill(void* to, uint8_t value, int64_t bytes,
                         const Stream& stream) {
  LAMINA_RETURN_IF_ERROR(Check("Fill", to, to, bytes, stream));
  if (bytes == 0) return absl::OkStatus();
  if (stream.device().backend == Backend::kCpu) {
    std::memset(to, value, static_cast<size_t>(bytes));
  } else if constexpr (kHasGpu) {
    return ToStatus("Fill", gpu_runtime::Fill(to, value, bytes, stream));
  }
  return absl::OkStatus();
}

}  // namespace lamina
