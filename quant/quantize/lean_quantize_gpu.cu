#include <cstddef>

#include "lamina/quant/lean_rows_launch.cuh"
#include "lamina/quant/quantize/lean_quantize.cuh"
#include "lamina/quant/quantize/lean_quantize.h"

namespace lamina::quant_internal {
namespace {

template <class T, std::size_t kIndex>
__global__ void __launch_bounds__((kLeanRowsBounds<T, kIndex>.lanes),
                                  (kLeanRowsBounds<T, kIndex>.blocks))
    LeanQuantizeKernel(LeanRowsArgs args) {
  LeanRows<PlainSource<T>, kLeanRowsVariantAt<kIndex>>(args).Run();
}

template <class T>
struct Kernels {
  using Type = T;
  static constexpr int kInputs = 1;

  template <std::size_t kIndex>
  static auto Get() {
    return &LeanQuantizeKernel<T, kIndex>;
  }
};

}  // namespace

gpu::Error LaunchLeanQuantize(const LeanRowsArgs& args, DType type,
                              const LeanRowsPlan& plan,
                              const gpu::LaunchTarget& target) {
  if (type == DType::kBF16)
    return LaunchLeanRows<Kernels<BF16>>(args, plan, target);
  if (type == DType::kF16)
    return LaunchLeanRows<Kernels<F16>>(args, plan, target);
  return gpu::kNoKernel;
}

}  // namespace lamina::quant_internal
