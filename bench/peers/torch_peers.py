#!/usr/bin/env python3
"""Times frameworks' kernels on the shapes of `lamina bench`, the same way.

  bench/peers/torch_peers.py [--op NAME] [--filter TEXT] [--json FILE]

eager PyTorch and torch.compile, and FlashInfer and vLLM where they can be
imported. bf16 in, FP8 (e4m3fn) out, a static scale or one for each row, the
residual updated in place. As in bench/support: a CUDA graph of many calls,
working sets that rotate through four times the L2 (64 of them at most), random
data, the median of 15 replays, microseconds a call. FlashInfer is timed with
programmatic dependent launch as well (mode pdl). Lines have the fields of
`lamina bench --json`, with the framework in "peer" and no "us" of ours.
"""
import argparse
import datetime
import importlib
import json
import statistics
import sys

try:
    import torch
except ImportError:
    if {"-h", "--help"} & set(sys.argv[1:]):
        sys.exit(print(__doc__))
    sys.exit("torch_peers: needs PyTorch: python3 -m pip install torch")

FP8 = torch.float8_e4m3fn
FP8_MAX = 448.0
EPSILON = 1e-5
SCALE = 0.05
CACHE_MULTIPLE, MAX_SETS, WARM_UPS, REPEATS = 4, 64, 3, 15

# rows x cols of the cases in bench/<library>/<op>_bench.cc.
ADD_RMS_NORM = [
    (rows, cols)
    for cols, many in (
        (4096, (1, 16, 32, 128, 2048, 16384)),
        (8192, (1, 16, 32, 128, 2048, 16384)),
        (16384, (1, 4, 16, 128, 2048)),
    )
    for rows in many
]
GATED = (
    [(1, cols) for cols in (4096, 8192, 14336, 16384)]
    + [(rows, 14336) for rows in (16, 32, 128, 2048, 8192)]
    + [(rows, 4096) for rows in (16, 128, 16384)]
)
RMS_NORM = [
    (dtype, rows, cols)
    for cols in (1592, 2048)
    for dtype, rows in (("f32", 512), ("f16", 512))
]
QUANTIZE = [(1, 4096), (32, 4096), (2048, 4096), (32, 14336)]
DTYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}


def optional(name):
    try:
        return importlib.import_module(name)
    except Exception as error:  # an import that fails for whatever reason
        print(f"torch_peers: no {name}: {str(error).splitlines()[0]}",
              file=sys.stderr)
        return None


FLASHINFER = optional("flashinfer.norm")
VLLM = optional("vllm._custom_ops")


# ---- The arithmetic, as a model's code says it. ------------------------------


def normalise(x, weight):
    v = x.float()
    v = v * torch.rsqrt(v.pow(2).mean(-1, keepdim=True) + EPSILON)
    return v * weight.float()


def to_fp8(v, scale):
    return (v / scale).clamp(-FP8_MAX, FP8_MAX).to(FP8)


def to_fp8_by_row(v):
    scale = v.abs().amax(-1, keepdim=True).float() / FP8_MAX
    scale = scale.clamp(min=1 / (FP8_MAX * 512))
    return to_fp8(v.float(), scale), scale


def add_rms_norm(x, residual, weight, scale, codes):
    z = x + residual
    residual.copy_(z)
    codes.copy_(to_fp8(normalise(z, weight), scale))


def rms_norm(x, weight, y):
    y.copy_(normalise(x, weight).to(x.dtype))


def swiglu(x, scale, codes):
    gate, up = x.chunk(2, -1)
    v = torch.nn.functional.silu(gate.float()) * up.float()
    codes.copy_(to_fp8(v, scale))


def quantize_by_row(x, codes, scales):
    quantised, scale = to_fp8_by_row(x)
    codes.copy_(quantised)
    scales.copy_(scale)


# ---- The harness. ------------------------------------------------------------


def plan(bytes_moved):
    cache = torch.cuda.get_device_properties(0).L2_cache_size
    sets = min(MAX_SETS, max(2, -(-CACHE_MULTIPLE * cache // bytes_moved)))
    wanted = min(MAX_SETS, max(1, int(2000 / (1 + bytes_moved / 3e6))))
    return sets, -(-wanted // sets) * sets


def time_graph(call, sets, nodes):
    """Microseconds a call in a graph of `nodes` calls."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for index in range(2):  # compiles
            call(index % sets)
        stream.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            for node in range(nodes):
                call(node % sets)
        for _ in range(WARM_UPS):
            graph.replay()
        stream.synchronize()
        times = []
        for _ in range(REPEATS):
            start, end = (torch.cuda.Event(enable_timing=True) for _ in "se")
            start.record(stream)
            graph.replay()
            end.record(stream)
            end.synchronize()
            times.append(start.elapsed_time(end) * 1e3 / nodes)
    return statistics.median(times)


def compiled(function):
    return torch.compile(function, dynamic=False, fullgraph=True)


def random(*shape, dtype=torch.bfloat16):
    values = torch.empty(*shape, dtype=torch.float32, device="cuda")
    return values.uniform_(-1, 1).to(dtype)


# ---- Cases: (op, case, rows, cols, bytes, [(peer, mode, call factory)]). -----


def add_rms_norm_case(rows, cols):
    bytes_moved = 7 * rows * cols + 2 * cols

    def peers(sets):
        x = [random(rows, cols) for _ in range(sets)]
        residual = [random(rows, cols) for _ in range(sets)]
        codes = [torch.empty(rows, cols, dtype=FP8, device="cuda")
                 for _ in range(sets)]
        weight = random(cols)
        scale = torch.tensor([SCALE], device="cuda")

        def bind(function):
            return lambda i: function(x[i], residual[i], weight, scale,
                                      codes[i])

        yield "eager", "graph", bind(add_rms_norm)
        yield "torch.compile", "graph", bind(compiled(add_rms_norm))
        if VLLM is not None:
            def vllm_norm(x, residual, weight, scale, codes):
                torch.ops._C.fused_add_rms_norm_static_fp8_quant(
                    codes, x, residual, weight, scale, EPSILON)
            yield "vLLM", "graph", bind(vllm_norm)
        fused = getattr(FLASHINFER, "fused_add_rmsnorm_quant", None)
        if fused is not None:
            for mode in ("graph", "pdl"):
                def flashinfer_norm(x, residual, weight, scale, codes,
                                    pdl=mode == "pdl"):
                    fused(codes, x, residual, weight, scale, EPSILON,
                          enable_pdl=pdl)
                yield "FlashInfer", mode, bind(flashinfer_norm)

    name = f"bf16_f8e4m3fn/static/rows:{rows}/cols:{cols}"
    return "add_rms_norm", name, rows, cols, bytes_moved, peers


def gated_case(rows, cols):
    bytes_moved = 5 * rows * cols

    def peers(sets):
        x = [random(rows, 2 * cols) for _ in range(sets)]
        codes = [torch.empty(rows, cols, dtype=FP8, device="cuda")
                 for _ in range(sets)]
        scale = torch.tensor([SCALE], device="cuda")

        def bind(function):
            return lambda i: function(x[i], scale, codes[i])

        yield "eager", "graph", bind(swiglu)
        yield "torch.compile", "graph", bind(compiled(swiglu))
        if VLLM is not None:
            def vllm_swiglu(x, scale, codes):
                torch.ops._C.silu_and_mul_quant(codes, x, scale)
            yield "vLLM", "graph", bind(vllm_swiglu)

    name = f"bf16_f8e4m3fn/silu/static/rows:{rows}/cols:{cols}"
    return "gated_activation", name, rows, cols, bytes_moved, peers


def rms_norm_case(dtype, rows, cols):
    size = DTYPES[dtype].itemsize
    bytes_moved = size * (2 * rows + 1) * cols

    def peers(sets):
        x = [random(rows, cols, dtype=DTYPES[dtype]) for _ in range(sets)]
        y = [torch.empty_like(x[0]) for _ in range(sets)]
        weight = random(cols, dtype=DTYPES[dtype])

        def bind(function):
            return lambda i: function(x[i], weight, y[i])

        yield "eager", "graph", bind(rms_norm)
        yield "torch.compile", "graph", bind(compiled(rms_norm))
        if FLASHINFER is not None and dtype != "f32":
            for mode in ("graph", "pdl"):
                def flashinfer_norm(x, weight, y, pdl=mode == "pdl"):
                    FLASHINFER.rmsnorm(x, weight, EPSILON, out=y,
                                       enable_pdl=pdl)
                yield "FlashInfer", mode, bind(flashinfer_norm)
        if VLLM is not None:
            def vllm_norm(x, weight, y):
                torch.ops._C.rms_norm(y, x, weight, EPSILON)
            yield "vLLM", "graph", bind(vllm_norm)

    name = f"{dtype}/rows:{rows}/cols:{cols}"
    return "rms_norm", name, rows, cols, bytes_moved, peers


def quantize_case(rows, cols):
    bytes_moved = 3 * rows * cols + 4 * rows

    def peers(sets):
        x = [random(rows, cols) for _ in range(sets)]
        codes = [torch.empty(rows, cols, dtype=FP8, device="cuda")
                 for _ in range(sets)]
        scales = [torch.empty(rows, 1, device="cuda") for _ in range(sets)]

        def bind(function):
            return lambda i: function(x[i], codes[i], scales[i])

        yield "eager", "graph", bind(quantize_by_row)
        yield "torch.compile", "graph", bind(compiled(quantize_by_row))
        if VLLM is not None:
            def vllm_quantize(x, codes, scales):
                torch.ops._C.dynamic_per_token_scaled_fp8_quant(
                    codes, x, scales, None)
            yield "vLLM", "graph", bind(vllm_quantize)

    name = f"bf16_f8e4m3fn/per_row/rows:{rows}/cols:{cols}"
    return "quantize", name, rows, cols, bytes_moved, peers


def cases():
    yield from (rms_norm_case(*case) for case in RMS_NORM)
    yield from (add_rms_norm_case(*case) for case in ADD_RMS_NORM)
    yield from (gated_case(*case) for case in GATED)
    yield from (quantize_case(*case) for case in QUANTIZE)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--op", default="")
    parser.add_argument("--filter", default="")
    parser.add_argument("--json", metavar="FILE")
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        print("torch_peers: no CUDA device", file=sys.stderr)
        sys.exit(3)
    properties = torch.cuda.get_device_properties(0)
    device = f"{properties.name} (sm_{properties.major}{properties.minor})"
    print(f"{device}, PyTorch {torch.__version__}; cold caches, medians of "
          f"{REPEATS}; us a call")
    output = open(arguments.json, "a", encoding="utf-8") if arguments.json else None
    for op, name, rows, cols, bytes_moved, peers in cases():
        if arguments.op not in ("", op) or arguments.filter not in name:
            continue
        sets, nodes = plan(bytes_moved)
        # A new shape is a new function to torch.compile.
        torch._dynamo.reset()
        for peer, mode, call in peers(sets):
            try:
                us = time_graph(call, sets, nodes)
            except Exception as error:  # one peer less, not the end
                print(f"torch_peers: {op} {name} {peer}: "
                      f"{str(error).splitlines()[0]}", file=sys.stderr)
                continue
            print(f"{op:18} {name:50} {mode:5} {us:10.2f} {peer}", flush=True)
            if output:
                line = {
                    "op": op, "case": name, "dtype": name.split("/")[0],
                    "rows": rows, "cols": cols, "mode": mode,
                    "bytes": bytes_moved, "peer": peer, "peer_us": us,
                    "device": device,
                    "date": datetime.date.today().isoformat(),
                }
                output.write(json.dumps(line) + "\n")
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
