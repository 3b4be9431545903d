#include "lamina/attention/rope_append/rope_append_kernel.cuh"
#include "lamina/core/launch.cuh"
#include "lamina/core/launch_matching.cuh"

namespace lamina::attention_internal {
namespace {

template <class T>
gpu::Error LaunchType(RopeAppendKernelArgs args, int64_t tokens, bool octets,
                      const gpu::LaunchTarget& target) {
  const int64_t heads = args.q.rows + args.k.rows + args.v.rows;
  const int64_t units = CeilDiv(args.head_dim, octets ? 16 : 2);
  const int64_t blocks = CeilDiv(heads * units, kRopeAppendThreads);
  args.octets = octets;
  args.units = MakeFastDivisor(units);
  args.blocks = MakeFastDivisor(blocks);
  const int64_t most =
      gpu::MaxBlocks(kRopeAppendThreads, gpu::kGridBlocks) / blocks;
  return gpu::LaunchInParts(
      tokens, most > 1 ? most : 1, [&](int64_t first, int64_t count) {
        args.first_token = first;
        return gpu::Launch(
            octets ? &RopeAppendKernel<T, true> : &RopeAppendKernel<T, false>,
            {.blocks = count * blocks, .threads = kRopeAppendThreads}, target,
            args);
      });
}

}  // namespace

gpu::Error LaunchRopeAppend(const RopeAppendKernelArgs& args, DType type,
                            int64_t tokens, bool octets,
                            const gpu::LaunchTarget& target) {
  switch (type) {
    case DType::kF32:
      return LaunchType<float>(args, tokens, octets, target);
    case DType::kF16:
      return LaunchType<F16>(args, tokens, octets, target);
    case DType::kBF16:
      return LaunchType<BF16>(args, tokens, octets, target);
    default:
      return gpu::kNoKernel;
  }
}

}  // namespace lamina::attention_internal
