"""Writes fp8_golden.h: what ml_dtypes (an independent implementation) makes of
every 8-bit code and of every bf16 and fp16 input.

  python3 -m venv venv && venv/bin/pip install ml_dtypes==0.6.0
  venv/bin/python tests/quant/generate_fp8_golden.py > tests/quant/fp8_golden.h
"""

import ml_dtypes
import numpy as np

FORMATS = [
    ("F8E4M3Fn", ml_dtypes.float8_e4m3fn),
    ("F8E5M2", ml_dtypes.float8_e5m2),
    ("F8E4M3Fnuz", ml_dtypes.float8_e4m3fnuz),
    ("F8E5M2Fnuz", ml_dtypes.float8_e5m2fnuz),
    ("F8E8M0", ml_dtypes.float8_e8m0fnu),
]
NAN = 0x7FC00000


def decoded(dtype):
    values = np.arange(256, dtype=np.uint8).view(dtype).astype(np.float32)
    bits = values.view(np.uint32).copy()
    bits[np.isnan(values)] = NAN
    return bits


def inputs(sixteen_bit_type):
    values = np.arange(65536, dtype=np.uint16).view(sixteen_bit_type)
    values = values.astype(np.float32)
    return values[~np.isnan(values)]


def fnv1a(data):
    h = 0xCBF29CE484222325
    for byte in data:
        h = ((h ^ int(byte)) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return h


def encoded_hash(dtype, sixteen_bit_type):
    limit = np.float32(ml_dtypes.finfo(dtype).max)
    values = np.clip(inputs(sixteen_bit_type), -limit, limit)
    return fnv1a(values.astype(dtype).view(np.uint8))


print("#pragma once\n")
print("// Written by generate_fp8_golden.py with ml_dtypes", ml_dtypes.__version__)
print("// fp32 bits of every code (NaN is 0x7fc00000), and FNV-1a hashes of the")
print("// codes of all 65,536 inputs but NaN, in order, clamped to ±max first.\n")
print("#include <array>\n#include <cstdint>\n")
print('#include "lamina/core/dtype.h"\n')
print("namespace lamina::testing {\n")
print("template <class T>\nstruct Fp8Golden;\n")
print("// clang-format off")
for name, dtype in FORMATS:
    print("template <>\nstruct Fp8Golden<%s> {" % name)
    if name != "F8E8M0":
        bf16 = encoded_hash(dtype, ml_dtypes.bfloat16)
        f16 = encoded_hash(dtype, np.float16)
        print("  static constexpr uint64_t kHashOfBf16Inputs = 0x%016x;" % bf16)
        print("  static constexpr uint64_t kHashOfF16Inputs = 0x%016x;" % f16)
    print("  static constexpr std::array<uint32_t, 256> kDecoded = {")
    bits = decoded(dtype)
    for i in range(0, 256, 6):
        row = ", ".join("0x%08x" % b for b in bits[i : i + 6])
        print("    %s," % row)
    print("  };\n};")
print("// clang-format on\n")
print("}  // namespace lamina::testing")
