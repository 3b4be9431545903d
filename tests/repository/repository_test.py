#!/usr/bin/env python3
"""repository_test.py ROOT CHECK: runs one check of checks.py on the sources.

ROOT self_test: every check finds the fault planted for it.
"""
import sys
import tempfile
from pathlib import Path

import checks

# check -> files of a small repository, and what the check has to say.
PLANTED = {
    "layering": (
        {
            "norm/a.cc": '#include "lamina/activation/x.h"\n',
            "norm/CMakeLists.txt": "lamina_library(NAME norm DEPS lamina::core)",
            "norm/b.cc": '#include "lamina/quant/scale.h"\n',
            "reduce/c.h": '#include "../core/dtype.h"\n',
            "core/CMakeLists.txt": "lamina_library(NAME core DEPS lamina::norm)",
        },
        [
            "core/CMakeLists.txt: depends on norm",
            "norm/a.cc: norm may not include activation",
            "norm/b.cc: includes quant, which is not in norm/CMakeLists.txt",
            "reduce/c.h: includes upwards: ../core/dtype.h",
        ],
    ),
    "vendor_tokens": (
        {
            "core/stream.h": "// wraps a cudaStream_t\nint a;  /* hipFree */\n",
            "core/device/cuda/runtime.cc": "void f() { cudaFree(0); }\n",
            "norm/a.cc": 'auto s = "cudaFree";\nvoid f() { hipFree(0); }\n',
            "gemm/b.cu": "void g() { Kernel<<<1, 2>>>(); }\n",
        },
        ["gemm/b.cu:1: <<<", "norm/a.cc:2: hipFree"],
    ),
    "macros": (
        {
            "core/device/host_device.h": "#define LAMINA_HD\n",
            "norm/a.h": "#define LAMINA_FOREST(x) x\n#undef LAMINA_FOREST\n",
            "norm/a.cc": "#define LOCAL 1\n#undef LOCAL\n  #  define LEFT 2\n",
        },
        ["norm/a.cc: macro LEFT", "norm/a.h: macro LAMINA_FOREST"],
    ),
    "foreign_words": (
        {"docs/a.md": "fine\nsee /work/x\n", "core/a.h": "// my Worktree\n"},
        ["core/a.h:1: Worktree", "docs/a.md:2: /work/"],
    ),
    "documents": (
        {
            "docs/a.md": "[b](b.md) [c](c.md#x) `docs/d.md` `other/e` `docs`\n"
            "[web](https://x.y/z)\n```\n`docs/not_looked_at.md`\n```\n",
            "docs/b.md": "",
        },
        [
            "docs/a.md: no such file: c.md",
            "docs/a.md: no such file: docs/d.md",
        ],
    ),
    "sources_listed": (
        {
            "norm/CMakeLists.txt": "HDRS a.h SRCS a.cc",
            "norm/a.h": "",
            "norm/a.cc": '#include "private.h"\n#include "c.cc"\n',
            "norm/private.h": "",
            "norm/forgotten.h": "",
            "norm/b.cc": "",
            "norm/c.cc": "",
        },
        [
            "norm/b.cc: in no CMakeLists.txt, included by nobody",
            "norm/c.cc: in no CMakeLists.txt",
            "norm/forgotten.h: in no CMakeLists.txt, included by nobody",
        ],
    ),
    "readme_example": (
        {
            "tests/package/consumer/main.cc": "int main() {}\n",
            "README.md": "```cpp\nint main();\n```\n",
        },
        ["README.md: its example is not tests/package/consumer/main.cc"],
    ),
    "header_examples": (
        {
            "tests/repository/header_examples.cc": "void F() {\n"
            "  // norm/a.h\n  A({.x = 1},\n    2);\n  return;\n}\n"
            "  // norm/b.h\n  B();\n  return;\n}\n",
            "norm/a.h": "// For\n//   A({.x = 1}, 2);\n// it is.\n",
            "norm/b.h": "// For\n//   B(1);\n",
            "norm/c.h": "[[nodiscard]] absl::Status C(const CArgs& args);\n",
        },
        [
            "norm/b.h: its example is not in tests/repository/header_examples.cc",
            "norm/c.h: no example in tests/repository/header_examples.cc",
        ],
    ),
    "codemaps": (
        {"norm/a.h": "", "core/README.md": ""},
        ["norm/README.md is missing"],
    ),
}


def self_test():
    problems = [
        f"no fault is planted for {check.__name__}"
        for check in checks.ALL
        if check.__name__ not in PLANTED
    ]
    for name, (contents, want) in PLANTED.items():
        with tempfile.TemporaryDirectory() as root:
            for path, text in contents.items():
                file = Path(root) / path
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text, encoding="utf-8")
            found = sorted(getattr(checks, name)(root))
            if found != want:
                problems.append(f"{name}: found {found}, want {want}")
    return problems


def main():
    root, name = sys.argv[1:]
    if name == "self_test":
        problems = self_test()
    else:
        problems = getattr(checks, name)(root)
    for problem in problems:
        print(problem)
    sys.exit(1 if problems else 0)


main()
