#pragma once

// The rule of quant/convert_fp8_dialect.h for one code, and for scales.

#include <cstdint>

#include "lamina/core/device/host_device.h"
#include "lamina/quant/fp8.h"

namespace lamina {

// Scale of the converted codes / scale of the codes: 2, 0.5 or 1.
LAMINA_HD constexpr float Fp8DialectScaleFactor(Fp8Format from, Fp8Format to) {
  if (from.fnuz == to.fnuz) return 1.0f;
  return to.fnuz ? 2.0f : 0.5f;
}

// The code of `to` for a code of `from`, two dialects of one split: the table
// of quant/convert_fp8_dialect.h.
LAMINA_HD constexpr uint8_t ConvertFp8Code(uint8_t code, Fp8Format from,
                                           Fp8Format to) {
  if (from.fnuz == to.fnuz) return code;
  const uint8_t magnitude = code & 0x7fu;
  if (to.fnuz) {
    if (magnitude > from.max_code) return to.nan_code;
    return code == 0x80u ? uint8_t{0} : code;
  }
  if (code == from.nan_code) return to.nan_code;
  if (magnitude > to.max_code) {
    return static_cast<uint8_t>((code & 0x80u) | to.max_code);
  }
  return code;
}

}  // namespace lamina
