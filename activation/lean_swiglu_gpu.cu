#include <cstddef>

#include "lamina/activation/lean_swiglu.cuh"
#include "lamina/activation/lean_swiglu.h"
#include "lamina/quant/lean_rows_launch.cuh"

namespace lamina::activation_internal {
namespace {

using quant_internal::kLeanRowsBounds;
using quant_internal::kLeanRowsVariantAt;
using quant_internal::LaunchLeanRows;
using quant_internal::LeanRowsArgs;
using quant_internal::LeanRowsPlan;

template <class T, std::size_t kIndex>
__global__ void __launch_bounds__((kLeanRowsBounds<T, kIndex>.lanes),
                                  (kLeanRowsBounds<T, kIndex>.blocks))
    LeanSwiGluKernel(LeanRowsArgs args) {
  quant_internal::LeanRows<SwiGluSource<T>, kLeanRowsVariantAt<kIndex>>(args)
      .Run();
}

template <class T>
struct Kernels {
  using Type = T;
  static constexpr int kInputs = 2;

  template <std::size_t kIndex>
  static auto Get() {
    return &LeanSwiGluKernel<T, kIndex>;
  }
};

}  // namespace

gpu::Error LaunchLeanSwiGlu(const LeanRowsArgs& args, DType type,
                            const LeanRowsPlan& plan,
                            const gpu::LaunchTarget& target) {
  if (type == DType::kBF16)
    return LaunchLeanRows<Kernels<BF16>>(args, plan, target);
  if (type == DType::kF16)
    return LaunchLeanRows<Kernels<F16>>(args, plan, target);
  return gpu::kNoKernel;
}

}  // namespace lamina::activation_internal
