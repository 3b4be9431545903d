#pragma once

// SkinnyGemm: y = epilogue(x · wᵀ) for few rows of x, as LLM decoding has it.
// Any m >= 1 works; on the CPU large m (prefill) is served as well.
//
//   std::vector<std::byte> scratch(*SkinnyGemmWorkspaceBytes(
//       {.m = 1, .n = 960, .k = 576, .w_type = DType::kF8E4M3Fn},
//       GetDeviceInfo({})));
//   absl::Status status = SkinnyGemm(
//       {.x = Matrix(x, 1, 576),                    // const BF16*
//        .w = Matrix(w, 960, 576),                  // const F8E4M3Fn*
//        .w_scales = PerRow(w_scales),              // const float*, [960]
//        .y = Matrix(y, 1, 960),                    // BF16*
//        .workspace = scratch.data(),
//        .workspace_bytes = static_cast<int64_t>(scratch.size())},
//       Stream::Cpu());
//
// Types. x: f32, f16, bf16, the four FP8 types; w: f16, bf16, the four FP8
// types; y: f32, f16, bf16; every combination. y.dtype names the output type
// also when y.data is null (quantised output alone). bias: f32 or y.dtype;
// residual: y.dtype. x, w, residual and y are matrices (batch = 1) with any
// row_stride >= cols and any alignment of one element.
//
// Scales belong to FP8 operands alone; an FP8 operand without scales counts as
// scaled by 1. x: per tensor, per row, or per block of 1 x 128. w: per tensor,
// per row (output channel), per block of 1 x 128, or per tile of 128 x 128.
//
// The rule, all in fp32. dot, which is the CPU's, and the order of sums are
// another on a GPU, see below.
//   dot(a, b, count):
//     slot[0 … 15] = +0
//     for k = 0 … count - 1, in order:
//       slot[k mod 16] = fma(a[k], b[k], slot[k mod 16])
//     then for every k from count to the next multiple of 16:
//       slot[k mod 16] = slot[k mod 16] + (+0)
//     the slots are added as a balanced tree of halves: slot s with s + 8, the
//     eight sums s with s + 4, the four with s + 2, the two.
//   without block scales:
//     sum = (dot(x[m], w[n], k) * x_scale[m]) * w_scale[n]
//   when x or w has scales per block or tile:
//     sum = +0; for each block b of 128 columns, the last may be shorter:
//       sum = sum + (dot(x[m] block b, w[n] block b) * x_scale[m, b])
//                   * w_scale[n, b]
//     (an operand with one scale a row or tensor has it in every block)
//   value = sum + bias[n]                            if there is a bias
//   value = gate(value of gate row, value of up row)     if there is a gate
//   value = value + residual                         if there is a residual
//   y = round_T(value); codes = quantised value (quant/scale.h), straight
//   from fp32 or, with round_before_quant, from round_T(value) (T = y.dtype)
// x and w enter as the exact values of their elements. No operation but the
// fma of dot is fused. NaN comes out as NaN; which NaN is not specified.
//
// On a GPU, the general kernel, which takes every problem:
//   partial[0 … 31] = +0
//   for each octet o of 8 columns, in order; the last may be shorter:
//     octet = fma over its columns in order, from +0
//     with block scales: octet = (octet * x_scale[m, b]) * w_scale[n, b]
//     partial[o mod 32] = partial[o mod 32] + octet
//   sum = the partials as a tree over neighbours: 0 with 1, 2 with 3, …
//   without block scales: sum = (sum * x_scale[m]) * w_scale[n]
// On CUDA, where rows of w and x are aligned to 16 bytes, tensor cores:
//   of compute capability 9.0, for w of F8E4M3Fn with x of that type or BF16,
//     and for w and x both BF16 or both F16, rows a multiple of 16 bytes:
//     gemm/skinny_gemm/ring_gemm.cuh says in which order they add;
//   of any other, for w and x both BF16 or both F16, and for w of F8E4M3Fn or
//     F8E5M2 with x of one of these, BF16 or F16, rows of w a multiple of 16
//     bytes long, and for up to 16 rows of x and few weights (PrefersWaveGemm)
//     on those of 9.0 as well: gemm/skinny_gemm/wave_gemm.cuh.
//
// Hence batch-invariant and deterministic: the bits of a row of y depend
// neither on the other rows, nor on m, the number of threads, the SIMD target,
// the GPU or the contents of the workspace. On tensor cores they do depend on
// their kind, and on those of 9.0 also on the GPU's number of SMs, and on m
// through its band: up to 8, 16, 32 or 64; of a larger m 64 rows at a time, or
// with SkinnyGemmArgs::prefill as that library has it.
//
// Accuracy: |dot - exact| <= (ceil(k / 16) + 4) * 2^-24 * sum |x * w|, about;
// on a GPU (ceil(k / 256) + 13) * 2^-24. On tensor cores about 2^-18; on those
// of 9.0, F8E4M3Fn by itself 2^-12, as they sum 128 columns, with more than 32
// rows 256, in about 14 bits.
//
// Gate: w has 2 * cols rows for cols columns of y, gate.layout says which rows
// are gate and which are up (core/gate.h); bias has 2 * cols elements.
//
// Quantised output: static scales of any granularity; dynamic scales per row
// or per block of columns (on a GPU by Quantize, from the workspace).
//
// Aliasing: residual may be y itself (the very same view). Otherwise the
// outputs and the workspace overlap nothing.
//
// Zero rows, or no output columns: OK, nothing done. k = 0: dot is +0 and sum
// is +0, whatever the scales.
//
// Errors: InvalidArgument for shapes, types, strides, null pointers, scales,
// overlap, and a workspace smaller than SkinnyGemmWorkspaceBytes for the
// stream's device and number of threads; Unimplemented for dynamic scales that
// rows share.

#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lamina/core/gate.h"
#include "lamina/core/stream.h"
#include "lamina/core/views.h"
#include "lamina/gemm/gemm_tuning.h"
#include "lamina/gemm/prefill_gemm.h"
#include "lamina/quant/scale.h"

namespace lamina {

struct SkinnyGemmArgs {
  ConstMatrixView x = {};             // [m, k]
  ConstScaleView x_scales = {};       // of x, when x is FP8
  ConstMatrixView w = {};             // [n, k]; row = output channel
  ConstScaleView w_scales = {};       // of w, when w is FP8
  ConstVectorView bias = {};          // [n]; optional
  std::optional<GateSpec> gate = {};  // gated activation: y is [m, n / 2]
  ConstMatrixView residual = {};      // as y; optional, added last
  MatrixView y = {};               // [m, n or n / 2]; optional with `quantized`
  QuantizedOutput quantized = {};  // [m, n or n / 2]; optional
  // For more than 64 rows of x on a GPU: gemm/prefill_gemm.h; optional.
  PrefillGemm* prefill = nullptr;
  // Plans that were measured on the GPU: gemm/gemm_tuning.h; optional.
  const GemmTuning* tuning = nullptr;
  // Scratch, any alignment, any contents; null where 0 bytes are needed, as on
  // a GPU without a quantised output.
  void* workspace = nullptr;
  int64_t workspace_bytes = 0;
};
[[nodiscard]] absl::Status SkinnyGemm(const SkinnyGemmArgs& args,
                                      Stream stream);

// The part of the arguments that decides how much workspace is needed. A larger
// m, n, k or number of threads never needs less, so the largest problem's
// workspace serves the smaller ones.
struct SkinnyGemmProblem {
  int64_t m = 0, n = 0, k = 0;  // n: rows of w
  DType x_type = DType::kBF16;
  DType w_type = DType::kBF16;
  DType y_type = DType::kBF16;
  bool gated = false;
  bool quantized = false;
  bool prefill = false;  // SkinnyGemmArgs::prefill
};

// Needs no device, only its description. num_threads: of the CPU stream that
// will be used; 0 = device.num_units, as Stream::Cpu() has.
[[nodiscard]] absl::StatusOr<int64_t> SkinnyGemmWorkspaceBytes(
    const SkinnyGemmProblem& problem, const DeviceInfo& device,
    int num_threads = 0);

}  // namespace lamina
