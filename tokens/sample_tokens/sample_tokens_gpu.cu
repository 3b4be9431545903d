#include "lamina/core/launch.cuh"
#include "lamina/core/launch_matching.cuh"
#include "lamina/tokens/sample_tokens/sample_tokens_kernel.cuh"

namespace lamina::tokens_internal {
namespace {

template <class T, int kWave>
__global__ void __launch_bounds__(kMostSampleLanes, 1)
    SampleTokensKernel(SampleTokensKernelArgs args) {
  if constexpr (gpu::kWaveRunsHere<kWave>) SampleRow<T, kWave>(args).Run();
}

template <class T, int kWave>
gpu::Error LaunchWave(SampleTokensKernelArgs args, const SampleTokensPlan& plan,
                      const gpu::LaunchTarget& target) {
  const int64_t waves = int64_t{plan.lanes / kWave} * plan.cluster_blocks;
  args.segment =
      RoundUp(CeilDiv(args.logits.cols, waves), int64_t{kWave} * gpu::kOctet);
  const int64_t most =
      gpu::MaxBlocks(plan.lanes, gpu::kGridBlocks) / plan.cluster_blocks;
  return gpu::LaunchInParts(
      args.logits.rows, most, [&](int64_t first, int64_t rows) {
        args.first_row = first;
        return gpu::Launch(
            &SampleTokensKernel<T, kWave>,
            {.blocks = rows * plan.cluster_blocks,
             .threads = plan.lanes,
             .cluster_blocks = plan.cluster_blocks,
             .shared_bytes = SampledSharedBytes(plan.cluster_blocks)},
            target, args);
      });
}

template <class T>
gpu::Error LaunchType(const SampleTokensKernelArgs& args,
                      const SampleTokensPlan& plan,
                      const gpu::LaunchTarget& target) {
  gpu::Error error = gpu::kNoKernel;
  const auto try_one = [&]<int kWave>() {
    if (kWave == target.wave_size) {
      error = LaunchWave<T, kWave>(args, plan, target);
    }
  };
  [&]<std::size_t... kIndex>(std::index_sequence<kIndex...>) {
    (try_one.template operator()<gpu::kWaveSizes[kIndex]>(), ...);
  }
  (std::make_index_sequence<std::size(gpu::kWaveSizes)>());
  return error;
}

}  // namespace

gpu::Error LaunchSampleTokens(const SampleTokensKernelArgs& args,
                              const SampleTokensPlan& plan,
                              const gpu::LaunchTarget& target) {
  switch (args.logits.dtype) {
    case DType::kF32:
      return LaunchType<float>(args, plan, target);
    case DType::kF16:
      return LaunchType<F16>(args, plan, target);
    case DType::kBF16:
      return LaunchType<BF16>(args, plan, target);
    default:
      return gpu::kNoKernel;
  }
}

}  // namespace lamina::tokens_internal
