#include "lamina/gemm/skinny_gemm/ring_gemm.h"

#include <cstdint>

#include "lamina/core/device.h"
#include "lamina/core/device/runtime.h"
#include "lamina/core/math.h"

namespace lamina::gemm_internal {
namespace {

// NOTE: code for sm_90a runs on devices of compute capability 9.0 alone.
bool HasKernels(const DeviceInfo& device) {
  return device.device.backend == Backend::kCuda &&
         (device.arch == "sm_90" || device.arch == "simt");
}

std::optional<RingGemmPlan> PlanOf(
    const GemmArgs& args, const Stream& stream,
    const std::optional<RingGemmChoice>& choice) {
  const DeviceInfo& device = GetDeviceInfo(stream.device());
  const std::optional<RingTypes> types = RingTypesOf(args.w_type, args.x_type);
  if (!HasKernels(device) || !types.has_value() ||
      !RowsStartAt16Bytes(args.x, args.x_pitch, args.m) ||
      !RowsStartAt16Bytes(args.w, args.w_pitch, args.n)) {
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

// Of boxes of `box_rows` rows and a segment.
gpu::Error MakeMap(const void* base, int64_t pitch, int rows, int k, int bytes,
                   int box_rows, gpu::TensorMap* map) {
  return gpu_runtime::MakeTensorMap(
      {.base = base,
       .element_bytes = bytes,
       .cols = k,
       .rows = rows,
       .pitch_bytes = rows > 1 ? pitch : RoundUp(int64_t{k} * bytes, 16),
       .box_cols = kSegmentBytes / bytes,
       .box_rows = box_rows},
      map);
}

}  // namespace

gpu::Error RunRingGemm(const GemmArgs& args, const Stream& stream,
                       const std::optional<RingGemmChoice>& choice) {
  const std::optional<RingGemmPlan> plan = PlanOf(args, stream, choice);
  if (!plan.has_value()) return gpu::kNoKernel;
  const RingGemmVariant& variant = plan->variant;
  RingGemmArgs ring = MakeRingGemmArgs(args, *plan);
  const gpu::Error x_error =
      MakeMap(args.x, args.x_pitch, args.m, args.k,
              ActivationBytes(variant.types), variant.rows, &ring.x_map);
  if (!x_error.ok()) return x_error;
  if (plan->tensor_copies) {
    const gpu::Error w_error =
        MakeMap(args.w, args.w_pitch, args.n, args.k,
                WeightBytes(variant.types), plan->tile_cols, &ring.w_map);
    if (!w_error.ok()) return w_error;
  }
  return LaunchRingGemm(ring, TargetOf(stream));
}

}  // namespace lamina::gemm_internal
