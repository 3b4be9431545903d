"""What the compiler made of the kernels, architecture by architecture, against
kernels.json beside this file.

    isa_test.py --tools /usr/lib/llvm-22/bin --arch gfx942 LIBRARY...
    isa_test.py --tools … --arch … --includes build/cpu/include SOURCE.cu

A rule of kernels.json holds for the kernels whose name it matches, on the
architectures it matches: instructions that must be there (require) and that must
not (forbid), the most that a kernel may take (at_most), and whether lanes may
have left when registers of other lanes are read (whole_waves: no). Every rule
must find a kernel in the libraries.
"""

import argparse
import json
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import code_objects  # noqa: E402

# What reads other lanes' registers.
CROSS_LANE = re.compile(r"\b(quad_perm|row_\w+|v_permlane\w+|ds_bpermute\w*)")


def next_narrowed(narrowed, before, instruction):
    """The registers with the masks to return to, outermost first, after an
    instruction that follows `before`."""
    saveexec = re.match(r"s_(\w+)_saveexec_b\d+ (s\[?[\d:]+\]?|vcc\w*)", instruction)
    if saveexec and saveexec.group(1) == "and":
        return narrowed + (saveexec.group(2),)
    if saveexec:  # the else part
        return narrowed[:-1] + (saveexec.group(2),)
    if re.match(r"v_cmpx", instruction):
        return narrowed + (before,)
    if re.match(r"s_and(n2|_not1)?_b\d+ exec", instruction):
        return narrowed or ("loop",)  # lanes leave one by one
    if re.match(r"s_(or|mov)_b\d+ exec", instruction):
        mask = instruction.split()[-1]
        # NOTE: regions that end together are left by the outermost mask.
        if mask in narrowed:
            return narrowed[: narrowed.index(mask)]
        return narrowed[:-1]
    return narrowed


def cross_lane_problems(kernel):
    """Cross-lane instructions that are reached with a narrowed EXEC: they would
    read registers of lanes that do not take part."""
    at = {address: i for i, address in enumerate(kernel.addresses)}
    states = {}
    pending = [(0, ())]
    while pending:
        i, narrowed = pending.pop()
        saved = ""  # the last copy of EXEC
        while i < len(kernel.instructions) and (
            i not in states or len(states[i]) < len(narrowed)
        ):
            states[i] = narrowed
            instruction = kernel.instructions[i]
            copied = re.match(r"s_mov_b\d+ (s\S+), exec", instruction)
            if copied:
                saved = copied.group(1)
            narrowed = next_narrowed(narrowed, saved, instruction)[:16]
            branch = re.match(r"s_(c?)branch\w* (\d+)$", instruction)
            if branch:
                words = int(branch.group(2))
                words -= 65536 if words >= 32768 else 0
                target = at[kernel.addresses[i] + 4 + 4 * words]
                pending.append((target, narrowed))
                if not branch.group(1):
                    break
            if re.match(r"s_endpgm|s_setpc", instruction):
                break
            i += 1
    for i, narrowed in states.items():
        if narrowed and CROSS_LANE.search(kernel.instructions[i]):
            yield f"under a narrowed EXEC: {kernel.instructions[i]}"


def problems(kernel, rule):
    text = "\n".join(kernel.instructions)
    for pattern in rule.get("require", []):
        if not re.search(pattern, text):
            yield f"has no {pattern}"
    for pattern in rule.get("forbid", []):
        found = re.search(rf"^.*{pattern}.*$", text, re.M)
        if found:
            yield f"has {found.group(0)}"
    if rule.get("whole_waves"):
        yield from cross_lane_problems(kernel)
    for limit, most in rule.get("at_most", {}).items():
        value = getattr(kernel, limit)
        if value > most:
            yield f"takes {value} {limit}, at most {most}"


def kernels_in(path, options):
    if not path.endswith(".cu"):
        return code_objects.kernels(path, options.tools, options.arch)
    roots = sorted(pathlib.Path(options.includes).iterdir())
    code = code_objects.compile_kernels(
        path, options.arch, options.tools, roots
    )
    return code_objects.kernels_of(code, options.arch, options.tools)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--tools", required=True)
    parser.add_argument("--arch", required=True)
    parser.add_argument("--includes", help="the build's include roots")
    parser.add_argument("libraries", nargs="+")
    options = parser.parse_args()

    rules = json.loads(
        (pathlib.Path(__file__).parent / "kernels.json").read_text()
    )["rules"]
    rules = [r for r in rules if re.fullmatch(r.get("arch", ".*"), options.arch)]
    used = [0] * len(rules)
    failures = 0
    checked = 0
    for library in options.libraries:
        for kernel in kernels_in(library, options):
            if kernel.is_empty():
                continue
            checked += 1
            found = []
            for i, rule in enumerate(rules):
                if re.fullmatch(rule["kernel"], kernel.name):
                    used[i] += 1
                    found += problems(kernel, rule)
            for problem in found:
                print(f"{kernel.arch} {kernel.name}: {problem}")
            failures += len(found)
    for rule, uses in zip(rules, used):
        if uses == 0 and not options.includes:
            print(f"no kernel matches the rule for {rule['kernel']}")
            failures += 1
    print(f"{options.arch}: {checked} kernels, {failures} problems")
    return 1 if failures or not checked else 0


if __name__ == "__main__":
    sys.exit(main())
