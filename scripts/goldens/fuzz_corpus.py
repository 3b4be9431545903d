"""Seeds of the fuzz targets, written by the formats' own Python packages.

tests/fuzz/corpus/gguf/*          one-layer models of a few kilobytes
tests/fuzz/corpus/safetensors/*   one-layer FP8 model (config: the target's)
tests/fuzz/corpus/hf_config/*     config.json, index of shards

Usage: fuzz_corpus.py tests/fuzz/corpus      (needs gguf, numpy, torch,
safetensors)
"""

import json
import os
import sys

import gguf
import numpy as np
import torch
from safetensors.torch import save_file

ROOT = sys.argv[1]
RNG = np.random.default_rng(1)


def write_gguf(name, hidden, kind, types=True):
    writer = gguf.GGUFWriter(os.path.join(ROOT, "gguf", name), "llama")
    writer.add_name(name)
    writer.add_block_count(1)
    writer.add_context_length(16)
    writer.add_embedding_length(hidden)
    writer.add_feed_forward_length(hidden)
    writer.add_head_count(2)
    writer.add_head_count_kv(1)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(["<|endoftext|>", "a", "b"])
    if types:
        writer.add_token_types([3, 1, 1])
        writer.add_token_merges(["a b"])
        writer.add_eos_token_id(0)
        writer.add_custom_alignment(8)
        writer.add_array("general.languages", ["en"])
        writer.add_float64("x.f64", 1.0)
        writer.add_int8("x.i8", -1)
        writer.add_uint64("x.u64", 1)

    def matrix(label, rows, cols):
        values = RNG.normal(0, 1, (rows, cols)).astype(np.float32)
        writer.add_tensor(label, gguf.quantize(values, kind), raw_dtype=kind)

    def norm(label):
        writer.add_tensor(label, np.ones(hidden, np.float32))

    matrix("token_embd.weight", 3, hidden)
    norm("blk.0.attn_norm.weight")
    matrix("blk.0.attn_q.weight", hidden, hidden)
    matrix("blk.0.attn_k.weight", hidden // 2, hidden)
    matrix("blk.0.attn_v.weight", hidden // 2, hidden)
    matrix("blk.0.attn_output.weight", hidden, hidden)
    norm("blk.0.ffn_norm.weight")
    matrix("blk.0.ffn_gate.weight", hidden, hidden)
    matrix("blk.0.ffn_up.weight", hidden, hidden)
    matrix("blk.0.ffn_down.weight", hidden, hidden)
    norm("output_norm.weight")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_safetensors():
    tensors = {}
    generator = torch.Generator().manual_seed(1)

    def random(*shape):
        return torch.randn(*shape, generator=generator)

    tensors["model.embed_tokens.weight"] = random(3, 4).to(torch.bfloat16)
    layer = "model.layers.0."
    for name in ("input_layernorm", "post_attention_layernorm"):
        tensors[f"{layer}{name}.weight"] = random(4).to(torch.bfloat16)
    for name, rows in (("self_attn.q_proj", 4), ("self_attn.k_proj", 2),
                       ("self_attn.v_proj", 2), ("self_attn.o_proj", 4),
                       ("mlp.gate_proj", 4), ("mlp.up_proj", 4),
                       ("mlp.down_proj", 4)):
        tensors[f"{layer}{name}.weight"] = random(rows, 4).to(
            torch.float8_e4m3fn)
        tensors[f"{layer}{name}.weight_scale"] = torch.ones(rows, 1)
        tensors[f"{layer}{name}.input_scale"] = torch.ones(1)
    tensors["model.norm.weight"] = random(4).to(torch.float16)
    save_file(tensors, os.path.join(ROOT, "safetensors", "fp8"),
              metadata={"format": "pt"})


def write_configs():
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama",
        "hidden_size": 4, "num_hidden_layers": 1, "num_attention_heads": 2,
        "num_key_value_heads": 1, "head_dim": 2, "intermediate_size": 4,
        "vocab_size": 3, "max_position_embeddings": 8, "rms_norm_eps": 1e-5,
        "hidden_act": "silu", "tie_word_embeddings": True, "bos_token_id": 1,
        "eos_token_id": [1, 2], "pad_token_id": None, "rope_theta": 500000.0,
        "rope_scaling": {"rope_type": "llama3", "factor": 8.0,
                         "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                         "original_max_position_embeddings": 8192},
    }
    eight_bits = {"num_bits": 8, "type": "float", "symmetric": True}
    quantized = dict(config, quantization_config={
        "quant_method": "compressed-tensors", "format": "float-quantized",
        "ignore": ["lm_head"], "config_groups": {"group_0": {
            "targets": ["Linear"],
            "weights": dict(eight_bits, strategy="channel", dynamic=False),
            "input_activations": dict(eight_bits, strategy="token",
                                      dynamic=True)}}})
    blocks = dict(config, quantization_config={
        "quant_method": "fp8", "activation_scheme": "dynamic",
        "weight_block_size": [128, 128]})
    index = {"metadata": {"total_size": 8}, "weight_map": {
        "model.norm.weight": "model-00001-of-00001.safetensors"}}
    for name, value in (("plain", config), ("compressed", quantized),
                        ("blocks", blocks), ("index", index)):
        with open(os.path.join(ROOT, "hf_config", name), "w") as out:
            json.dump(value, out, indent=1)


KINDS = gguf.GGMLQuantizationType
write_gguf("f16", 4, KINDS.F16)
write_gguf("q8_0", 32, KINDS.Q8_0, types=False)
write_gguf("q4_1", 32, KINDS.Q4_1)
write_safetensors()
write_configs()
