#!/usr/bin/env python3
"""Writes ggml_blocks.txt and smollm2_tensors.txt.

Usage: tensors.py MODEL.gguf OUTPUT_DIRECTORY

Needs the Python packages gguf, numpy, torch and transformers, which are
independent of Lamina: gguf decodes ggml's block types, transformers loads the
whole model and puts q_proj and k_proj into its own row order.
"""

import os
import sys
import zlib

import gguf
import numpy as np

# Where each type keeps its f16 factors; they get plausible values, everything
# else is random.
FACTORS = {
    "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0],
    "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208],
}


def write_blocks(path):
    rng = np.random.default_rng(20261129)
    with open(path, "w") as out:
        for name, factors in FACTORS.items():
            kind = gguf.GGMLQuantizationType[name]
            elements, size = gguf.GGML_QUANT_SIZES[kind]
            blocks = 8 if elements == 32 else 3
            raw = rng.integers(0, 256, (blocks, size), dtype=np.uint8)
            for offset in factors:
                factor = rng.normal(0, 1, (blocks, 1)).astype("<f2")
                factor[0] = -factor[0]
                factor[-1] = np.float16(6e-8)  # the smallest subnormal
                raw[:, offset:offset + 2] = factor.view(np.uint8)
            values = gguf.dequantize(raw.reshape(1, -1), kind)
            bits = np.ascontiguousarray(values.reshape(-1), "<f4").tobytes()
            out.write(f"{name} {raw.tobytes().hex()} {bits.hex()}\n")


def write_tensors(model, path):
    from transformers import AutoModelForCausalLM
    import torch

    folder, name = os.path.split(model)
    loaded = AutoModelForCausalLM.from_pretrained(
        folder, gguf_file=name, dtype=torch.float32)
    state = loaded.state_dict()
    with open(path, "w") as out:
        out.write("# name, shape, CRC-32 of the f32 bytes, the first values\n")
        for key in sorted(state):
            wanted = key.split(".")[2] in ("0", "29") if ".layers." in key \
                else key != "lm_head.weight"
            if not wanted:
                continue
            values = np.ascontiguousarray(state[key].numpy(), "<f4")
            shape = "x".join(str(n) for n in values.shape)
            first = " ".join(f"{v:.9g}" for v in values.reshape(-1)[:4])
            crc = zlib.crc32(values.tobytes())
            out.write(f"{key} {shape} {crc:08x} {first}\n")


if __name__ == "__main__":
    write_blocks(os.path.join(sys.argv[2], "ggml_blocks.txt"))
    write_tensors(sys.argv[1], os.path.join(sys.argv[2], "smollm2_tensors.txt"))
