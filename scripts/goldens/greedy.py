"""tests/goldens/greedy.jsonl: what greedy decoding must say.

transformers on the CPU, fp32 activations and KV, every 2-D weight rounded to
bf16. For each step the margin between the best and the second logit: an
implementation with other sums may differ from the first near-tie on.
"""

import oracle
import torch

TOKENS = 48
CHAT = [
    "What is the capital of France?",
    "Write a haiku about the sea.",
    "Count from 1 to 20.",
    "What is 12345 + 67890?",
    "Explain in two sentences why the sky is blue.",
    "Translate to French: Good morning, my friend.",
    "Reply with one emoji: \U0001F600 or \U0001F468\u200D\U0001F469\u200D\U0001F467?",
    "\u65e5\u672c\u306e\u9996\u90fd\u306f\u3069\u3053\u3067\u3059\u304b\uff1f",
    "Write a Python function that reverses a string.",
    "What does <|im_end|> mean in a prompt?",
]
PLAIN = [
    "Once upon a time",
    "The three laws of motion are",
    "1 2 3 4 5 6 7 8 9 10",
    "Pi is 3.14159265358979",
    "def fibonacci(n):\n    ",
    "#include <stdio.h>\n\nint main(void) {\n\t",
    "\u4eca\u5929\u5929\u6c14\u5f88\u597d\uff0c",
    "I \u2764\ufe0f pizza \U0001F355\U0001F355 and",
    "Gr\u00fc\u00dfe aus M\u00fcnchen! Das Wetter ist",
]


def prompts(tokenizer):
    for text in CHAT:
        yield "chat", text, oracle.chat_ids(tokenizer, text), TOKENS
    for text in PLAIN:
        yield "plain", text, oracle.text_ids(tokenizer, text), TOKENS
    # A long context: the whole words of the first 2,000 tokens.
    prose = (oracle.GOLDENS / "prose.txt").read_text(encoding="utf-8")
    words = prose.split(" ")
    low, high = 0, len(words)
    while low < high:
        middle = (low + high + 1) // 2
        text = " ".join(words[:middle])
        if len(oracle.text_ids(tokenizer, text)) <= 2000:
            low = middle
        else:
            high = middle - 1
    text = " ".join(words[:low])
    yield "plain", text, oracle.text_ids(tokenizer, text), 24


@torch.no_grad()
def greedy(model, ids, count):
    out, margins = [], []
    past, step = None, torch.tensor([ids])
    for _ in range(count):
        # Logits of the last row alone.
        result = model(step, past_key_values=past, use_cache=True,
                       logits_to_keep=1)
        past = result.past_key_values
        best = torch.topk(result.logits[0, -1], 2)
        out.append(int(best.indices[0]))
        margins.append(round(float(best.values[0] - best.values[1]), 5))
        if out[-1] in (oracle.IM_END, oracle.END_OF_TEXT):
            break
        step = torch.tensor([[out[-1]]])
    return out, margins


def main():
    tokenizer = oracle.llama()
    model = oracle.transformers_model()
    rows = []
    for index, (mode, text, ids, count) in enumerate(prompts(tokenizer)):
        out, margins = greedy(model, ids, count)
        said = tokenizer.detokenize(out).decode("utf-8", errors="replace")
        rows.append({
            "name": f"{mode}_{index:02d}" if len(ids) < 1000 else "long_context",
            "mode": mode, "prompt": text, "prompt_ids": ids, "ids": out,
            "margins": margins, "text": said,
        })
        print(mode, len(ids), repr(text[-40:]), "->", repr(said), min(margins))
    oracle.write_jsonl("greedy.jsonl", rows)


if __name__ == "__main__":
    main()
