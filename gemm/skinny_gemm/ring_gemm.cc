#include "lamina/gemm/skinny_gemm/ring_gemm.h"

#include <cstdint>

#include "lamina/core/device.h"
#include "lamina/core/device/runtime.h"
#include "lamina/core/math.h"

namespace lamina::gemm_internal {
namespace {

std::optional<RingTypes> TypesOf(DType w, DType x) {
  if (w == DType::kF8E4M3Fn && x == w) return RingTypes::kF8;
  if (w == DType::kBF16 && x == w) return RingTypes::kBF16;
  if (w == DType::kF16 && x == w) return RingTypes::kF16;
  if (w == DType::kF8E4M3Fn && x == DType::kBF16) return RingTypes::kF8BF16;
  return std::nullopt;
}

// What both kinds of copies need. The pitch of one row is never used.
bool IsAligned(const void* p, int64_t pitch, int rows) {
  return reinterpret_cast<uintptr_t>(p) % 16 == 0 &&
         (rows == 1 || pitch % 16 == 0);
}

// NOTE: code for sm_90a runs on devices of compute capability 9.0 alone.
bool HasKernels(const DeviceInfo& device) {
  return device.device.backend == Backend::kCuda &&
         (device.arch == "sm_90" || device.arch == "simt");
}

std::optional<RingGemmPlan> PlanOf(
    const GemmArgs& args, const Stream& stream,
    const std::optional<RingGemmChoice>& choice) {
  const DeviceInfo& device = GetDeviceInfo(stream.device());
  const std::optional<RingTypes> types = TypesOf(args.w_type, args.x_type);
  if (!HasKernels(device) || !types.has_value() ||
      !IsAligned(args.x, args.x_pitch, args.m) ||
      !IsAligned(args.w, args.w_pitch, args.n)) {
    return std::nullopt;
  }
  const RingGemmProblem problem = {.m = args.m,
                                   .cols = args.epilogue.cols,
                                   .k = args.k,
                                   .types = *types,
                                   .gated = args.epilogue.gated,
                                   .block_scales = args.block_scales,
                                   .overlap = stream.overlap()};
  const RingArch arch = {.units = device.num_units,
                         .shared_bytes = device.shared_memory_bytes};
  return MakeRingGemmPlan(
      problem, choice.value_or(SelectRingGemmChoice(problem, arch)), arch);
}

}  // namespace

gpu::Error RunRingGemm(const GemmArgs& args, const Stream& stream,
                       const std::optional<RingGemmChoice>& choice) {
  const std::optional<RingGemmPlan> plan = PlanOf(args, stream, choice);
  if (!plan.has_value()) return gpu::kNoKernel;
  const RingGemmVariant& variant = plan->variant;
  RingGemmArgs ring = MakeRingGemmArgs(args, *plan);
  const int x_bytes = ActivationBytes(variant.types);
  const int64_t x_pitch =
      args.m > 1 ? args.x_pitch : RoundUp(int64_t{args.k} * x_bytes, 16);
  const gpu::Error error =
      gpu_runtime::MakeTensorMap({.base = args.x,
                                  .element_bytes = x_bytes,
                                  .cols = args.k,
                                  .rows = args.m,
                                  .pitch_bytes = x_pitch,
                                  .box_cols = kSegmentBytes / x_bytes,
                                  .box_rows = variant.rows},
                                 &ring.x_map);
  if (!error.ok()) return error;
  return LaunchRingGemm(ring, TargetOf(stream));
}

}  // namespace lamina::gemm_internal
