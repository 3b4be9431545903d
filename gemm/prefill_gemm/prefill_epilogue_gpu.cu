// A block has 256 columns of a row, a thread one. Bytes: sums once, in fp32,
// and results once.

#include <cstdint>

#include "lamina/core/launch.cuh"
#include "lamina/core/math.h"
#include "lamina/gemm/prefill_gemm/prefill_epilogue.h"
#include "lamina/gemm/skinny_gemm/epilogue.cuh"

namespace lamina::gemm_internal {
namespace {

constexpr int kThreads = 256;

__device__ inline float ScaledSum(const PrefillEpilogueArgs& args, int row,
                                  int weight_row) {
  const GemmArgs& gemm = args.gemm;
  return (args.sums[int64_t{row} * gemm.n + weight_row] *
          ScaleOrOne(gemm.x_scales, row, 0)) *
         ScaleOrOne(gemm.w_scales, weight_row, 0);
}

__global__ void __launch_bounds__(kThreads)
    PrefillEpilogueKernel(PrefillEpilogueArgs args) {
  gpu::AllowDependents();
  const Epilogue epilogue(args.gemm.epilogue);
  gpu::WaitForPredecessor();
  const int cols = args.gemm.epilogue.cols;
  const int blocks = (cols + kThreads - 1) / kThreads;  // of a row
  const int row = static_cast<int>(gpu::BlockIndex() / blocks);
  const int col = static_cast<int>(gpu::BlockIndex() % blocks) * kThreads +
                  gpu::ThreadIndex();
  if (col >= cols) return;
  const float sum = ScaledSum(args, row, epilogue.WeightRow(col, false));
  if (epilogue.gated()) {
    epilogue.StoreGated(row, col, sum,
                        ScaledSum(args, row, epilogue.WeightRow(col, true)));
  } else {
    epilogue.Store(row, col, sum);
  }
}

}  // namespace

gpu::Error LaunchPrefillEpilogue(const PrefillEpilogueArgs& args,
                                 const gpu::LaunchTarget& target) {
  return gpu::Launch(
      &PrefillEpilogueKernel,
      {.blocks =
           CeilDiv(int64_t{args.gemm.epilogue.cols}, kThreads) * args.gemm.m,
       .threads = kThreads},
      target, args);
}

}  // namespace lamina::gemm_internal
