"""Rules of the repository that no compiler checks.

Each check takes the root folder and returns a list of problems, one line each.
"""
import os
import re
from pathlib import Path

# A library includes lower ranks only; siblings never include each other.
RANKS = {
    "core": 0,
    "reduce": 1,
    "quant": 2,
    "norm": 3,
    "activation": 3,
    "gemm": 3,
    "attention": 3,
    "tokens": 3,
}
APPS = ("apps",)
# bench/peers: what others write, to be timed beside ours.
VENDOR_FOLDERS = ("core/device/", "bench/peers/")
VENDOR_FILES = (
    "core/launch.cuh",
    "gemm/prefill_gemm/cublaslt.cc",  # the vendor's library
    "tests/support/pinned_memory_cuda.cc",
    "tests/support/pinned_memory_hip.cc",
)
SOURCE_SUFFIXES = (".h", ".cc", ".cuh", ".cu")

VENDOR_TOKEN = re.compile(
    r"<<<|>>>\s*\(|\b(?:cuda|hip|cu|nccl|rccl)[A-Z]\w*"
    r"|\b__(?:CUDA|HIP|AMDGCN|GFX|NVCC)\w*|\b__(?:shfl|ballot|syncthreads)\w*"
    r"|\b(?:warpSize|threadIdx|blockIdx)\b"
)
# Host SIMT defines the vendors' keywords away; HIP's are attributes.
KEYWORD_FILES = (
    "core/device/hip/intrinsics.cuh",
    "core/device/simt/intrinsics.cuh",
)
MACROS = {"LAMINA_HD", "LAMINA_RETURN_IF_ERROR", "LAMINA_ASSIGN_OR_RETURN"}
# Pieces of the three, and what Highway's multiple inclusion asks for.
HELPER_MACRO = re.compile(
    r"LAMINA_\w+_(INL_H|ONCE)_|HWY_TARGET_INCLUDE"
    r"|LAMINA_ASSIGN_OR_RETURN_IMPL_|LAMINA_CONCAT(_INNER)?_"
)
# Traces of how or where the code was written.
FOREIGN_WORDS = re.compile(
    r"/work/|\bworktree\b|\bthe brief\b|\bchatbot\b|\bAI[- ]generated\b", re.I
)


def files(root, suffixes):
    """Paths below root, relative, without build trees and hidden folders."""
    for folder, subfolders, names in os.walk(root):
        subfolders[:] = sorted(
            name
            for name in subfolders
            if name not in ("build", "out", "models", "__pycache__")
            and (not name.startswith(".") or name == ".ci")
        )
        for name in sorted(names):
            if name.endswith(suffixes):
                yield (Path(folder) / name).relative_to(root).as_posix()


def read(root, path):
    return (Path(root) / path).read_text(encoding="utf-8")


def code_of(text):
    """The text with comments and string literals blanked, lines kept."""

    def blank(match):
        token = match.group(0)
        if token[0] in "\"'":
            return token[0] * 2
        return "\n" * token.count("\n") if token.startswith("/*") else ""

    pattern = r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])\''
    return re.sub(pattern, blank, text, flags=re.S)


def lines_matching(root, path, text, pattern):
    for number, line in enumerate(text.splitlines(), 1):
        match = pattern.search(line)
        if match:
            yield f"{path}:{number}: {match.group(0)}"


def library_of(path):
    first = path.split("/")[0]
    return first if first in RANKS else None


def layering(root):
    problems = []
    for path in files(root, SOURCE_SUFFIXES):
        library = library_of(path)
        text = read(root, path)
        for target in re.findall(r'#include "(\S+)"', text):
            if ".." in target:
                problems.append(f"{path}: includes upwards: {target}")
            match = re.match(r"lamina/(\w+)/", target)
            if library is None or match is None or match.group(1) == library:
                continue
            other = match.group(1)
            if RANKS.get(other, 99) >= RANKS[library]:
                problems.append(f"{path}: {library} may not include {other}")
            elif f"lamina::{other}" not in declared(root, library):
                problems.append(
                    f"{path}: includes {other}, which is not in "
                    f"{library}/CMakeLists.txt"
                )
    for library in RANKS:
        for target in declared(root, library):
            other = target.removeprefix("lamina::")
            if target.startswith("lamina::") and (
                RANKS.get(other, 99) >= RANKS[library]
            ):
                problems.append(f"{library}/CMakeLists.txt: depends on {other}")
    return problems


def declared(root, library):
    """DEPS and PRIVATE_DEPS of a library, as its CMakeLists.txt has them."""
    path = Path(root) / library / "CMakeLists.txt"
    if not path.exists():
        return []
    match = re.search(
        r"\bDEPS(.*?)\)", path.read_text(encoding="utf-8"), re.S
    )
    return match.group(1).split() if match else []


def vendor_tokens(root):
    problems = []
    for path in files(root, SOURCE_SUFFIXES):
        if path.startswith(VENDOR_FOLDERS) or path in VENDOR_FILES:
            continue
        code = code_of(read(root, path))
        problems += lines_matching(root, path, code, VENDOR_TOKEN)
    return problems


def macros(root):
    """Three macros in all. A source file may have local ones, which it
    undefines."""
    problems = []
    for path in files(root, SOURCE_SUFFIXES):
        if path.startswith("tests/compile_fail/"):
            continue
        code = code_of(read(root, path))
        for name in re.findall(r"^\s*#\s*define\s+(\w+)", code, re.M):
            local = not path.endswith(".h") and re.search(
                rf"^\s*#\s*undef\s+{name}\b", code, re.M
            )
            keyword = path in KEYWORD_FILES and name.startswith("__")
            if not (
                name in MACROS
                or HELPER_MACRO.fullmatch(name)
                or local
                or keyword
            ):
                problems.append(f"{path}: macro {name}")
    return problems


def foreign_words(root):
    problems = []
    suffixes = SOURCE_SUFFIXES + (".md", ".txt", ".cmake", ".in", ".py", ".json")
    for path in files(root, suffixes):
        if path.startswith("tests/repository/") or "/golden" in path:
            continue
        text = read(root, path)
        problems += lines_matching(root, path, text, FOREIGN_WORDS)
    return problems


def documents(root):
    """Links and `paths` in the documents name things that exist."""
    problems = []
    for path in files(root, (".md",)):
        text = read(root, path)
        folder = Path(root) / Path(path).parent
        for link in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text):
            if "://" not in link and not (folder / link).exists():
                problems.append(f"{path}: no such file: {link}")
        prose = re.sub(r"^```.*?^```", "", text, flags=re.S | re.M)
        tops = {entry.name for entry in Path(root).iterdir()}
        for name in re.findall(r"`([\w./-]+)`", prose):
            if "/" not in name or name.startswith(("build/", "/", "-")):
                continue
            known_top = name.split("/")[0] in tops
            if known_top and not (
                (Path(root) / name).exists() or (folder / name).exists()
            ):
                problems.append(f"{path}: no such file: {name}")
    return problems


def sources_listed(root):
    """Every source is built, every header is public or included."""
    problems = []
    included = set()
    listed = {}
    for path in files(root, SOURCE_SUFFIXES):
        for target in re.findall(r'#include "(\S+)"', read(root, path)):
            folder = Path(path).parent
            included.add((folder / target).as_posix())
            included.add(target.removeprefix("lamina/"))
            included.add("apps/" + target.removeprefix("lamina/"))
    for path in files(root, ("CMakeLists.txt",)):
        folder = Path(path).parent
        for word in re.findall(r"[\w./-]+", read(root, path)):
            listed[(folder / word).as_posix()] = True
            listed[(folder / (word + ".cc")).as_posix()] = True
    for path in files(root, SOURCE_SUFFIXES):
        if path not in listed and path not in included:
            problems.append(f"{path}: in no CMakeLists.txt, included by nobody")
        elif path.endswith((".cc", ".cu")) and path not in listed:
            problems.append(f"{path}: in no CMakeLists.txt")
    return problems


def readme_example(root):
    """README.md shows tests/package/consumer/main.cc, which a test builds."""
    example = read(root, "tests/package/consumer/main.cc")
    if f"```cpp\n{example}```" not in read(root, "README.md"):
        return ["README.md: its example is not tests/package/consumer/main.cc"]
    return []


HEADER_EXAMPLES = "tests/repository/header_examples.cc"
EXAMPLE = re.compile(r"^  // (\S+\.h)\n(.*?)^  return", re.M | re.S)
OPERATOR = re.compile(r"^\[\[nodiscard\]\] absl::Status \w+\(const \w+Args&", re.M)


def header_examples(root):
    """The examples of the headers are those of header_examples.cc, and every
    operator has one."""

    def squeeze(text):
        return "".join(text.split())

    problems = []
    examples = EXAMPLE.findall(read(root, HEADER_EXAMPLES))
    for path, example in examples:
        indented = re.findall(r"^//   (.*)", read(root, path), re.M)
        if squeeze(example) not in squeeze("\n".join(indented)):
            problems.append(f"{path}: its example is not in {HEADER_EXAMPLES}")
    for path in files(root, (".h",)):
        if OPERATOR.search(read(root, path)) and path not in dict(examples):
            problems.append(f"{path}: no example in {HEADER_EXAMPLES}")
    return problems


def codemaps(root):
    return [
        f"{library}/README.md is missing"
        for library in RANKS
        if (Path(root) / library).is_dir()
        and not (Path(root) / library / "README.md").exists()
    ]


ALL = (
    layering,
    vendor_tokens,
    macros,
    foreign_words,
    documents,
    sources_listed,
    readme_example,
    header_examples,
    codemaps,
)
