#!/usr/bin/env python3
"""Decode and prefill of llama.cpp beside Lamina: the same model, machine,
threads and run.

    pip install llama-cpp-python==0.3.36
    bench/peers/beside_llama_cpp.py --model FILE.gguf [--lamina build/cpu/bin/lamina]
        [--threads N] [--tokens N] [--rounds N] [--json FILE]

bf16 and Q8_0 files are made from the given one, beside it in a cache folder.
Rounds alternate between the two programs; medians are printed. --json appends
one line a case.
"""

import argparse
import ctypes
import datetime
import json
import os
import statistics
import subprocess
import tempfile
import time

try:
    import llama_cpp
except ImportError:
    llama_cpp = None  # --help needs none

PREFILL_TOKENS = 512
PROMPT = "Once upon a time"


def quantised(model, name, ftype):
    """The model in another format, made once."""
    folder = os.path.join(os.path.dirname(os.path.abspath(model)), "peers")
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, name + ".gguf")
    if not os.path.exists(path):
        params = llama_cpp.llama_model_quantize_default_params()
        params.ftype = ftype
        params.allow_requantize = True
        params.pure = True
        if llama_cpp.llama_model_quantize(model.encode(),
                                          (path + ".tmp").encode(),
                                          ctypes.byref(params)) != 0:
            raise SystemExit(f"llama.cpp could not make {path}")
        os.rename(path + ".tmp", path)
    return path


def llama_run(path, tokens, threads):
    """(decode tokens/s, prefill tokens/s) of llama.cpp."""
    model = llama_cpp.Llama(path, n_ctx=1024, n_batch=PREFILL_TOKENS,
                            n_ubatch=PREFILL_TOKENS, n_threads=threads,
                            n_threads_batch=threads, verbose=False)
    prompt = model.tokenize(PROMPT.encode(), add_bos=False)
    many = (prompt * PREFILL_TOKENS)[:PREFILL_TOKENS]
    model.eval(many)  # warms up
    model.reset()
    start = time.perf_counter()
    model.eval(many)
    prefill = PREFILL_TOKENS / (time.perf_counter() - start)
    model.reset()
    model.eval(prompt)
    token = 100
    start = time.perf_counter()
    for _ in range(tokens):
        model.eval([token])
        token = 100 + (token * 7 + 1) % 40000
    return tokens / (time.perf_counter() - start), prefill


def lamina_run(options, weights):
    """(decode tokens/s, prefill tokens/s, decode GB/s) of Lamina."""

    def generate(*arguments):
        output = subprocess.run(
            [options.lamina, "generate", "--model", options.model, "--raw",
             "--ignore-eos", "--json", "--weights", weights, "--threads",
             str(options.threads), *arguments], check=True,
            capture_output=True).stdout
        return json.loads(output)

    decode = generate("--prompt", PROMPT, "--max-tokens",
                      str(options.tokens + 1))
    with tempfile.NamedTemporaryFile("w") as file:
        # "Once upon a time" again and again: 4 tokens each.
        file.write((PROMPT * PREFILL_TOKENS)[:len(PROMPT) * PREFILL_TOKENS // 4])
        file.flush()
        prefill = generate("--prompt-file", file.name, "--max-tokens", "1")
    return (decode["decode_tokens_per_s"], prefill["prefill_tokens_per_s"],
            decode["decode_gb_per_s"])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--model", required=True)
    parser.add_argument("--lamina", default="build/cpu/bin/lamina")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json")
    options = parser.parse_args()
    if llama_cpp is None:
        raise SystemExit("beside_llama_cpp: needs llama.cpp: python3 -m pip "
                         "install llama-cpp-python==0.3.36")

    files = {
        "bf16": quantised(options.model, "bf16",
                          llama_cpp.LLAMA_FTYPE_MOSTLY_BF16),
        "q8_0": quantised(options.model, "q8_0",
                          llama_cpp.LLAMA_FTYPE_MOSTLY_Q8_0),
        "q4_1": options.model,
    }
    device = json.loads(
        subprocess.run([options.lamina, "devices", "--json", "--threads",
                        str(options.threads)], check=True,
                       capture_output=True).stdout)["devices"][0]
    theirs = {name: [] for name in files}
    ours = {"bf16": [], "fp8": []}
    limits = [device["read_gb_per_s"]]
    for _ in range(options.rounds):
        for name, path in files.items():
            theirs[name].append(llama_run(path, options.tokens,
                                          options.threads))
        for weights in ours:
            ours[weights].append(lamina_run(options, weights))
        limits.append(json.loads(
            subprocess.run([options.lamina, "devices", "--json", "--threads",
                            str(options.threads)], check=True,
                           capture_output=True).stdout)["devices"][0]
                      ["read_gb_per_s"])
    limit = statistics.median(limits)

    def median(runs, column):
        return statistics.median(run[column] for run in runs)

    print(f"{device['name']}, {device['arch']}, {options.threads} threads, "
          f"read bandwidth {limit:.1f} GB/s (measured in this run)\n")
    print(f"{'':24}{'decode t/s':>12}{'GB/s':>8}{'of limit':>10}"
          f"{'prefill t/s':>13}")
    for name in files:
        print(f"{'llama.cpp ' + name:24}{median(theirs[name], 0):12.1f}"
              f"{'':18}{median(theirs[name], 1):13.1f}")
    for weights in ours:
        rate = median(ours[weights], 2)
        print(f"{'lamina ' + weights:24}{median(ours[weights], 0):12.1f}"
              f"{rate:8.1f}{rate / limit:10.2f}"
              f"{median(ours[weights], 1):13.1f}")
    ratio = lambda a, b: f"{median(a, 0) / median(b, 0):.2f}"
    print(f"\ndecode: bf16 / llama.cpp bf16 {ratio(ours['bf16'], theirs['bf16'])}"
          f"; fp8 / bf16 {ratio(ours['fp8'], ours['bf16'])}"
          f"; fp8 / Q8_0 {ratio(ours['fp8'], theirs['q8_0'])}"
          f"; fp8 / Q4_1 {ratio(ours['fp8'], theirs['q4_1'])}")
    print("prefill: bf16 / llama.cpp bf16 "
          f"{median(ours['bf16'], 1) / median(theirs['bf16'], 1):.2f}")

    if not options.json:
        return
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"],
                            capture_output=True, text=True).stdout.strip()
    with open(options.json, "a") as out:
        for weights, peer in [("bf16", "bf16"), ("fp8", "q8_0"),
                              ("fp8", "q4_1")]:
            for column, what in [(0, "decode"), (1, "prefill")]:
                mine = median(ours[weights], column)
                us = 1e6 / mine
                line = {"op": what, "case": f"smollm2-135m/{weights}",
                        "dtype": weights, "mode": "cpu",
                        "us": round(us, 2), "tokens_per_s": round(mine, 2),
                        "peer": f"llama.cpp {peer}",
                        "peer_us": round(1e6 / median(theirs[peer], column), 2),
                        "device": device["name"], "arch": device["arch"],
                        "threads": options.threads,
                        "date": datetime.date.today().isoformat(),
                        "commit": commit}
                if what == "decode":
                    rate = median(ours[weights], 2)
                    line["bytes"] = int(rate * us * 1e3)
                    line["limit_us"] = round(us * rate / limit, 2)
                out.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()
