"""tests/goldens/greedy_llama.jsonl: llama.cpp on the prompts of greedy.jsonl.

The same weights (a GGUF in F32 whose matrices are rounded to bf16, made here in
a temporary folder), fp32 KV cache, one thread. For each prompt the ids, and the
step at which they first differ from transformers' (-1: nowhere) with the margin
that transformers had there.
"""

import json
import pathlib
import tempfile

import gguf
import numpy as np
import oracle


def round_bf16(values):
    bits = values.astype(np.float32).view(np.uint32)
    bits = bits + 0x7FFF + ((bits >> 16) & 1)
    return (bits & 0xFFFF0000).astype(np.uint32).view(np.float32)


def write_f32(path):
    reader = gguf.GGUFReader(str(oracle.model_path()))
    writer = gguf.GGUFWriter(
        path, reader.fields["general.architecture"].contents())
    for name, field in reader.fields.items():
        if name.startswith("GGUF.") or name == "general.architecture":
            continue
        value = field.contents()
        if name == "general.file_type":
            value = int(gguf.LlamaFileType.ALL_F32)
        kind = field.types[0]
        sub = field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(name, value, kind, sub_type=sub)
    for tensor in reader.tensors:
        values = gguf.dequantize(tensor.data, tensor.tensor_type)
        shape = [int(n) for n in reversed(tensor.shape)]
        values = values.reshape(shape).astype(np.float32)
        if len(shape) == 2:
            values = round_bf16(values).reshape(shape)
        writer.add_tensor(tensor.name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def greedy(model, ids, count):
    model.reset()
    out, tokens = [], ids
    for _ in range(count):
        model.eval(tokens)
        logits = np.array(model._ctx.get_logits_ith(-1)[:model.n_vocab()])
        out.append(int(np.argmax(logits)))
        if out[-1] in (oracle.IM_END, oracle.END_OF_TEXT):
            break
        tokens = [out[-1]]
    return out


def main():
    import llama_cpp

    goldens = [json.loads(line) for line in
               (oracle.GOLDENS / "greedy.jsonl").read_text().splitlines()]
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "f32.gguf"
        write_f32(path)
        model = llama_cpp.Llama(
            str(path), n_ctx=2304, n_threads=1, n_threads_batch=1,
            type_k=llama_cpp.GGML_TYPE_F32, type_v=llama_cpp.GGML_TYPE_F32,
            flash_attn=False, verbose=False)
        for golden in goldens:
            want = golden["ids"]
            got = greedy(model, golden["prompt_ids"], len(want))
            step = next((i for i, (a, b) in enumerate(zip(want, got))
                         if a != b), -1)
            row = {"name": golden["name"], "ids": got, "differs_at": step}
            if step >= 0:
                row["margin"] = golden["margins"][step]
            rows.append(row)
            print(row["name"], step, row.get("margin"), flush=True)
    oracle.write_jsonl("greedy_llama.jsonl", rows)


if __name__ == "__main__":
    main()
