#include "lamina/core/streaming/streaming.h"

#include <algorithm>

#include "lamina/core/buffer.h"
#include "lamina/core/copy.h"
#include "lamina/core/device/built_backends.h"
#include "lamina/core/device/runtime.h"
#include "lamina/core/event.h"
#include "lamina/core/math.h"
#include "lamina/core/status.h"

namespace lamina {
namespace {
constexpr const char* kOp = "Streaming";
}  // namespace

std::vector<StreamingPlan> StreamingPlans(int64_t units,
                                          const DeviceInfo& gpu) {
  std::vector<StreamingPlan> plans;
  // Each thread once.
  for (const int threads : {64, 128, 256, 512}) {
    for (const int unroll : kStreamingUnroll) {
      const int64_t blocks = CeilDiv(units, int64_t{threads} * unroll);
      if (blocks < 1 || blocks > int64_t{1} << 24) continue;
      plans.push_back({.threads = threads, .blocks = blocks, .unroll = unroll});
    }
  }
  // As many threads as the device holds, or a part of them.
  for (const int per_unit : {1, 2, 4}) {
    for (const int unroll : {4, 8}) {
      const int64_t blocks = int64_t{per_unit} * gpu.num_units;
      if (blocks * 512 * unroll > units) continue;
      plans.push_back({.threads = 512, .blocks = blocks, .unroll = unroll});
    }
  }
  return plans;
}

absl::Status EnqueueStreaming(const StreamingTraffic& traffic,
                              const StreamingArgs& args,
                              const StreamingPlan& plan, const Stream& stream) {
  LAMINA_RETURN_IF_ERROR(CheckStream(kOp, stream));
  if (stream.device().backend == Backend::kCpu) {
    return absl::UnimplementedError("Streaming: stream: runs on GPUs only");
  }
  if constexpr (kHasGpu) {
    return ToStatus(
        kOp, gpu::LaunchStreaming(traffic, args, plan, TargetOf(stream)));
  }
  return absl::OkStatus();
}

double MeasureGpuReadBandwidth(Device device, int64_t bytes, int repeats) {
  const DeviceInfo& info = GetDeviceInfo(device);
  // NOTE: much more than the L2, so that little of a pass is found there.
  bytes = RoundUp(std::max(bytes, 16 * info.cache_bytes), 16);
  const absl::StatusOr<OwnedStream> owned = OwnedStream::Create(device);
  const absl::StatusOr<Buffer> buffer = Buffer::Allocate(device, bytes + 16);
  if (!owned.ok() || !buffer.ok()) return 0;
  const Stream stream = owned->stream();
  if (!EnqueueFill(buffer->data(), 0x5a, bytes + 16, stream).ok()) return 0;

  const StreamingArgs args{.read = {buffer->data()},
                           .sink = buffer->as<char>() + bytes,
                           .units = bytes / 16};
  // A few passes a measurement: the start of the first is not bandwidth.
  constexpr int kPasses = 4;
  double best_us = 0;
  for (const StreamingPlan& plan : StreamingPlans(args.units, info)) {
    const auto passes = [&] {
      for (int pass = 0; pass < kPasses; ++pass) {
        LAMINA_RETURN_IF_ERROR(
            EnqueueStreaming({.reads = 1}, args, plan, stream));
      }
      return absl::OkStatus();
    };
    for (int repeat = 0; repeat < repeats; ++repeat) {
      Event start, end;
      if (!start.Record(stream).ok() || !passes().ok() ||
          !end.Record(stream).ok()) {
        return 0;
      }
      const absl::StatusOr<double> us = Event::ElapsedMicros(start, end);
      if (!us.ok()) return 0;
      if (best_us == 0 || *us < best_us) best_us = *us;
    }
  }
  return best_us > 0 ? static_cast<double>(bytes) * kPasses * 1e6 / best_us : 0;
}

}  // namespace lamina
