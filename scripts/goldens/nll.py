"""tests/goldens/nll.json: mean negative log-likelihood of tests/goldens/prose.txt.

The first 4,000 tokens in two windows of 2,000; each window starts with an empty
context, and its tokens 1 to 1,999 are predicted from those before them. fp32,
every 2-D weight rounded to bf16, log-softmax in fp64.
"""

import json

import oracle
import torch

WINDOW, WINDOWS, HEAD = 2000, 2, 20


@torch.no_grad()
def window_nll(model, ids):
    hidden = model.model(torch.tensor([ids])).last_hidden_state[0]
    values = []
    for begin in range(0, len(ids) - 1, 250):
        end = min(begin + 250, len(ids) - 1)
        logits = model.lm_head(hidden[begin:end]).double()
        next_ids = torch.tensor(ids[begin + 1:end + 1])
        values += torch.nn.functional.cross_entropy(
            logits, next_ids, reduction="none").tolist()
    return values


def main():
    text = (oracle.GOLDENS / "prose.txt").read_text(encoding="utf-8")
    ids = oracle.text_ids(oracle.llama(), text)[:WINDOW * WINDOWS]
    model = oracle.transformers_model()
    windows, total = [], []
    for index in range(WINDOWS):
        values = window_nll(model, ids[index * WINDOW:(index + 1) * WINDOW])
        total += values
        windows.append({
            "first_token": index * WINDOW, "tokens": WINDOW,
            "predicted": len(values), "mean_nll": sum(values) / len(values),
            "first": [round(v, 5) for v in values[:HEAD]],
        })
    golden = {
        "text": "prose.txt", "weights": "bf16", "compute": "fp32",
        "mean_nll": sum(total) / len(total), "predicted": len(total),
        "windows": windows, "ids": ids,
    }
    path = oracle.GOLDENS / "nll.json"
    path.write_text(json.dumps(golden, separators=(",", ":")) + "\n")
    print(path, golden["mean_nll"], [w["mean_nll"] for w in windows])


if __name__ == "__main__":
    main()
