"""AMD kernels of object files or static libraries: their instructions and what
they take of the machine.

    for kernel in kernels("build/hip/norm/liblamina_norm.a", tools): …
"""

import dataclasses
import pathlib
import re
import struct
import subprocess
import sys
import tempfile

BUNDLE = b"__CLANG_OFFLOAD_BUNDLE__"


@dataclasses.dataclass
class Kernel:
    arch: str
    name: str  # "LeanNormKernel<BF16, true, 3>", namespaces left out
    vgprs: int
    sgprs: int
    vgpr_spills: int  # to memory
    sgpr_spills: int  # to lanes of a vector register
    scratch: int  # bytes a lane
    lds: int  # bytes a block that are known before the launch
    instructions: list  # "v_add_f32_e32 v1, v2, v3"
    addresses: list  # of the instructions, in bytes

    def is_empty(self):
        """Not meant for this architecture: another wave size's."""
        return self.instructions[:1] == ["s_endpgm"]


def _run(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{command[0]}: exit status {done.returncode}\n{done.stderr}")
    return done.stdout


def _bundled(data):
    """(architecture, code object) of every offload bundle in a file's bytes."""
    start = data.find(BUNDLE)
    while start >= 0:
        position = start + len(BUNDLE)
        (count,) = struct.unpack_from("<Q", data, position)
        position += 8
        for _ in range(count):
            offset, size, length = struct.unpack_from("<QQQ", data, position)
            position += 24
            target = data[position : position + length].decode()
            position += length
            if "amdgcn" in target and size > 0:
                arch = target.rsplit("-", 1)[1].split(":")[0]
                yield arch, data[start + offset : start + offset + size]
        start = data.find(BUNDLE, position)


def _short(name):
    """A demangled name without namespaces and parameters."""
    name = re.sub(r"\(anonymous namespace\)::|\b\w+::", "", name)
    name = re.sub(r"\(.*\)$|^void ", "", name)
    return re.sub(r"\b(\d+)ul?\b", r"\1", name)


def _metadata(notes):
    """Facts a kernel, by mangled name, from llvm-readelf --notes."""
    facts = {}
    for entry in re.split(r"\n {2,4}- ", notes)[1:]:
        values = dict(re.findall(r"^\s*\.(\w+): +(\S+)$", entry, re.M))
        if "vgpr_count" in values:
            facts[values["name"].strip("'")] = values
    return facts


def _instructions(disassembly):
    """(instruction, address) of each symbol, by mangled name, from llvm-objdump
    -d."""
    found = {}
    current = []
    for line in disassembly.splitlines():
        label = re.match(r"[0-9a-f]+ <(\S+)>:$", line)
        if label:
            current = found.setdefault(label.group(1), [])
        elif line.startswith("\t") and "//" in line:
            text, _, comment = line.partition("//")
            address = int(comment.split(":")[0], 16)
            current.append((text.strip(), address))
    return found


def compile_kernels(source, arch, tools, includes):
    """The code object of one .cu file, with the flags of cmake/LaminaHip.cmake."""
    with tempfile.NamedTemporaryFile(suffix=".co") as file:
        _run(
            f"{tools}/clang++", "-x", "hip", "-std=c++20", "-O3",
            "--cuda-device-only", "--no-gpu-bundle-output", "-nogpuinc",
            "-nogpulib", "-mcode-object-version=5", "-ffp-contract=off",
            f"--offload-arch={arch}", *(f"-I{folder}" for folder in includes),
            "-c", source, "-o", file.name,
        )
        return pathlib.Path(file.name).read_bytes()


def kernels(path, tools, only=None):
    """The kernels in an object file or library, of one architecture or all;
    `tools`: where llvm's are."""
    for arch, code in _bundled(pathlib.Path(path).read_bytes()):
        if only in (None, arch):
            yield from kernels_of(code, arch, tools)


def kernels_of(code, arch, tools):
    """The kernels in a code object, and the functions that they call."""
    with tempfile.NamedTemporaryFile(suffix=".co") as file:
        file.write(code)
        file.flush()
        facts = _metadata(_run(f"{tools}/llvm-readelf", "--notes", file.name))
        listing = _instructions(_run(f"{tools}/llvm-objdump", "-d", file.name))
    names = _run(f"{tools}/llvm-cxxfilt", *facts).splitlines()
    for mangled, name in zip(facts, names):
        values = facts[mangled]
        yield Kernel(
            arch=arch,
            name=_short(name),
            vgprs=int(values["vgpr_count"]),
            sgprs=int(values["sgpr_count"]),
            vgpr_spills=int(values["vgpr_spill_count"]),
            sgpr_spills=int(values["sgpr_spill_count"]),
            scratch=int(values["private_segment_fixed_size"]),
            lds=int(values["group_segment_fixed_size"]),
            instructions=[text for text, _ in listing[mangled]],
            addresses=[address for _, address in listing[mangled]],
        )
    # What kernels call: its registers and memory are in their counts.
    called = [name for name in listing if name not in facts]
    names = _run(f"{tools}/llvm-cxxfilt", *called).splitlines() if called else []
    for mangled, name in zip(called, names):
        yield Kernel(
            arch=arch,
            name="function " + _short(name),
            vgprs=0,
            sgprs=0,
            vgpr_spills=0,
            sgpr_spills=0,
            scratch=0,
            lds=0,
            instructions=[text for text, _ in listing[mangled]],
            addresses=[address for _, address in listing[mangled]],
        )
