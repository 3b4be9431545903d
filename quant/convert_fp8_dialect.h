#pragma once

// ConvertFp8Dialect: FP8 codes and their scales between the OCP dialect (fn:
// e4m3fn, e5m2) and the fnuz dialect of MI300 (e4m3fnuz, e5m2fnuz).
//
// The fnuz types have a bias one larger, so the same bits stand for half the
// value. The codes are kept and the scale changes: fn -> fnuz doubles it,
// fnuz -> fn halves it. Hence code * scale is preserved exactly for all codes
// that both dialects have, subnormals included. All 256 codes:
//
//   fn -> fnuz (scale * 2)      e4m3fn              e5m2
//     finite, not -0            same bits           same bits
//     -0  0x80                  0x00                0x00
//     ±Inf                      (none)              NaN 0x80
//     NaN                       0x80                0x80
//   fnuz -> fn (scale / 2)      e4m3fnuz            e5m2fnuz
//     up to the fn maximum      same bits           same bits
//     beyond it, ±              0x7F, 0xFF          0x7C..0x7F, 0xFC..0xFF
//       saturate to             0x7E, 0xFE          0x7B, 0xFB
//     NaN 0x80                  0x7F                0x7E
//
// Not preserved, therefore: the sign of zero, infinities, the signs and
// payloads of NaN, and fnuz values beyond the fn maximum (e4m3fnuz ±240 becomes
// ±224 in units of the old scale; e5m2fnuz 32768..57344 becomes 28672).
// Quantising to fnuz with qmax 224 (28672 for e5m2fnuz) keeps clear of the
// latter. A scale that would leave fp32 behaves as the fp32 product: above
// 2^127 it becomes Inf, halving the smallest subnormals rounds. UE8M0 scales
// stay within [2^-127, 2^127].
//
// Equal types are legal: codes and scales are copied unchanged. So converting
// "to the dialect of this device" what already has it changes nothing, however
// often it is done, provided the views carry the types that the data has.
//
// Shapes    codes and out_codes [batch, rows, cols], each with its own strides.
//           Scales and out_scales have one granularity and one dtype; strides
//           are free. Scales are optional, both or neither: without them the
//           caller multiplies by Fp8DialectScaleFactor himself.
// Aliasing  in place is legal for codes (out_codes is the very view of codes)
//           and for scales; any other overlap is an error.
// Alignment one element. Empty: OK.
// Result    exact as above, on every target, for every number of threads.
// Errors    InvalidArgument and Unimplemented as core/status.h says.
//
// Source: the re-use of bits with a doubled scale is vLLM's and sglang's
// normalisation of e4m3fn checkpoints for gfx942; the rest of the table is
// ours.
//
// Example:
//   absl::Status status = ConvertFp8Dialect(
//       {.codes = Matrix(fn.data(), rows, cols),
//        .scales = PerTensor(&scale),
//        .out_codes = Matrix(fnuz.data(), rows, cols),
//        .out_scales = PerTensor(&fnuz_scale)},
//       Stream::Cpu());

#include "absl/status/status.h"
#include "lamina/core/stream.h"
#include "lamina/core/views.h"
#include "lamina/quant/convert_fp8_dialect/fp8_code_table.h"
#include "lamina/quant/fp8.h"
#include "lamina/quant/scale.h"

namespace lamina {

struct ConvertFp8DialectArgs {
  ConstMatrixView codes;
  ConstScaleView scales;
  MatrixView out_codes;
  ScaleView out_scales;
};
[[nodiscard]] absl::Status ConvertFp8Dialect(const ConvertFp8DialectArgs& args,
                                             Stream stream);

}  // namespace lamina
