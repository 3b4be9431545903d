#include "lamina/core/graph.h"

#include <string>

#include "lamina/core/device/built_backends.h"
#include "lamina/core/device/runtime.h"
#include "lamina/core/status.h"

namespace lamina {
namespace {
constexpr const char* kOp = "Graph";
}  // namespace

absl::StatusOr<Graph> Graph::Capture(const Stream& stream,
                                     absl::FunctionRef<absl::Status()> body) {
  LAMINA_RETURN_IF_ERROR(CheckStream(kOp, stream));
  if (stream.device().backend == Backend::kCpu) {
    return absl::UnimplementedError("Graph: stream: the cpu has no graphs");
  }
  void* handle = nullptr;
  if constexpr (kHasGpu) {
    if (stream.handle() == nullptr) {
      return InvalidArgument(kOp, "stream.handle", std::string("null"),
                             "a stream other than the default one");
    }
    LAMINA_RETURN_IF_ERROR(ToStatus(kOp, gpu_runtime::BeginCapture(stream)));
    const absl::Status recorded = body();
    const gpu::Error ended = gpu_runtime::EndCapture(stream, &handle);
    if (!recorded.ok()) {
      if (handle != nullptr) gpu_runtime::DestroyGraph(stream.device(), handle);
      return recorded;
    }
    LAMINA_RETURN_IF_ERROR(ToStatus(kOp, ended));
  }
  return Graph(stream.device(), handle);
}

Graph::~Graph() {
  if (handle_ == nullptr) return;
  if constexpr (kHasGpu) gpu_runtime::DestroyGraph(device_, handle_);
}

absl::Status Graph::Launch(const Stream& stream) const {
  LAMINA_RETURN_IF_ERROR(CheckStream(kOp, stream));
  if (handle_ == nullptr) {
    return absl::FailedPreconditionError("Graph: moved from");
  }
  if (stream.device() != device_) {
    return absl::InvalidArgumentError(
        "Graph: stream: not of the device that the graph was recorded on");
  }
  if constexpr (kHasGpu) {
    return ToStatus(kOp, gpu_runtime::LaunchGraph(handle_, stream));
  }
  return absl::OkStatus();
}

}  // namespace lamina
