#include <iterator>
#include "lamina/attention/decode_attention/general_attention.cuh"

#include "lamina/core/launch.cuh"
#include "lamina/core/launch_matching.cuh"

namespace lamina::attention_internal {
namespace {

constexpr int kFoldThreads = 128;

// C as LoadKv has it.
template <int kWave, class C>
__global__ void __launch_bounds__(kGeneralThreads)
    GeneralAttentionKernel(GeneralAttentionArgs args) {
  if constexpr (gpu::kWaveRunsHere<kWave>) {
    gpu::AllowDependents();
    gpu::WaitForPredecessor();
    AttendGeneral<kWave, C>(args);
  }
}

__global__ void __launch_bounds__(kFoldThreads)
    FoldPartialsKernel(GeneralAttentionArgs args) {
  gpu::AllowDependents();
  gpu::WaitForPredecessor();
  FoldPartials(args);
}

template <int kWave>
auto KernelOf(DType type) {
  switch (type) {
    case DType::kF32:
      return &GeneralAttentionKernel<kWave, float>;
    case DType::kF16:
      return &GeneralAttentionKernel<kWave, F16>;
    case DType::kBF16:
      return &GeneralAttentionKernel<kWave, BF16>;
    default:
      return &GeneralAttentionKernel<kWave, uint8_t>;
  }
}

auto KernelOf(DType type, int wave_size) {
  constexpr int kLast = gpu::kWaveSizes[std::size(gpu::kWaveSizes) - 1];
  return wave_size == kLast ? KernelOf<kLast>(type)
                            : KernelOf<gpu::kWaveSizes[0]>(type);
}

}  // namespace

gpu::Error LaunchGeneralAttention(const AttentionKernelArgs& given,
                                  int64_t tokens, int64_t chunks,
                                  const GeneralAttentionPlan& plan,
                                  const gpu::LaunchTarget& target) {
  const int64_t kv_heads = given.cache.kv_heads;
  const int64_t parts = CeilDiv(given.group, kGeneralRows);
  GeneralAttentionArgs args{.attention = given,
                            .split = plan.split,
                            .parts = MakeFastDivisor(parts),
                            .heads = MakeFastDivisor(kv_heads),
                            .chunks = MakeFastDivisor(plan.split ? chunks : 1)};
  const int64_t blocks = kv_heads * parts * args.chunks.divisor;
  const int64_t shared_bytes =
      static_cast<int64_t>(sizeof(GeneralShared)) +
      2 * kGeneralRows * RoundUp(given.q.cols, kSlots) * int64_t{4};
  const int64_t most =
      gpu::MaxBlocks(kGeneralThreads, gpu::kGridBlocks) / blocks;
  const int64_t at_once = most < 1             ? 1
                          : most < plan.tokens ? most
                                               : plan.tokens;
  return gpu::LaunchInParts(tokens, at_once, [&](int64_t first, int64_t count) {
    args.attention.first_token = first;
    const gpu::Error error =
        gpu::Launch(KernelOf(given.cache.dtype, target.wave_size),
                    {.blocks = count * blocks,
                     .threads = kGeneralThreads,
                     .shared_bytes = shared_bytes},
                    target, args);
    if (!error.ok() || !plan.split) return error;
    return gpu::Launch(
        &FoldPartialsKernel,
        {.blocks = count * given.q.rows, .threads = kFoldThreads}, target,
        args);
  });
}

}  // namespace lamina::attention_internal
