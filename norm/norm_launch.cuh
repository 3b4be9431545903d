#pragma once

// From a plan to the kernel that was compiled for it.

#include "lamina/core/launch.cuh"
#include "lamina/core/launch_matching.cuh"
#include "lamina/norm/norm_row.cuh"

namespace lamina::norm_internal {

template <std::size_t kIndex>
inline constexpr NormVariant kVariantAt = gpu::VariantAt<kNormVariants>(kIndex);

// Kernels::kKernel<T, kIndex> is the kernel, Kernels::kReductions what its
// statistics need; a scale of the row takes one more.
template <class Kernels, class T, std::size_t kIndex>
gpu::Error LaunchVariant(NormArgs args, const NormPlan& plan,
                         const gpu::LaunchTarget& target) {
  args.lanes = plan.split.lanes;
  return gpu::LaunchInParts(
      args.x.total_rows(), gpu::MaxRows(plan.split, gpu::kGridBlocks),
      [&](int64_t first, int64_t rows) {
        args.first_row = first;
        return gpu::Launch(
            Kernels::template kKernel<T, kIndex>,
            gpu::RowShape(plan.split, rows, Kernels::kReductions + 1), target,
            args);
      });
}

template <class Kernels, class T>
gpu::Error LaunchType(const NormArgs& args, const NormPlan& plan,
                      const gpu::LaunchTarget& target) {
  return gpu::LaunchMatching<kNormVariants>(
      plan.Variant(args.x.cols, target.wave_size), [&]<std::size_t kIndex>() {
        return LaunchVariant<Kernels, T, kIndex>(args, plan, target);
      });
}

template <class Kernels>
gpu::Error LaunchNorm(const NormArgs& args, const NormPlan& plan,
                      const gpu::LaunchTarget& target) {
  switch (args.x.dtype) {
    case DType::kF32:
      return LaunchType<Kernels, float>(args, plan, target);
    case DType::kF16:
      return LaunchType<Kernels, F16>(args, plan, target);
    case DType::kBF16:
      return LaunchType<Kernels, BF16>(args, plan, target);
    default:
      return gpu::kNoKernel;
  }
}

}  // namespace lamina::norm_internal
