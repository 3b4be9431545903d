#include <cstddef>
#include <iterator>
#include <utility>

#include "lamina/core/launch.cuh"
#include "lamina/core/streaming/streaming_kernel.cuh"

namespace lamina::gpu {
namespace {

constexpr int kTraffics = static_cast<int>(std::size(kStreamingTraffic));
constexpr int kUnrolls = static_cast<int>(std::size(kStreamingUnroll));

// Launches the kernel of kIndex if it is the one that is wanted.
template <int kIndex>
bool TryKernel(const StreamingTraffic& traffic, const StreamingArgs& args,
               const StreamingPlan& plan, const LaunchTarget& target,
               Error* error) {
  constexpr int kTraffic = kIndex / kUnrolls;
  constexpr int kUnroll = kStreamingUnroll[kIndex % kUnrolls];
  if (traffic != kStreamingTraffic[kTraffic] || plan.unroll != kUnroll) {
    return false;
  }
  *error =
      Launch(&StreamingKernel<kTraffic, kUnroll>,
             {.blocks = plan.blocks, .threads = plan.threads}, target, args);
  return true;
}

template <int... kIndex>
Error LaunchOneOf(std::integer_sequence<int, kIndex...>,
                  const StreamingTraffic& traffic, const StreamingArgs& args,
                  const StreamingPlan& plan, const LaunchTarget& target) {
  Error error = kNoKernel;
  (TryKernel<kIndex>(traffic, args, plan, target, &error) || ...);
  return error;
}

}  // namespace

Error LaunchStreaming(const StreamingTraffic& traffic,
                      const StreamingArgs& args, const StreamingPlan& plan,
                      const LaunchTarget& target) {
  return LaunchOneOf(std::make_integer_sequence<int, kTraffics * kUnrolls>(),
                     traffic, args, plan, target);
}

}  // namespace lamina::gpu
