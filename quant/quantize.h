#pragma once

// Quantize: a matrix to 8-bit codes and scales.
//
//   inverse = 1 / scale, code = convert(x * inverse), in fp32: quant/scale.h
//   has the rule, with dynamic scales, saturation, NaN and UE8M0.
//
// Shapes    x and out.codes [batch, rows, cols], each with its own strides;
//           adjacent columns. Scales count flat rows (batch * rows). The last
//           block of a row and the last tiles may be partial.
// Types     x f32, f16 or bf16; codes f8e4m3fn, f8e5m2, f8e4m3fnuz,
//           f8e5m2fnuz or i8; scales f32 or f8e8m0. out.round_before_quant
//           changes nothing: x holds rounded values already.
// Scales    static (read) or dynamic (written): per tensor, per row, per block
//           of 1 x 32, 64 or 128, per tile of 128 x 128; any scale strides,
//           so also transposed grids. Padding of codes and scales is not
//           touched.
// Alignment one element each; it decides the speed alone.
// Aliasing  out.codes and written scales overlap neither x nor each other.
// Empty     zero rows or columns: OK, nothing is written, scales included.
// Workspace none on the CPU (null is fine). A GPU keeps the partial maxima of
//           dynamic per-tensor scales there (aligned to 4 bytes, at most 2 KiB,
//           overlapping nothing); it need not be zeroed and nothing is left
//           behind in it. QuantizeWorkspaceBytes tells the size.
// Result    equals the scalar model bit for bit on every target (on a GPU the
//           code of a NaN is any NaN code, e4m3fn's without its sign), and does
//           not depend on the number of threads. Batch-invariant but for
//           dynamic per-tensor and per-tile scales, which rows share.
// Errors    InvalidArgument and Unimplemented as core/status.h says.
//
// Example:
//   std::vector<float> x(rows * cols), scales(rows);
//   std::vector<F8E4M3Fn> codes(rows * cols);
//   absl::Status status = Quantize(
//       {.x = Matrix(x.data(), rows, cols),
//        .out = {.codes = Matrix(codes.data(), rows, cols),
//                .scales = PerRow(scales.data()),
//                .dynamic = true}},
//       Stream::Cpu());

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lamina/core/stream.h"
#include "lamina/core/views.h"
#include "lamina/quant/scale.h"

namespace lamina {

struct QuantizeArgs {
  ConstMatrixView x;
  QuantizedOutput out;
  void* workspace = nullptr;
  int64_t workspace_bytes = 0;
};
[[nodiscard]] absl::Status Quantize(const QuantizeArgs& args, Stream stream);

// The part of the arguments that decides how much workspace is needed.
struct QuantizeProblem {
  int64_t total_rows = 0;  // batch * rows
  int64_t cols = 0;
  ScaleGranularity granularity = ScaleGranularity::kPerTensor;
  bool dynamic = false;
};
[[nodiscard]] absl::StatusOr<int64_t> QuantizeWorkspaceBytes(
    const QuantizeProblem& problem, const DeviceInfo& device);

}  // namespace lamina
