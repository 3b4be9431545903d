#include "lamina/core/launch.cuh"
#include "lamina/core/launch_matching.cuh"
#include "lamina/core/math.h"
#include "lamina/gemm/skinny_gemm/general_gemm.cuh"

namespace lamina::gemm_internal {

template <std::size_t kIndex>
inline constexpr GeneralGemmVariant kVariantAt =
    gpu::VariantAt<kGeneralGemmVariants>(kIndex);

namespace {

template <std::size_t kIndex>
__global__ void __launch_bounds__(kGeneralGemmThreads,
                                  MinBlocks(kVariantAt<kIndex>))
    GeneralGemmKernel(GeneralGemmArgs args) {
  constexpr GeneralGemmVariant kVariant = kVariantAt<kIndex>;
  RunGeneralGemm<kVariant>(args);
}

}  // namespace

gpu::Error LaunchGeneralGemm(const GemmArgs& gemm, const GeneralGemmPlan& plan,
                             const gpu::LaunchTarget& target) {
  GeneralGemmVariant variant = plan.variant;
  variant.wave_size = target.wave_size;
  GeneralGemmArgs args{.gemm = gemm};
  args.passes = static_cast<int>(CeilDiv(gemm.m, variant.x_rows));
  const int cols = gemm.epilogue.gated ? variant.w_rows / 2 : variant.w_rows;
  const int64_t cells = CeilDiv(gemm.epilogue.cols, cols);
  const int64_t most = gpu::MaxBlocks(kGeneralGemmThreads, gpu::kGridBlocks) /
                       args.passes * kCellsPerBlock;
  return gpu::LaunchMatching<kGeneralGemmVariants>(
      variant, [&]<std::size_t kIndex>() {
        return gpu::LaunchInParts(
            cells, most, [&](int64_t first, int64_t count) {
              args.first_cell = first;
              return gpu::Launch(
                  &GeneralGemmKernel<kIndex>,
                  {.blocks = CeilDiv(count, kCellsPerBlock) * args.passes,
                   .threads = kGeneralGemmThreads},
                  target, args);
            });
      });
}

}  // namespace lamina::gemm_internal
