"""What the kernels should take on an MI300X, from their instructions: nobody
has run them there. Prints the table of docs/hip.md.

    predict.py --tools /usr/lib/llvm-22/bin LIBRARY...

A kernel's time is taken to be FLOOR, plus the longer of two times: its bytes at
the memory's peak, and its instructions at one a cycle and unit (four SIMDs,
four cycles a wave of 64 lanes each). Instructions are counted over the whole
kernel, rare branches among them, a loop's body once.
"""

import argparse
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import code_objects  # noqa: E402

ARCHITECTURES = ("gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201")
UNITS, HERTZ, BYTES_PER_SECOND = 304, 2.1e9, 5.3e12
# The shortest of all kernels in Hugging Face's tables (mi300kernels, 2025).
FLOOR = 1.92

# Operator, kernel at waves of 64 and of 32 lanes, elements a lane, bytes an
# element, and (rows, columns, Hugging Face's microseconds).
CASES = (
    (
        "AddRmsNorm, f16 to FP8, one block a row",
        ("LeanNormKernel<F16, true, 13>", "LeanNormKernel<F16, true, 12>"),
        16,
        7,
        ((1, 16384, 4.18), (8, 16384, 4.39), (32, 16384, 4.72), (128, 16384, 6.27)),
    ),
    (
        "AddRmsNorm, f16 to FP8, many rows",
        ("LeanNormKernel<F16, true, 19>", "LeanNormKernel<F16, true, 18>"),
        16,
        7,
        ((256, 16384, 10.74), (512, 16384, 18.55), (2048, 16384, 73.35)),
    ),
    (
        "SwiGLU, f16 to FP8, four columns a lane",
        ("LeanSwiGluKernel<F16, 7>", "LeanSwiGluKernel<F16, 6>"),
        4,
        5,
        ((1, 6656, 1.93), (32, 6656, 1.92), (128, 6656, 2.62)),
    ),
    (
        "SwiGLU, f16 to FP8, eight columns a lane",
        ("LeanSwiGluKernel<F16, 9>", "LeanSwiGluKernel<F16, 8>"),
        8,
        5,
        ((512, 6656, 5.48), (2048, 6656, 19.90)),
    ),
)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--tools", required=True)
    parser.add_argument("libraries", nargs="+")
    options = parser.parse_args()
    found = {
        (kernel.arch, kernel.name): kernel
        for library in options.libraries
        for kernel in code_objects.kernels(library, options.tools)
        if not kernel.is_empty()
    }

    print("| operator | bytes an element | " + " | ".join(
        f"{arch}" for arch in ARCHITECTURES) + " |")
    print("| --- | --- |" + " --- |" * len(ARCHITECTURES))
    for operator, names, elements, size, _ in CASES:
        cells = []
        for arch in ARCHITECTURES:
            kernel = found[arch, names[arch.startswith("gfx1")]]
            per_element = len(kernel.instructions) / elements
            cells.append(f"{per_element:.1f}, {kernel.vgprs} registers")
        print(f"| {operator} | {size} | " + " | ".join(cells) + " |")
    print()
    print("| operator, rows x columns | bytes, us | instructions, us | "
          "*predicted*, us | Hugging Face's, us |")
    print("| --- | --- | --- | --- | --- |")
    for operator, names, elements, size, shapes in CASES:
        kernel = found["gfx942", names[0]]
        for rows, columns, theirs in shapes:
            count = rows * columns
            memory = count * size / BYTES_PER_SECOND * 1e6
            waves = count / elements / 64
            issue = waves * len(kernel.instructions) / UNITS / HERTZ * 1e6
            total = FLOOR + max(memory, issue)
            print(f"| {operator.split(',')[0]}, {rows} x {columns} | "
                  f"{memory:.2f} | {issue:.2f} | {total:.2f} | {theirs} |")


if __name__ == "__main__":
    main()
